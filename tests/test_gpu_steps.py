"""The steps of all models and objectives, as XLA compiles them on GPUs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.tensorflow_ops import compiling_for_gpu
from bert_tf.compression.distillation import Distillation, DistillationObjective
from bert_tf.compression.mixed_vocabulary import DualObjective, DualPretrainer
from bert_tf.compression.quantization import QuantizedModel
from bert_tf.compression.quantized_student import Q8BertLearner, QBertLearner
from bert_tf.compression.recipes import RECIPES
from bert_tf.compression.resegmentation import MixedRows
from bert_tf.config import BertConfig, BiLSTMConfig, MobileBertConfig, ModelSpec
from bert_tf.devices.compiler import step_to_hlo
from bert_tf.finetuning import objectives as tuning
from bert_tf.finetuning.lora import LoraModel
from bert_tf.finetuning.multi_task import MultiObjective, MultiTaskModel
from bert_tf.finetuning.registry import TASKS
from bert_tf.models import lstms
from bert_tf.models.lstms import FeatureTagger
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.models.task_model import BertEmbedder, BertTaskModel
from bert_tf.training.trainer import Trainer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

SIZES = dict(max_position_embeddings=8, embedding_size=4)
CONFIG = BertConfig(11, 8, 1, 2, 16, max_position_embeddings=8)
ALBERT = BertConfig(11, 8, 1, 2, 16, **SIZES, num_hidden_groups=1)
DECODER = dataclasses.replace(CONFIG, is_decoder=True)
BOTTLENECK = dict(intra_bottleneck_size=4, num_feedforward_networks=1)
MOBILE = MobileBertConfig(11, 8, 1, 2, 16, **SIZES, **BOTTLENECK)
LSTM = BiLSTMConfig(11, 8, 1, 1, 4, "relu", 0.0, 0.0, **SIZES, bilstm="single")
SIAMESE = dataclasses.replace(LSTM, bilstm="siamese")
# With a row for every token of both vocabularies.
TEACHER = dataclasses.replace(CONFIG, vocab_size=22, hidden_size=16)
DEEPER = dataclasses.replace(CONFIG, num_hidden_layers=2)

TOKENS = np.tile([2, 5, 6, 7, 3, 0], [4, 1]).astype(np.int32)
LABELS, ONES = np.array([0, 1, 1, 0], np.int32), np.ones([4, 2], np.float32)
INPUTS = {"input_word_ids": TOKENS, "input_mask": np.sign(TOKENS), "input_type_ids": 0 * TOKENS}
BATCH = INPUTS | {"example_weights": ONES[:, 0], "labels": LABELS}
MASKED = {"masked_lm_positions": TOKENS[:, :2], "masked_lm_ids": TOKENS[:, 1:3]}
MASKED |= {"masked_lm_weights": ONES, "next_sentence_labels": LABELS[:, None]}
WORDS = dict.fromkeys(("word_numbers", "student_tokens", "teacher_tokens"), TOKENS)
VALUES, TAGS, SPAN = {"values": ONES[:, 0]}, {"tags": TOKENS % 2}, dict(start=LABELS, end=LABELS)
PAIRS = {name: np.stack([x] * 2, axis=1) for name, x in INPUTS.items()}
SHARED = {"task": LABELS, "sst2/labels": LABELS, "stsb/values": ONES[:, 0]}
STEP = {"step": np.int64(1)}

CLASSES, MASKS = tuning.ClassificationObjective(), PretrainingObjective()
TAGGING, RANKING = tuning.TaggingObjective(), tuning.RankingObjective(0.05)
SIMILARITY = tuning.SimilarityObjective(2.5, 1.0)
TOGETHER = [TASKS["sst2"], TASKS["stsb"]]
SPEC = ModelSpec(CONFIG, Vocabulary((*SPECIAL_TOKENS, *"abcdef")), True)
MIXED = DualObjective(MixedRows(SPEC, SPEC, 0.2))
TERMS = {str(term): term for recipe in RECIPES.values() for term in recipe.loss.terms}
EVERY_TERM = dataclasses.replace(RECIPES["pd"].loss, terms=tuple(TERMS.values()))


def task(config=CONFIG, outputs=2, kind="classifier"):
    return BertTaskModel(config, outputs, kind)


def student_and_teacher():
    return Distillation(task(), task(DEEPER))


def quantized(training):
    return QuantizedModel(task(), training.quantization, [2])


# What makes a model, its objective, and what a batch holds besides BATCH.
STEPS = {
    "albert": (lambda: task(ALBERT), tuning.ClassificationObjective((1.0, 2.0)), {}),
    "mobile": (lambda: task(MOBILE), tuning.MultiLabelObjective(), {"labels": ONES}),
    "decoder": (lambda: task(DECODER, 1), tuning.RegressionObjective(), VALUES),
    "lstm": (lambda: task(LSTM, kind="tagger"), TAGGING, TAGS),
    "siamese": (lambda: task(SIAMESE), CLASSES, {}),
    "features": (lambda: FeatureTagger(DEEPER, 2, "weighted_sum_all"), TAGGING, TAGS),
    "choices": (lambda: task(CONFIG, 1, "multiple_choice"), CLASSES, PAIRS),
    "span": (lambda: task(kind="span"), tuning.SpanObjective(), SPAN),
    "similarity": (lambda: BertEmbedder(CONFIG, "max", True, 4), SIMILARITY, PAIRS | VALUES),
    "pairs": (lambda: BertEmbedder(CONFIG), RANKING, PAIRS | {"texts": TOKENS[:, 1:3]}),
    "lora": (lambda: LoraModel(task(), 2, 4.0, True), CLASSES, {}),
    "together": (lambda: MultiTaskModel(CONFIG, TOGETHER), MultiObjective(TOGETHER), SHARED),
    "pretrainer": (lambda: BertPretrainer(CONFIG, "selective"), MASKS, MASKED),
    "rematerialized": (lambda: BertPretrainer(MOBILE, "layers"), MASKS, MASKED),
    "distillation": (student_and_teacher, DistillationObjective(CLASSES, EVERY_TERM), STEP),
    "theseus": (student_and_teacher, DistillationObjective(CLASSES, RECIPES["theseus"].loss), STEP),
    "dual": (lambda: DualPretrainer(CONFIG, TEACHER, "none"), MIXED, MASKED | WORDS),
    "q8bert": (lambda: quantized(Q8BertLearner), CLASSES, {}),
    "qbert": (lambda: quantized(QBertLearner), CLASSES, {}),
}


def test_every_objective_has_a_step():
    """Oracle: the subclasses of the base class."""
    assert {*tuning.PerExample.__subclasses__()} <= {type(x) for _, x, _ in STEPS.values()}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.slow
def test_xla_has_the_operations_of_a_step(name, monkeypatch):
    """Oracle: XLA, which names the operations that it lacks."""
    monkeypatch.setattr(lstms, "_UNITS", 4)
    # Keras chooses other operations where it finds a GPU, which tracing does not need.
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: ["GPU:0"])
    make_model, objective, more = STEPS[name]
    model = make_model()
    trainer = Trainer(tf.distribute.OneDeviceStrategy("/cpu:0"), model, objective)

    @tf.autograph.experimental.do_not_convert
    def step(batch):
        with compiling_for_gpu():
            seeded = batch | {"dropout_seed": tf.constant([1, 2])}
            counts = objective.counts(batch)
            gradients = trainer._part_gradients.python_function(seeded, counts)
            return gradients, objective.sums(model, batch, False)

    step_to_hlo(step, {name: tf.constant(x) for name, x in (BATCH | more).items()})
