"""Checksums that tell models apart."""

import dataclasses
import hashlib

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.weights.checkpoint import Checkpoint

# The fields of other encoders, and what a BERT has in their place.
_OTHER_FIELDS = {
    "bilstm": None,
    "intra_bottleneck_size": None,
    "num_feedforward_networks": None,
    "key_query_shared_bottleneck": False,
}


def config_text(config: BertConfig) -> str:
    """Returns a configuration as text; it must not change, so that models are recognized.

    All kinds of encoders once had the same fields.
    """
    *names, last = (field.name for field in dataclasses.fields(BertConfig))
    values = [
        (name, getattr(config, name, _OTHER_FIELDS.get(name)))
        for name in (*names, *_OTHER_FIELDS, last)
    ]
    return f"BertConfig({', '.join(f'{name}={value!r}' for name, value in values)})"


def fingerprint(checkpoint: Checkpoint) -> str:
    """Returns a checksum of a model: its weights, configuration, vocabulary, casing and head."""
    spec = checkpoint.spec
    vocab = spec.vocab and spec.vocab.sha256
    rest = f"{vocab!r}, {spec.lower_case!r}, {checkpoint.head!r}"
    digest = hashlib.sha256(f"({config_text(spec.config)}, {rest})".encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.read()).tobytes())
    return digest.hexdigest()
