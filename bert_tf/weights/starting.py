"""Sets the initial weights of a run; loads checkpoints that lack some parts."""

from collections.abc import Callable, Sequence

import keras

from bert_tf.training.driver import Driver
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.growing import VocabularyMapping
from bert_tf.weights.loading import load_weights
from bert_tf.weights.names import STATE, TEACHER, part_of
from tfrecords.input_files import shortened

# The parts that a checkpoint may lack: the heads, and the pooler, which Hugging Face's models have
# only if they predict something per sequence.
OPTIONAL = ("pooler", "masked_lm", "next_sentence")


def load_or_warn(checkpoint: Checkpoint, weights: Sequence[keras.Variable]) -> list[str]:
    """Sets weights from a checkpoint; warns of missing `OPTIONAL` parts, NaN and infinity.

    Returns:
        the missing parts, which stay random.

    Raises:
        ValueError: another weight is missing from the checkpoint, or has another shape there.
        OSError: the checkpoint is damaged.
    """
    arguments = checkpoint.path, checkpoint.tensors, weights, None, OPTIONAL
    kept = load_weights(*arguments, allow_non_finite=True)
    if random := sorted({part_of(path) for path in kept}):
        print(
            f"WARNING: {checkpoint.path} has no weights for {', '.join(random)}, which stay random."
        )
    return random


def set_initial_weights(
    driver: Driver,
    model: keras.Model,
    weights: Sequence[keras.Variable],
    init: Checkpoint | None,
    mapping: VocabularyMapping | None,
    say: Callable[[str], None],
) -> bool:
    """Sets the weights of a run from the first of these sources that exists.

    1. The run's own newest readable checkpoint, which restores the whole state, so that training
       resumes exactly.
    2. `init`, the initial checkpoint, whose tables `mapping` grows. Pooler and heads that it lacks
       keep their random values.
    3. The random values that the model was created with.

    Args:
        model: the model that `driver` trains.
        weights: the weights of the model that are set from `init`.
        say: prints a line that tells the user which source was used.

    Returns:
        whether the run resumes.

    Raises:
        ValueError: the checkpoint belongs to another model.
        OSError: the checkpoint is damaged.
    """
    if path := driver.restore():
        say(f"Resuming from {path}, step {driver.step:,}.")
        return True
    paths = [weight.path for weight in model.weights]
    own = [path for path in paths if not path.startswith((f"{STATE}/", f"{TEACHER}/"))]
    if not init:
        owner = " of the student" if any(path.startswith(f"{TEACHER}/") for path in paths) else ""
        say(f"Initializing all weights{owner} randomly.")
        return False
    kept = load_weights(init.path, init.tensors, weights, mapping, OPTIONAL)
    loaded = {weight.path for weight in weights} - set(kept)
    say(f"Initializing {len(loaded)} weights from {init.path}{_kind(init)}.")
    if mapping:
        say(mapping.describe())
    if random := [path for path in own if path not in loaded]:
        say(f"Initializing randomly: {', '.join(random)}.")
    if unused := sorted(init.tensors.keys() - loaded) + list(init.unused):
        say(f"Left out of the checkpoint: {shortened(unused)}.")
    return False


def _kind(init: Checkpoint) -> str:
    return f" ({init.format})" if init.format else ""
