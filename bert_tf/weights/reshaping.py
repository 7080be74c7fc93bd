"""Models of other sizes from the same weights: other layers, heads, positions, vocabularies."""

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping, matches
from bert_tf.weights.names import HEAD_BIAS, HEAD_KERNEL, part_of
from bert_tf.weights.translation import entries, own_rows
from tfrecords.vocabulary import Vocabulary

_POSITIONS = "encoder/embeddings/position_embeddings"
_LAYER = re.compile(r"encoder/layer_(\d+)/(.*)")


def parse_layers(text: str, num_layers: int, flag: str = "layers") -> list[int]:
    """Reads indices and ranges of layers, such as "0-5" or "0,2,4,11"; `flag` is for messages."""
    layers: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item.strip())
        if not match:
            raise ValueError(f"--{flag}={text}: {item!r} is not an index or a range such as 0-5")
        first, last = int(match[1]), int(match[2] or match[1])
        # Checked first, because a huge range would take all memory.
        if last >= num_layers:
            raise ValueError(f"--{flag}={text}: the layers are 0 to {num_layers - 1}")
        layers += range(first, last + 1)
    if not layers or layers != sorted(set(layers)):
        raise ValueError(f"--{flag}={text}: name each layer once, in increasing order")
    return layers


def keep_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Returns a checkpoint with some of the layers of another one, in the same order.

    Source: BERT-PKD (arXiv:1908.09355) for a prefix, DistilBERT (arXiv:1910.01108) for others.
    """
    config = checkpoint.spec.config
    if config.num_hidden_groups:
        raise ValueError(f"{checkpoint.path}: its layers share weights, so none can be left out")
    new = {old: index for index, old in enumerate(layers)}
    tensors = {}
    for path, tensor in checkpoint.tensors.items():
        match = _LAYER.fullmatch(path)
        if not match:
            tensors[path] = tensor
        elif int(match[1]) in new:
            tensors[f"encoder/layer_{new[int(match[1])]}/{match[2]}"] = tensor
    heads = {new[i]: heads for i, heads in (config.pruned_heads or {}).items() if i in new}
    return _changed(checkpoint, tensors, num_hidden_layers=len(layers), pruned_heads=heads)


def remove_heads(checkpoint: Checkpoint, heads: Mapping[int, Collection[int]]) -> Checkpoint:
    """Returns a checkpoint without some of the attention heads of another one, given by layer.

    It computes what the other one would if the outputs of these heads were 0.

    Source: Are Sixteen Heads Really Better than One? (arXiv:1905.10650) section 2.3.
    """
    config = checkpoint.spec.config
    removed = {layer: {*gone} for layer, gone in (config.pruned_heads or {}).items()}
    for layer, gone in heads.items():
        removed[layer] = removed.get(layer, set()) | {*gone}
    # Checks that these heads exist.
    changed = _changed(checkpoint, {}, pruned_heads=removed)
    tensors = dict(checkpoint.tensors)
    for layer in heads:
        stays = [head not in heads[layer] for head in config.kept_heads(layer)]
        places = np.repeat(stays, config.head_size)
        path = f"encoder/layer_{layer}/attention"
        # Side by side: query, key and value, and in each of them the heads.
        for name in (f"{path}/qkv_kernel", f"{path}/qkv_bias"):
            tensors[name] = _chosen(tensors[name], np.tile(places, 3), -1)
        tensors[f"{path}/output_kernel"] = _chosen(tensors[f"{path}/output_kernel"], places, 0)
    return dataclasses.replace(changed, tensors=tensors)


def _chosen(tensor: Tensor, places: np.ndarray, axis: int) -> Tensor:
    """Returns the places of an axis for which a condition is true."""
    shape = list(tensor.shape)
    shape[axis] = int(places.sum())
    return _mapped(tensor, lambda values: np.compress(places, values, axis=axis), shape)


def with_plain_numbers(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a checkpoint whose dense layer predicts the numbers themselves; see `config.Head`.

    Other programs do not know the head's mean and deviation.
    """
    head = checkpoint.head
    if not head or (head.mean, head.deviation) == (0.0, 1.0):
        return checkpoint

    def scaled(values: np.ndarray, mean: float = 0.0) -> np.ndarray:
        return (values.astype(np.float64) * head.deviation + mean).astype(values.dtype)

    tensors = dict(checkpoint.tensors)
    tensors[HEAD_KERNEL] = _mapped(tensors[HEAD_KERNEL], scaled)
    tensors[HEAD_BIAS] = _mapped(tensors[HEAD_BIAS], functools.partial(scaled, mean=head.mean))
    plain = dataclasses.replace(head, mean=0.0, deviation=1.0)
    return dataclasses.replace(checkpoint, tensors=tensors, head=plain)


def resize_positions(checkpoint: Checkpoint, positions: int) -> Checkpoint:
    """Returns a checkpoint with another number of position embeddings.

    A smaller number keeps the first ones. A larger number repeats them from the start, which is a
    better start for further training than random values.

    Source: Longformer (arXiv:2004.05150) section 5.
    """
    tensors = dict(checkpoint.tensors)
    # The table may be one of the weights that the user allows to be missing.
    if old := tensors.get(_POSITIONS):
        shape = (positions, *old.shape[1:])
        tensors[_POSITIONS] = _mapped(old, lambda rows: np.resize(rows, shape), shape)
    return _changed(checkpoint, tensors, max_position_embeddings=positions)


def grow_vocabulary(
    checkpoint: Checkpoint, mapping: VocabularyMapping, vocab: Vocabulary, vocab_file: str
) -> Checkpoint:
    """Returns a checkpoint whose tables have grown with an extended vocabulary."""
    mapping.check_size(checkpoint.path, checkpoint.spec.config.vocab_size, mapping.old_size)
    mapping.check_vocabs(checkpoint.spec.vocab, vocab)
    grown = {
        path: _mapped(tensor, mapping.grow, (mapping.new_size, *tensor.shape[1:]))
        for path, tensor in checkpoint.tensors.items()
        if mapping.grows(path)
    }
    changed = _changed(checkpoint, {**checkpoint.tensors, **grown}, vocab_size=mapping.new_size)
    spec = dataclasses.replace(changed.spec, vocab=vocab)
    return dataclasses.replace(changed, spec=spec, vocab_file=vocab_file)


def _mapped(
    tensor: Tensor, function: Callable[[np.ndarray], np.ndarray], shape: Sequence[int] | None = None
) -> Tensor:
    """Returns a tensor with other values, and another shape if one is given."""
    return Tensor(tuple(shape or tensor.shape), lambda: function(tensor.read()))


def _changed(checkpoint: Checkpoint, tensors: Mapping[str, Tensor], **values: Any) -> Checkpoint:
    """Returns a checkpoint with other tensors and other values in its configuration."""
    config = dataclasses.replace(checkpoint.spec.config, **values)
    spec = dataclasses.replace(checkpoint.spec, config=config)
    return dataclasses.replace(checkpoint, spec=spec, tensors=tensors, config_file=None)


def complete(
    checkpoint: Checkpoint, parts: Sequence[str], allowed: Collection[str]
) -> tuple[Checkpoint, list[str]]:
    """Adds the weights that a checkpoint lacks, with random values, the same each time.

    It needs the weights of `parts`, and of every part of which it has one. Only those whose paths
    match an `allowed` pattern may be missing. Also returns the paths that were added.
    """
    config, tensors = checkpoint.spec.config, checkpoint.tensors
    head = next((tensors[path] for path in (HEAD_BIAS, HEAD_KERNEL) if path in tensors), None)
    classes, parts = head.shape[-1] if head else 0, {*parts, *checkpoint.parts}
    found = entries(own_rows(config), config, parts, classes)
    shapes = {entry.ours: entry.our_shape for entry in found}
    missing = [path for path in shapes if path not in tensors]
    # `import_tensors` has already checked the parts that a foreign checkpoint has.
    checked = checkpoint.parts if checkpoint.format else ()
    refused = [path for path in missing if part_of(path) not in checked]
    if refused := [path for path in refused if not matches(path, allowed)]:
        raise ValueError(
            f"{checkpoint.path} lacks {', '.join(refused)}: to start these from random values, "
            f"give --allow_missing='{refused[0].rpartition('/')[0]}/*'"
        )
    stddev = config.initializer_range
    added = {
        path: Tensor(shapes[path], functools.partial(_random, path, shapes[path], stddev, seed))
        for seed, path in enumerate(missing)
    }
    return dataclasses.replace(checkpoint, tensors={**tensors, **added}), missing


def _random(path: str, shape: tuple[int, ...], stddev: float, seed: int) -> np.ndarray:
    if path.endswith("gamma"):
        return np.ones(shape, np.float32)
    if path.endswith(("beta", "bias")):
        return np.zeros(shape, np.float32)
    return np.asarray(keras.initializers.TruncatedNormal(0.0, stddev, seed)(shape, "float32"))
