"""The names of the weights in Hugging Face's BERT, ALBERT and MobileBERT models."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.formats import albert, mobilebert
from bert_tf.weights.names import part_of
from bert_tf.weights.table import Row

_LAYER = "bert.encoder.layer.{}"
_QKV = ("query", "key", "value")
_MLM = "cls.predictions"
ROWS = (
    Row("encoder/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight"),
    Row("encoder/embeddings/position_embeddings", "bert.embeddings.position_embeddings.weight"),
    Row("encoder/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings.weight"),
    Row("encoder/embeddings/layer_norm/gamma", "bert.embeddings.LayerNorm.weight"),
    Row("encoder/embeddings/layer_norm/beta", "bert.embeddings.LayerNorm.bias"),
    Row(
        "encoder/layer_{}/attention/qkv_kernel",
        tuple(f"{_LAYER}.attention.self.{name}.weight" for name in _QKV),
        transposed=True,
    ),
    Row(
        "encoder/layer_{}/attention/qkv_bias",
        tuple(f"{_LAYER}.attention.self.{name}.bias" for name in _QKV),
    ),
    Row(
        "encoder/layer_{}/attention/output_kernel",
        f"{_LAYER}.attention.output.dense.weight",
        transposed=True,
    ),
    Row("encoder/layer_{}/attention/output_bias", f"{_LAYER}.attention.output.dense.bias"),
    Row("encoder/layer_{}/attention_norm/gamma", f"{_LAYER}.attention.output.LayerNorm.weight"),
    Row("encoder/layer_{}/attention_norm/beta", f"{_LAYER}.attention.output.LayerNorm.bias"),
    Row(
        "encoder/layer_{}/intermediate_kernel",
        f"{_LAYER}.intermediate.dense.weight",
        transposed=True,
    ),
    Row("encoder/layer_{}/intermediate_bias", f"{_LAYER}.intermediate.dense.bias"),
    Row("encoder/layer_{}/output_kernel", f"{_LAYER}.output.dense.weight", transposed=True),
    Row("encoder/layer_{}/output_bias", f"{_LAYER}.output.dense.bias"),
    Row("encoder/layer_{}/output_norm/gamma", f"{_LAYER}.output.LayerNorm.weight"),
    Row("encoder/layer_{}/output_norm/beta", f"{_LAYER}.output.LayerNorm.bias"),
    Row(
        "encoder/embeddings/projection_kernel",
        "bert.encoder.embedding_hidden_mapping_in.weight",
        transposed=True,
    ),
    Row("encoder/embeddings/projection_bias", "bert.encoder.embedding_hidden_mapping_in.bias"),
    Row("encoder/pooler/dense_kernel", "bert.pooler.dense.weight", transposed=True),
    Row("encoder/pooler/dense_bias", "bert.pooler.dense.bias"),
    Row("pretrainer/masked_lm/transform_kernel", f"{_MLM}.transform.dense.weight", transposed=True),
    Row("pretrainer/masked_lm/transform_bias", f"{_MLM}.transform.dense.bias"),
    Row("pretrainer/masked_lm/layer_norm/gamma", f"{_MLM}.transform.LayerNorm.weight"),
    Row("pretrainer/masked_lm/layer_norm/beta", f"{_MLM}.transform.LayerNorm.bias"),
    Row("pretrainer/masked_lm/output_bias", f"{_MLM}.bias"),
    Row("pretrainer/masked_lm/own_embeddings", f"{_MLM}.dense.weight", transposed=True),
    Row("pretrainer/next_sentence/dense_kernel", "cls.seq_relationship.weight", transposed=True),
    Row("pretrainer/next_sentence/dense_bias", "cls.seq_relationship.bias"),
    Row("task_model/head/dense_kernel", "classifier.weight", transposed=True),
    Row("task_model/head/dense_bias", "classifier.bias"),
)
# Older files also hold the tied weights of the masked-LM head.
_TIED = {
    f"{_MLM}.decoder.weight": "bert.embeddings.word_embeddings.weight",
    f"{_MLM}.decoder.bias": f"{_MLM}.bias",
}


def model_type(config: BertConfig) -> str:
    """Returns the name of a model's type: "bert", "albert" or "mobilebert"."""
    if config.is_mobile:
        return "mobilebert"
    return "albert" if albert.is_albert(config) else "bert"


def rows(
    config: BertConfig, kind: str | None, prefix: bool = True, old: bool = False
) -> Sequence[Row]:
    """Returns the table as a file spells it.

    Args:
        config: the model, which has a table of its own for MobileBERT's encoder.
        kind: the kind of the head.
        prefix: whether names of the encoder begin with the type, as in all models with heads.
        old: whether LayerNorms have "gamma" and "beta", as in files of before 2019.
    """

    type_name, table = model_type(config), ROWS
    if config.is_mobile:
        others = [row for row in ROWS if part_of(row.ours) != "encoder"]
        table = (*mobilebert.encoder_rows(config), *others)

    def spelled(name: str) -> str:
        name = _renaming(type_name)(name)
        if kind == "span" and name.startswith("classifier."):
            name = name.replace("classifier.", "qa_outputs.")
        if old:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            name = name.replace("LayerNorm.bias", "LayerNorm.beta")
        return name if prefix else name.removeprefix(f"{type_name}.")

    return [row.renamed(spelled) for row in table]


def _renaming(type_name: str) -> Callable[[str], str]:
    names = {"albert": albert.HUGGINGFACE_NAMES, "mobilebert": {"bert.": "mobilebert."}}
    return albert.renaming(names.get(type_name, {}))


def copies(path: str, type_name: str, theirs: Mapping[str, Tensor]) -> list[str]:
    """Returns the names of tensors that add nothing: tied weights and positions.

    Args:
        path: the folder, for messages.
        type_name: as `model_type` returns it.

    Raises:
        ValueError: one of them does add something: an output layer of its own, or positions in
            another order.
    """
    found = []
    spelled = _renaming(type_name)
    for copy, original in ((spelled(copy), spelled(name)) for copy, name in _TIED.items()):
        if copy in theirs and original in theirs:
            found.append(copy)
            if not np.array_equal(theirs[copy].read(), theirs[original].read()):
                raise ValueError(
                    f"{path}: {copy} differs from {original}: only tied weights are supported"
                )
    for name in ("embeddings.position_ids", f"{type_name}.embeddings.position_ids"):
        if name in theirs:
            found.append(name)
            positions = theirs[name].read().ravel()
            if not np.array_equal(positions, np.arange(len(positions))):
                raise ValueError(f"{path}: {name} is not 0, 1, 2, ...: this is not supported")
    return found
