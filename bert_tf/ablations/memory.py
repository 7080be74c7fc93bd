"""Estimates the memory of a training step, to refuse what cannot fit before anything starts."""

import math
import os
import pathlib

from bert_tf.config import BertConfig
from bert_tf.weights.names import PARTS
from bert_tf.weights.table import entries, own_rows

# What a process with TensorFlow needs besides, as measured on the CPU: 1.0 GB of 2.7 GB at a width
# of 768, and of 2.1 GB at 512, with 4 layers and 32 sequences of length 128.
_TENSORFLOW = 1_000_000_000
_CGROUP = pathlib.Path("/sys/fs/cgroup/memory.max")


def count_parameters(config: BertConfig) -> int:
    """Returns the number of parameters of a `BertPretrainer`, without building one."""
    found = entries(own_rows(config), config, [part for part in PARTS if part != "head"])
    return sum(math.prod(entry.our_shape) for entry in found)


def training_memory(config: BertConfig, batch: int, length: int, predictions: int) -> int:
    """Estimates the bytes of a process that trains in float32, without rematerialization.

    Weights, gradients and the optimizer's two moments take 4 bytes each. The backward pass needs
    the activations that the source counts: per layer, 17 values for each token and element of its
    vector, and 2 for each head and pair of tokens; without dropout, this is a little too much.
    The masked-LM head keeps the logits and their gradient.

    Args:
        batch: sequences per device and step.
        length: tokens per sequence.
        predictions: positions per sequence that the masked-LM head scores.

    Source: Reducing Activation Recomputation in Large Transformer Models (arXiv:2205.05198)
    equation 1.
    """
    tokens = batch * length
    layer = 17 * config.hidden_size + 2 * config.num_attention_heads * length
    logits = 2 * batch * predictions * config.vocab_size
    activations = tokens * layer * config.num_hidden_layers + logits
    return _TENSORFLOW + 4 * (4 * count_parameters(config) + activations)


def machine_memory() -> int:
    """Returns the bytes of memory that this machine, or its container, has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return min(memory, int(limit)) if limit.isdecimal() else memory
