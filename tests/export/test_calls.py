"""Calls of all exports with inputs of other shapes than their signatures state."""

import dataclasses
import json
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from support import int32_only

from bert_tf.config import BertConfig
from bert_tf.finetuning.serving import ChoiceModule, TextModule
from bert_tf.finetuning.squad.contexts import SquadOptions
from bert_tf.finetuning.tagging.module import TaggingModule
from bert_tf.finetuning.tasks.squad import AnswerModule
from bert_tf.inference.text_embedder import embedding_module
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.task_model import BertEmbedder, BertTaskModel
from bert_tf.text.bert_preprocessor import BertPreprocessor
from bert_tf.text.tokenizer import WordPieceTokenizer
from export.checks import calls
from export.checks.examining import examine
from export.checks.points import Subject
from export.encoder_module import EncoderModule
from export.preprocessor_module import PreprocessorModule
from tfrecords.vocabulary import AddedToken, Vocabulary

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"))
CONFIG = BertConfig(8, 4, 1, 1, 4, max_position_embeddings=16)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[str]:
    """All that the commands export, as signatures of one SavedModel, and a Keras model."""
    folder, model = tmp_path_factory.mktemp("exports"), BertTaskModel(CONFIG, 2)
    tokenizer, root = WordPieceTokenizer(VOCAB), tf.Module()
    added = dataclasses.replace(VOCAB, added=(AddedToken(5, "a b", normalized=False),))
    how = dict(max_seq_length=16, outputs=lambda x: {"logits": x})
    squad = SquadOptions(4, 4, 20, 30, None)
    root.classifier = TextModule(model, tokenizer, pairs=False, **how)
    root.pairs = TextModule(model, tokenizer, pairs=True, **how)
    root.added = TextModule(model, WordPieceTokenizer(added), pairs=False, **how)
    root.embedder = embedding_module(BertEmbedder(CONFIG), tokenizer, 16)
    root.tagger = TaggingModule(BertTaskModel(CONFIG, 2, "tagger"), tokenizer, 16, ("O", "B-x"))
    root.questions = AnswerModule(BertTaskModel(CONFIG, 2, "span"), tokenizer, 16, squad)
    root.choices = ChoiceModule(BertTaskModel(CONFIG, 1, "multiple_choice"), tokenizer, 16)
    root.preprocessor = preprocessor = PreprocessorModule(tokenizer, 16)
    with int32_only():
        root.encoder = EncoderModule(BertEncoder(CONFIG), VOCAB, True)
    served = {name: x.serving for name, x in vars(root).items() if hasattr(x, "serving")}
    served["preprocessor"] = preprocessor.__call__
    tf.saved_model.save(root, f"{folder}/all", served)
    text = keras.Input([], dtype="string")
    inputs = BertPreprocessor(VOCAB, True, 16)(text)
    keras.Model(text, model(inputs)).export(f"{folder}/keras", verbose=False)
    return [f"{folder}/all", f"{folder}/keras"]


@pytest.mark.slow
def test_inputs_of_other_shapes_are_refused(folders):
    """Oracle: the shapes: as many axes as stated, as many rows in all inputs, equal sequences."""
    program = [sys.executable, __file__.replace("test_calls", "calling"), *folders]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, f"the process ended in {done.stdout.splitlines()[-1]}"
    called, wrong = set(), []
    for line in done.stdout.splitlines():
        (how, name, ranks, shapes), answered = map(json.loads, line.split("\t"))
        right = all(len(shapes[x]) == rank for x, rank in ranks.items())
        if right:
            sequences = {tuple(shape) for shape in shapes.values() if len(shape) == 2}
            right = len({shape[0] for shape in shapes.values()}) == 1
            right &= len(sequences) < 2 and all(length for _, length in sequences)
        called.add((how, name))
        if answered != right:
            wrong.append(line)
    assert not wrong
    # Keras writes two signatures.
    assert len(called) == 2 * (9 + 2)


@pytest.mark.slow
def test_what_ends_the_process_is_found(tmp_path):
    """Oracle: TensorFlow Text, which reads the number of rows of a scalar."""
    tokenizer = tf_text.FastWordpieceTokenizer(["a", "[UNK]"], token_out_type=tf.int32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def serve(text):
        return {"ids": tokenizer.tokenize(text).to_tensor()}

    tf.saved_model.save(tf.Module(), str(tmp_path), serve)
    ((result, line),) = examine(Subject(str(tmp_path), None), [calls.POINT])
    assert result == "WRONG"
    assert line.endswith("Found: the process ended with -11: serving_default with text []")
