"""Compiles a pre-training step for a GPU or TPU without one: does it fit?

  python -m bert_tf.device_check --preset=base --train_batch_size=64 --device=a100

The step is that of run_pretraining with the flags of the same names. The compiler is the device's
own; if it is missing, the command says how to install it. No data is needed. For the base preset,
that of a TPU takes some minutes and 7 GB of memory, and that of a GPU half a minute. The search for
the largest batch takes several compilations.
"""

from bert_tf.devices.device_check_options import DeviceCheckOptions
from tfrecords import command

Options = DeviceCheckOptions
run = command.late("bert_tf.devices.check:check")

if __name__ == "__main__":
    command.run(__name__)
