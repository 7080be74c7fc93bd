"""Makes model_garden.tar.xz: models of the Model Garden, with their outputs.

Run it in an environment of its own, which needs only the Model Garden:

  pip install tf-models-official
  python tests/weights/formats/make_model_garden_golden.py

The archive holds an exported encoder with its masked-LM head (`encoder`), a training checkpoint
with a next-sentence head and the states of the optimizer (`training`), and for each the inputs and
outputs (`encoder.npz`, `training.npz`).
"""

import os
import tarfile
import tempfile

import numpy as np
import tensorflow as tf
import tf_keras
from official.nlp import optimization
from official.nlp.configs import bert, encoders
from official.nlp.tasks import masked_lm
from official.nlp.tools import export_tfhub_lib

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_garden.tar.xz")
VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##d e f g".split()
INPUTS = {
    "input_word_ids": np.array([[2, 5, 6, 3, 0], [2, 7, 8, 9, 3]], np.int32),
    "input_mask": np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32),
    "input_type_ids": np.array([[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]], np.int32),
    "masked_lm_positions": np.array([[1, 2], [2, 3]], np.int32),
}


def main():
    config = encoders.EncoderConfig(
        type="bert",
        bert=encoders.BertEncoderConfig(
            vocab_size=12,
            hidden_size=8,
            num_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=10,
            type_vocab_size=2,
        ),
    )
    head = bert.ClsHeadConfig(inner_dim=8, num_classes=2, name="next_sentence")
    model_config = bert.PretrainerConfig(encoder=config, cls_heads=[head])
    model = masked_lm.MaskedLMTask(masked_lm.MaskedLMConfig(model=model_config)).build_model()
    model(INPUTS)
    values = np.random.default_rng(1)
    for variable in model.variables:
        variable.assign(values.normal(scale=0.5, size=variable.shape))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        save_training(model)
        export_encoder(model, config)
        with tarfile.open(GOLDEN, "w:xz") as archive:
            for name in ("encoder", "encoder.npz", "training", "training.npz"):
                archive.add(name)


def save_training(model):
    optimizer = optimization.create_optimizer(0.0, 10, 1)
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in model.trainable_variables])
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, global_step=optimizer.iterations, **model.checkpoint_items
    )
    tf.train.CheckpointManager(checkpoint, "training", 1).save(1)
    save_outputs("training.npz", model(INPUTS))


def export_encoder(model, config):
    prefix = tf.train.Checkpoint(**model.checkpoint_items).save("restored/ckpt")
    with open("vocab.txt", "w") as file:
        file.write("".join(f"{token}\n" for token in VOCAB))
    export_tfhub_lib.export_model(
        "encoder",
        encoder_config=config,
        model_checkpoint_path=prefix,
        with_mlm=True,
        copy_pooler_dense_to_encoder=False,
        vocab_file="vocab.txt",
        do_lower_case=True,
    )
    os.remove("encoder/keras_metadata.pb")
    save_outputs("encoder.npz", tf.saved_model.load("encoder").mlm(INPUTS))


def save_outputs(file, outputs):
    layers = {f"layer_{i}": layer for i, layer in enumerate(outputs.pop("encoder_outputs"))}
    np.savez(file, **INPUTS, **layers, **outputs)


if __name__ == "__main__":
    tf_keras.utils.set_random_seed(1)
    main()
