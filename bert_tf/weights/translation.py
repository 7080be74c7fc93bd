"""Tables that translate between the weights of a foreign format and ours, in both directions."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, matches
from bert_tf.weights.names import (
    HEAD_BIAS,
    PARTS,
    SIDE_BY_SIDE,
    Weight,
    num_layers,
    part_of,
    sizes,
    weights,
)

_ADVICE = "to convert it anyway, name them in convert_checkpoint --allow_missing or --allow_extra"

# Models compute in float32, whatever their weights.
_TYPES = ("float64", "float32", "float16", "bfloat16")
# The axes into which some formats split one of ours.
_BY_HEADS = dict.fromkeys(("attended", "3 attended"), ("heads", "head size"))


@dataclasses.dataclass(frozen=True)
class Row:
    """How a format stores one of our weights."""

    weight: Weight
    # Its name; * stands for query, key and value, which ours holds side by side, ? for q, k and v.
    theirs: str
    transposed: bool = False  # whether theirs has the two axes of ours exchanged
    by_heads: bool = False  # whether theirs has one axis for the heads, and one inside them

    def entry(self, config: BertConfig, layer: int, classes: int) -> "Entry":
        """Returns the entry of a layer; see `entries`."""
        values = sizes(config, classes, layer)
        kind = self.weight.path.rpartition("/")[2].partition("_")[0]
        apart = "*" in self.theirs or "?" in self.theirs
        names = SIDE_BY_SIDE[kind] if apart else ("",)
        ours = tuple(values[name] for name in self.weight.shape)
        piece = (*ours[:-1], ours[-1] // len(names))
        if self.by_heads:
            axes = (_BY_HEADS.get(axis, (axis,)) for axis in self.weight.shape)
            piece = tuple(values[axis] for axis in itertools.chain(*axes))
        return Entry(
            self.weight.path.format(layer),
            tuple(
                self.theirs.replace("*", name).replace("?", name[:1]).format(layer)
                for name in names
            ),
            self.transposed,
            ours,
            piece[::-1] if self.transposed else piece,
        )


def own_rows(config: BertConfig) -> list[Row]:
    """Returns the table of our own format."""
    return [Row(weight, weight.path) for weight in weights(config)]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A `Row` for one layer of one model: our path and the format's names, with their shapes."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool
    our_shape: tuple[int, ...]
    their_shape: tuple[int, ...]

    def to_ours(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Returns our weight for theirs."""
        if self.transposed:
            arrays = [array.T for array in arrays]
        width = self.our_shape[-1] // len(arrays)
        pieces = [array.reshape(*self.our_shape[:-1], width) for array in arrays]
        return np.ascontiguousarray(np.concatenate(pieces, axis=-1) if pieces[1:] else pieces[0])

    def to_theirs(self, array: np.ndarray) -> list[np.ndarray]:
        """Returns theirs for our weight."""
        pieces = np.split(array, len(self.theirs), axis=-1)
        if self.transposed:
            pieces = [piece.T for piece in pieces]
        return [np.ascontiguousarray(piece.reshape(self.their_shape)) for piece in pieces]


def entries(
    rows: Iterable[Row], config: BertConfig, parts: Collection[str] = PARTS, classes: int = 0
) -> Iterator[Entry]:
    """Yields the entries of the parts and a head of `classes`, layer by layer within their rows."""
    chosen = [row for row in rows if part_of(row.weight.path) in parts]
    per_layer = {False: [0], True: range(num_layers(config))}
    # Consecutive rows of layers belong together: first all of layer 0, then all of layer 1.
    for in_layer, group in itertools.groupby(chosen, key=lambda row: "{}" in row.weight.path):
        group = [*group]
        for layer, row in itertools.product(per_layer[in_layer], group):
            yield row.entry(config, layer, classes)


def import_tensors(
    checkpoint: Checkpoint,
    rows: Collection[Row],
    ignored: Collection[str] = (),
    classes: int | None = None,
) -> Checkpoint:
    """Translates the tensors of a foreign format into ours, which are read when they are needed.

    Accounts for every tensor. Parts of which it has none are left out, except the encoder. Names
    that match an `ignored` pattern are no weights, such as optimizer states; or weights, by their
    names or ours, that may be missing, additional or of another shape. `classes` are the outputs of
    the head, by default as many as its bias has.
    """
    path, config, theirs = checkpoint.path, checkpoint.spec.config, checkpoint.tensors
    if classes is None:
        names = [row.theirs for row in rows if row.weight.path == HEAD_BIAS]
        shapes = [theirs[name].shape for name in names if name in theirs]
        classes = next((shape[0] for shape in shapes if shape), 0)
    # Before the names of so many layers take memory.
    if (layers := num_layers(config)) > len(theirs):
        raise ValueError(
            f"{path}: the configuration has {layers:,} layers, but there are only {len(theirs):,} "
            "variables: use the configuration that belongs to the checkpoint"
        )
    tensors, used, missing, misshapen = {}, set(), [], []
    for part in PARTS:
        found = list(entries(rows, config, [part], classes))
        names = [name for entry in found for name in entry.theirs]
        if part not in ("encoder", "projection") and not theirs.keys() & set(names):
            continue
        for entry in found:
            lacking = [name for name in entry.theirs if name not in theirs]
            other = [
                f"{name} {list(theirs[name].shape)}, expected {list(entry.their_shape)}"
                for name in entry.theirs
                if name in theirs and theirs[name].shape != entry.their_shape
            ]
            names = (entry.ours, *entry.theirs)
            if (lacking or other) and any(matches(name, ignored) for name in names):
                continue
            missing += lacking
            misshapen += other
            used |= set(entry.theirs)
            tensors[entry.ours] = Tensor(
                entry.our_shape, functools.partial(_read, path, entry, theirs)
            )
    left = sorted(theirs.keys() - used)
    extra = [name for name in left if not matches(name, ignored)]
    problems = {
        "it lacks": missing,
        "it also holds": extra,
        "shapes differ from the configuration": misshapen,
    }
    if found := [f"{what}: {', '.join(names)}" for what, names in problems.items() if names]:
        raise ValueError(f"{path}: {'; '.join(found)}; {_ADVICE}")
    return dataclasses.replace(checkpoint, tensors=tensors, unused=tuple(left))


def _read(path: str, entry: Entry, theirs: Mapping[str, Tensor]) -> np.ndarray:
    arrays = {name: theirs[name].read() for name in entry.theirs}
    if wrong := [name for name, array in arrays.items() if array.dtype.name not in _TYPES]:
        raise ValueError(
            f"{path}: {wrong[0]} has type {arrays[wrong[0]].dtype.name}, not {' or '.join(_TYPES)}"
        )
    return entry.to_ours([array.astype(np.float32) for array in arrays.values()])


def export_tensors(
    rows: Iterable[Row], config: BertConfig, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the names and values of a foreign checkpoint, in the order of the table."""
    head = tensors.get(HEAD_BIAS)
    classes = head.shape[0] if head else 0
    parts = {part_of(path) for path in tensors}
    found = list(entries(rows, config, parts, classes))
    if homeless := sorted(tensors.keys() - {entry.ours for entry in found}):
        raise ValueError(
            f"this format has no place for {', '.join(homeless)}: to leave them out, name them in "
            "convert_checkpoint --allow_extra"
        )
    if "masked_lm" in parts and config.masked_lm_form != (config.hidden_act, config.layer_norm_eps):
        raise ValueError(
            "this format has no place for masked_lm_act and masked_lm_layer_norm_eps: leave the "
            "masked-LM head out with convert_checkpoint --allow_extra='pretrainer/masked_lm/*'"
        )
    for entry in found:
        yield from zip(entry.theirs, entry.to_theirs(tensors[entry.ours].read()), strict=True)
