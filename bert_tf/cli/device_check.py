"""Compiles a pre-training step for a GPU or TPU without one: does it fit?

  python -m bert_tf.device_check --preset=base --device=a100 \\
    --train_batch_size=64

The step is that of run_pretraining with the flags of the same names. The command needs no data. It
uses the device's own compiler; if that is missing, an error says how to install it. For base, the
compiler for TPUs takes some minutes and 7 GB of memory, and the one for GPUs half a minute. The
search for the largest batch takes several compilations.
"""

from bert_tf.base import command
from bert_tf.devices.device_check_options import DeviceCheckOptions

Options = DeviceCheckOptions
run = command.late("bert_tf.devices.checking:check")

if __name__ == "__main__":
    command.run(__name__)
