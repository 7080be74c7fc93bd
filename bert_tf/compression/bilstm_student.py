"""A student without layers: a BiLSTM with the word embeddings of an encoder."""

import dataclasses

import keras

from bert_tf.compression.student import DistillingTraining
from bert_tf.config import BiLSTMConfig, ModelSpec
from bert_tf.runs.run import Run
from bert_tf.session import open_init_checkpoint
from bert_tf.weights.checkpoint import Checkpoint


class BiLSTMTraining(DistillingTraining):
    """Trains a BiLSTM on the outputs of its teacher."""

    unsuited = (
        *DistillingTraining.unsuited,
        *("student_layers", "preset", "bert_config_file", "layer_decay"),
    )

    def initial_student(self) -> Checkpoint:
        """Returns the word embeddings of an encoder, as the start of a BiLSTM.

        Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) section 4.3, for
        the sizes.
        """
        options, kind = self._options, self.task.head.kind
        if kind == "span":
            raise ValueError(
                f"--task={self.task.name}: a BiLSTM cannot find answers: use another --recipe"
            )
        source = open_init_checkpoint(options, Run(options.output_dir)) or self._teacher
        spec = source.spec
        words = source.tensors["encoder/embeddings/word_embeddings"]
        pairs = kind == "multiple_choice" or getattr(self.task, "pairs", False)
        config = BiLSTMConfig(
            spec.config.vocab_size,
            hidden_size=400,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=150,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=spec.config.max_position_embeddings,
            embedding_size=words.shape[1],
            bilstm="siamese" if pairs else "single",
        )
        spec = ModelSpec(config, spec.vocab, spec.lower_case)
        tensors = {"encoder/word_embeddings": words}
        return dataclasses.replace(source, spec=spec, tensors=tensors, head=None, config_file=None)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        return [model.encoder.word_embeddings]
