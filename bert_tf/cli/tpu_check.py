"""Compiles a pre-training step for a TPU without one: does it fit?

  python -m bert_tf.tpu_check --preset=base --train_batch_size=32 --topology=v5e:2x2

The step is that of run_pretraining with the flags of the same names. The compiler is the TPU's own
(pip install 'jax>=0.10.2' 'libtpu>=0.0.52'), and no data is needed. For the base preset, a
compilation takes some minutes and 7 GB of memory; the search for the largest batch takes several
compilations.
"""

from bert_tf.tpu.tpu_options import TpuCheckOptions
from tfrecords import command

Options = TpuCheckOptions
run = command.late("bert_tf.tpu.check:check")

if __name__ == "__main__":
    command.run(__name__)
