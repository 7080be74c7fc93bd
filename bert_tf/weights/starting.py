"""Sets the initial weights of a run."""

from collections.abc import Callable, Sequence

import keras

from bert_tf.training.checkpoints import chosen_checkpoint, saved_shapes
from bert_tf.training.driver import Driver
from bert_tf.weights.growing import VocabularyMapping
from bert_tf.weights.loading import load_weights


def set_initial_weights(
    driver: Driver,
    model: keras.Model,
    weights: Sequence[keras.Variable],
    init_checkpoint: str | None,
    mapping: VocabularyMapping | None,
    say: Callable[[str], None],
) -> bool:
    """Sets the weights of a run from the first of these sources that exists.

    1. The run's own newest readable checkpoint, which restores the whole state, so that training
       resumes exactly.
    2. `init_checkpoint`, which must hold all of `weights`; `mapping` grows its tables.
    3. The random values that the model was created with.

    Args:
        model: the model that `driver` trains.
        weights: the weights of the model that `init_checkpoint` must hold.
        say: prints a line that tells the user which source was used.

    Returns:
        whether the run resumes.

    Raises:
        ValueError: the checkpoint belongs to another model.
        OSError: there is no readable checkpoint at `init_checkpoint`.
    """
    if path := driver.restore():
        say(f"Resuming from {path}, step {driver.step:,}.")
        return True
    if not init_checkpoint:
        say("Initializing all weights randomly.")
        return False
    path = chosen_checkpoint(init_checkpoint)
    load_weights(path, weights, mapping)
    loaded = {weight.path for weight in weights}
    say(f"Initializing {len(loaded)} weights from {path}.")
    if mapping:
        say(mapping.describe())
    if random := [weight.path for weight in model.weights if weight.path not in loaded]:
        say(f"Initializing randomly: {', '.join(random)}.")
    if unused := sorted(saved_shapes(path).keys() - loaded):
        say(f"Not used from the checkpoint: {', '.join(unused)}.")
    return False
