"""Configurations, heads and names of weights in Hugging Face's models of BERT's family."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.base.files import errors_at
from bert_tf.config import BertConfig, Head
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.architectures import ARCHITECTURES, config_values, renamed
from bert_tf.weights.names import HEAD_BIAS, weights
from bert_tf.weights.translation import Row

# The ends of the paths of weights that PyTorch stores as [out, in].
_TRANSPOSED = ("kernel", "own_embeddings")
# Names of heads, in place of BERT's.
_HEADS = {"span": {"classifier.": "qa_outputs."}}
# Older files also hold the tied weights of the masked-LM head.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def rows(config: BertConfig, kind: str | None, prefix: bool = True, old: bool = False) -> list[Row]:
    """Returns the table as a file spells it, given the kind of the head.

    With `prefix`, names of the encoder begin with the type, as in all models with heads. In `old`
    files, of before 2019, LayerNorms have "gamma" and "beta".
    """
    found, architecture = [], ARCHITECTURES[config.model_type]
    names = architecture.huggingface | _HEADS.get(kind, {}) | architecture.heads.get(kind, {})
    for weight in weights(config):
        name = renamed(weight.huggingface, names)
        if old:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            name = name.replace("LayerNorm.bias", "LayerNorm.beta")
        if not prefix:
            name = name.removeprefix(f"{config.model_type}.")
        found.append(Row(weight, name, transposed=weight.path.endswith(_TRANSPOSED)))
    return found


def named_as_usual(type_name: str, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors by their names in the table, though a file may call them otherwise."""
    # torch.compile, DistributedDataParallel, Lightning and sentence-transformers add these.
    beginning = re.compile(r"^((_orig_mod|module|model|auto_model|0)\.)+")
    tensors = {beginning.sub("", name): theirs[name] for name in theirs}
    if type_name == "ernie":
        tensors = _as_bert(tensors)
    for copy, original in _tied(type_name):
        if copy in tensors and original not in tensors:
            tensors[original] = tensors.pop(copy)
    return tensors


def _as_bert(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors of an ERNIE by BERT's names.

    Its only other table adds the same vector to every token, that of task 0, as segments do.
    """
    tensors = {re.sub(r"^ernie\.", "bert.", name): theirs[name] for name in theirs}
    start = "bert." if "bert.embeddings.word_embeddings.weight" in tensors else ""
    tasks = tensors.pop(f"{start}embeddings.task_type_embeddings.weight", None)
    name = f"{start}embeddings.token_type_embeddings.weight"
    if tasks and name in tensors:
        types = tensors[name]
        tensors[name] = dataclasses.replace(types, read=lambda: types.read() + tasks.read()[0])
    return tensors


def copies(path: str, type_name: str, theirs: Mapping[str, Tensor]) -> list[str]:
    """Returns the names of tensors that add nothing: tied weights, saved inputs, other heads."""
    found = [*ARCHITECTURES[type_name].unread]
    for name in ("embeddings.position_ids", "embeddings.token_type_ids"):
        found += [name, f"{type_name}.{name}"]
    for copy, original in _tied(type_name):
        if copy in theirs and original in theirs:
            found.append(copy)
            if not np.array_equal(theirs[copy].read(), theirs[original].read()):
                raise ValueError(
                    f"{path}: {copy} differs from {original}: only tied weights are supported"
                )
    return found


def _tied(type_name: str) -> list[list[str]]:
    names = ARCHITECTURES[type_name].huggingface
    pairs = [[renamed(name, names) for name in pair] for pair in _TIED.items()]
    return [pair for pair in pairs if pair[0] != pair[1]]


# The other names of both forms of GELU in transformers' activations.py.
_ACTIVATIONS = {"gelu_python": "gelu"} | dict.fromkeys(
    ("gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"), "gelu_new"
)
# By `Head.kind`, for BERT.
_CLASSES = {
    "classifier": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "tagger": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
}
# Values of problem_type.
_MULTI_LABEL, _SINGLE_LABEL = "multi_label_classification", "single_label_classification"
_OUTPUTS = {"span": 2, "multiple_choice": 1}
CONFIG_JSON = {
    "architectures?": list[str] | None,
    "id2label?": dict[str, str | None] | None,
    "model_type?": str,
    "problem_type?": str | None,
}


def read_config(path: str, values: Mapping[str, Any]) -> BertConfig:
    """Returns our configuration for the content of config.json."""
    model_type = values.get("model_type", "bert")
    if model_type not in ARCHITECTURES:
        raise ValueError(
            f"{path}: model_type is {model_type!r}, which has another tokenizer or other layers "
            f"than BERT: use one of {', '.join(ARCHITECTURES)}"
        )
    architecture = ARCHITECTURES[model_type]
    values = {**architecture.defaults, **values}
    values |= {ours: values.pop(x) for ours, x in architecture.keys.items() if x in values}
    values |= architecture.fixed
    if model_type in ("bert", "ernie"):
        # transformers' BERT ignores them.
        values |= {"embedding_size": None, "num_hidden_groups": None}
    activation = values.get("hidden_act", "gelu")
    values["hidden_act"] = _ACTIVATIONS.get(str(activation), activation)
    if model_type == "electra" and values["hidden_act"] != "gelu":
        values["masked_lm_act"] = "gelu"  # whatever its layers have
    # Versions and users add keys of their own. Those that change what is computed come with tensors
    # of their own, or BertConfig knows them.
    with errors_at(path):
        config = BertConfig.from_dict(values, ignore_unknown=True)
    if model_type == "mobilebert":
        _check(config, path)
    return config


def _check(config: BertConfig, source: str) -> None:
    """Raises a ValueError if transformers' class does not compute what a model computes."""
    architecture = ARCHITECTURES[config.model_type]
    problems = {problem: found(config) for problem, found in architecture.lacks.items()}
    for name, value in architecture.fixed.items():
        problems[f"{name}={getattr(config, name)}"] = getattr(config, name) != value
    for problem, found in problems.items():
        if found:
            raise ValueError(
                f"{source} has {problem}, which transformers' {architecture.prefix}Model lacks: "
                "keep it in a run folder"
            )


def read_head(
    path: str, config: Mapping[str, Any], theirs: Mapping[str, Tensor]
) -> tuple[Head | None, int]:
    """Returns what the head predicts, and the number of its outputs; (None, 0) without a head.

    `config` is the content of config.json, whose path is for messages.
    """
    layers = {"qa_outputs": "span", "classifier": None, "classifier.out_proj": "classifier"}
    layer = next((n for n in layers if {f"{n}.weight", f"{n}.bias"} & theirs.keys()), None)
    if not layer:
        return None, 0
    names = config.get("architectures") or []
    prefix = ARCHITECTURES[config.get("model_type", "bert")].prefix
    known = {kind: name.replace("Bert", prefix) for kind, name in _CLASSES.items()}
    kinds = [kind for kind, name in known.items() if name in names]
    kind = layers[layer] or next(iter(kinds), None)
    if not kind:
        raise ValueError(
            f"{path}: architectures is {names}, which does not tell what the head predicts: set it "
            f"to one of {', '.join(known.values())}"
        )
    if config.get("model_type") == "electra" and kind == "multiple_choice":
        _check_summary(path, config)
    if kind in _OUTPUTS:
        return Head(kind), _OUTPUTS[kind]
    # If one of the two is missing, the table says so.
    shapes = [theirs[n].shape for n in (f"{layer}.weight", f"{layer}.bias") if n in theirs]
    classes = next((shape[0] for shape in shapes if shape), 0)
    labels = _labels(path, config)
    if labels and len(labels) != classes:
        raise ValueError(
            f"{path}: id2label has {len(labels)} labels, but {layer} has {classes} outputs"
        )
    if kind == "classifier" and classes > 1 and config.get("problem_type") == "regression":
        raise ValueError(
            f"{path}: problem_type is regression with {classes} outputs: to read the encoder, "
            "remove it"
        )
    # With one output, transformers computes a sigmoid for both.
    sigmoid = (_MULTI_LABEL, _SINGLE_LABEL) if classes == 1 else (_MULTI_LABEL,)
    multi_label = kind == "classifier" and config.get("problem_type") in sigmoid
    with errors_at(f"{path}: id2label"):
        return Head(kind, labels, multi_label), classes


def _check_summary(path: str, config: Mapping[str, Any]) -> None:
    """Raises a ValueError unless ELECTRA's multiple choice reads [CLS] as its classifiers do."""
    usual = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
    for name, value in usual.items():
        if (found := config.get(name, value)) != value:
            raise ValueError(f"{path}: {name} is {found!r}: only {value!r} is supported")


def _labels(path: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels in the order of their ids; () if they have no names."""
    names = config.get("id2label") or {}
    expected = [str(index) for index in range(len(names))]
    if set(names) != set(expected):
        raise ValueError(f"{path}: the keys of id2label are not 0, 1, 2, ...: {names}")
    labels = tuple(names[x] or "" for x in expected)
    # The names that transformers gives to outputs without names.
    return () if labels == _nameless(len(labels)) else labels


def _nameless(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(count))


def config_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the content of config.json."""
    spec, head = checkpoint.spec, checkpoint.head
    architecture = _architecture(checkpoint)
    model_type = spec.config.model_type
    _check(spec.config, checkpoint.path)
    if model_type == "albert" and "NextSentence" in architecture:
        raise ValueError(
            f"{checkpoint.path} has a sentence-order head without a masked-LM head, which "
            "transformers' AlbertModel lacks: keep it in a run folder"
        )
    if model_type in ("distilbert", "electra") and "next_sentence" in checkpoint.parts:
        raise ValueError(
            f"{checkpoint.path} has a sentence-pair head, which no {model_type} of transformers "
            "has: leave it out with convert_checkpoint --allow_extra='pretrainer/next_sentence/*'"
        )
    architecture = architecture.replace("Bert", ARCHITECTURES[model_type].prefix)
    values = {"architectures": [architecture], "model_type": model_type}
    values |= config_values(spec.config)
    if model_type != "albert" and "classifier_dropout_prob" in values:
        values["classifier_dropout"] = values.pop("classifier_dropout_prob")
    if spec.vocab:
        values["pad_token_id"] = spec.vocab.pad_id
    if head and head.kind not in _OUTPUTS:
        classes = checkpoint.tensors[HEAD_BIAS].shape[0]
        labels = head.labels or _nameless(classes)
        if len(labels) != classes:
            raise ValueError(
                f"{checkpoint.path} has {classes} outputs, but its head.json {len(labels)} labels"
            )
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
        if head.kind == "classifier" and (head.multi_label or classes == 1):
            values["problem_type"] = _MULTI_LABEL if head.multi_label else "regression"
    return values


def _architecture(checkpoint: Checkpoint) -> str:
    """Returns transformers' class for the parts that a checkpoint has."""
    parts = checkpoint.parts
    if "head" in parts:
        if not checkpoint.head:
            raise ValueError(
                f"{checkpoint.path} has no head.json beside it, which tells what its head "
                'predicts: write one, such as {"kind": "classifier", "labels": ["bad", "good"]}'
            )
        return _CLASSES[checkpoint.head.kind]
    if "masked_lm" in parts and "next_sentence" in parts:
        return "BertForPreTraining"
    if "masked_lm" in parts:
        return "BertLMHeadModel" if checkpoint.spec.config.is_decoder else "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "next_sentence" in parts else "BertModel"
