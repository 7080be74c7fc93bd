"""The base class of models: inputs by the names that this and other programs give them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bert_tf.config import BertConfig, preset_config
from bert_tf.layers.dropout import DropoutSeeds
from bert_tf.layers.layer import Configured

# Ours, and those of transformers, google-research/bert and KerasHub.
_NAMES = {
    "input_word_ids": ("input_word_ids", "input_ids", "token_ids"),
    "input_mask": ("input_mask", "attention_mask", "padding_mask"),
    "input_type_ids": ("input_type_ids", "token_type_ids", "segment_ids"),
}
INPUTS = tuple(_NAMES)
POSITIONS = "masked_lm_positions"
_OPTIONAL = ("dropout_seed", "token_places", "output_places")
_OUR_NAMES = {alias: name for name, aliases in _NAMES.items() for alias in aliases}
# Inputs of transformers that would change the outputs.
_REFUSED = {"position_ids", "inputs_embeds", "head_mask"}


class BertModel(Configured, keras.Model):
    """The base class of models, which renames and checks the inputs of a call.

    It does so before the call, because Keras adds pages of text to an error inside it.

    Attributes:
        default_name: its name, which the paths of its weights begin with.
        reads: what the model reads besides the encoder's inputs. It ignores other tensors, such as
            the labels of a batch.
        input_rank: 2 for inputs [B, S], 3 for [B, K, S].
        config: the configuration; the argument may also name a size, see `preset_config`.
    """

    default_name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()
    input_rank = 2
    seed_generator: keras.random.SeedGenerator | None = None

    def __init__(self, config: BertConfig | str, **kwargs):
        super().__init__(**{"name": self.default_name} | kwargs)
        self.config = preset_config(config) if isinstance(config, str) else config
        if not isinstance(self.config, BertConfig):
            raise ValueError(f'config is {config!r:.60}: give a BertConfig, or a size, as "tiny"')

    def __repr__(self) -> str:
        config, parameters = self.config, self.count_params() if self.built else 0
        sizes = f"{config.num_hidden_layers} layers of {config.hidden_size}"
        return f"{type(self).__name__}({self.name}: {sizes}, {parameters:,} parameters)"

    def __call__(self, inputs=None, *args, **kwargs):
        return super().__call__(self.named_inputs(inputs), *args, **kwargs)

    def named_inputs(self, inputs: Any) -> dict[str, Any]:
        """Returns the inputs under our names; missing types are 0, as in transformers.

        Raises:
            ValueError: an input is missing or unknown, or has a wrong type, shape or value. Values
                are checked only outside graphs.
        """
        named = _with_our_names(inputs, self.reads)
        if named is None:
            is_dict = isinstance(inputs, Mapping)
            found = f"of {', '.join(map(str, inputs))}" if is_dict else type(inputs).__name__
            names = [" or ".join(names) for names in _NAMES.values()]
            names[1] += " (1 for tokens, 0 for padding)"
            names[2] += " (without it, 0)"
            takes = f"{type(self).__name__} takes a dict of {', '.join([*names, *self.reads])}"
            raise ValueError(f"{takes}, not {found}")
        given = dict(zip(INPUTS, INPUTS, strict=True))
        given |= {_OUR_NAMES.get(name, name): name for name in inputs}
        for name in (*INPUTS, *self.reads):
            if name in named:
                rank = 2 if name == POSITIONS else self.input_rank
                named[name] = _checked(name, given[name], named[name], rank)
        ids = named["input_word_ids"]
        if "input_type_ids" not in named:
            named["input_type_ids"] = ops.zeros_like(ids)
        _check_sizes(named, given, self.config)
        return named

    def dropout_seeds(self, inputs: dict, training: bool | None) -> DropoutSeeds | None:
        """Returns the seeds of a call, or None if nothing is dropped.

        They are derived from the input `dropout_seed`, or else from the model's own generator.
        """
        seed = inputs.get("dropout_seed")
        if seed is None and training and self.seed_generator:
            seed = ops.cast(self.seed_generator.next(), "int32")
        return None if seed is None else DropoutSeeds(seed)


def rows_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs of an encoder, [B * K, S], for those of K texts per example, [B, K, S]."""
    ids = inputs["input_word_ids"]
    # A constant number of rows lets the encoder group them.
    rows = ids.shape[0] * ids.shape[1] if ids.shape[0] else -1
    shape = rows, ops.shape(ids)[2]
    return {
        name: ops.reshape(values, shape) if name in INPUTS else values
        for name, values in inputs.items()
        if name in (*INPUTS, "dropout_seed", "token_places")
    }


def _with_our_names(inputs: Any, reads: tuple[str, ...]) -> dict[str, Any] | None:
    """Returns None if an input is missing, there twice, or would be ignored by mistake."""
    if not isinstance(inputs, Mapping):
        return None
    named = {_OUR_NAMES.get(name, name): value for name, value in inputs.items()}
    missing = {*INPUTS, *reads} - named.keys()
    unknown = named.keys() - {*INPUTS, *reads, *_OPTIONAL}
    # Batches have all inputs, and other tensors. In other dicts, an unknown name may be a typo.
    wrong = unknown if missing else unknown & _REFUSED
    if wrong or missing - {INPUTS[2]} or len(named) < len(inputs):
        return None
    return named


def _checked(name: str, given: str, x: Any, rank: int) -> Any:
    """Returns an input, `given` by the user's name, after checking its type and number of axes."""
    try:
        x = np.asarray(x) if isinstance(x, list | tuple) else x
    except ValueError:
        raise ValueError(f"{given} has rows of different lengths: add padding") from None
    if not hasattr(x, "ndim"):
        raise ValueError(f"{given} is a {type(x).__name__}: give a dense tensor, with padding")
    # Keras' function knows no strings.
    dtype = x.dtype.name if isinstance(x, np.ndarray) else keras.backend.standardize_dtype(x.dtype)
    if "int" not in dtype and (dtype, name) != ("bool", "input_mask"):
        raise ValueError(f"{given} is of the type {dtype}: give integers, such as int32")
    if dtype not in ("int16", "int32", "int64", "bool"):
        x = ops.cast(x, "int32")
    if x.ndim not in (None, rank):
        shape = "[batch, choices, length]" if rank == 3 else "[batch, length]"
        raise ValueError(f"{given} has the shape {list(x.shape)}: give {shape}")
    return x


def _check_sizes(named: Mapping[str, Any], given: Mapping[str, str], config: BertConfig) -> None:
    ids = named["input_word_ids"]
    if ids.ndim is None:
        return
    for name in INPUTS[1:]:
        x = named[name]
        sizes = zip(x.shape, ids.shape, strict=True) if x.ndim else ()
        if any(None not in pair and pair[0] != pair[1] for pair in sizes):
            raise ValueError(
                f"{given[name]} has the shape {list(x.shape)}, and {given[INPUTS[0]]} "
                f"{list(ids.shape)}"
            )
    length, longest = ids.shape[-1], config.longest_input
    if length and longest and length > longest:
        raise ValueError(
            f"a sequence of {length} tokens is longer than max_position_embeddings {longest}: use "
            "shorter sequences"
        )
    sizes = {INPUTS[0]: config.vocab_size, INPUTS[2]: config.type_vocab_size, POSITIONS: length}
    for name, size in sizes.items():
        x = named.get(name)
        # Tensors in graphs have no values yet.
        values = x.numpy() if hasattr(x, "numpy") else x
        if size and isinstance(values, np.ndarray) and values.size:
            found = values.min() if values.min() < 0 else values.max()
            if not 0 <= found < size:
                found = f"{given[name]} has the value {found}"
                raise ValueError(f"{found}: the model takes 0 to {size - 1}")
