"""What compress keeps in a run folder: the student beside its teacher, slow results, checksums."""

import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import tensorflow as tf

from bert_tf.base.files import fields_kind, read_file
from bert_tf.base.output_files import atomic_write, check_free, write_json
from bert_tf.base.progress import say
from bert_tf.compression.compression_options import COMPRESSION, PRECOMPUTED
from bert_tf.runs.run import Run
from bert_tf.training.checkpoints import Tensor
from bert_tf.training.reports import rank
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import part_of


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A student beside its teacher.

    Both values are the metric on the dev set. If training set weights to zero, the bytes are those
    under gzip, and `sparsity` is the share of zeros in the weights that `PruningAdamW` prunes.
    """

    recipe: str
    teacher: str
    teacher_parameters: int
    student_parameters: int
    student_bytes: float
    metric: str  # such as "eval_accuracy"
    teacher_value: float
    student_value: float
    sparsity: float | None = None
    student_nonzero: int | None = None
    teacher_gzip_bytes: int | None = None
    layer_bits: list[int] | None = None  # if its weights are quantized

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """Reads the record in a run folder; None if there is none."""
        if not (values := Run(folder).read_json(COMPRESSION, fields_kind(cls))):
            return None
        return cls(*(values.get(field.name) for field in dataclasses.fields(cls)))

    def write(self, folder: str) -> None:
        """Writes what is known to a run folder."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        write_json(Run(folder).file(COMPRESSION), known)

    @property
    def teacher_bytes(self) -> int:
        """The bytes of the teacher's weights."""
        return 4 * self.teacher_parameters

    @property
    def smaller(self) -> float:
        """How many times smaller the student is than the teacher, counted the same way."""
        return (self.teacher_gzip_bytes or self.teacher_bytes) / self.student_bytes

    @property
    def has_share(self) -> bool:
        """Whether a share can be stated: higher is better, and the teacher's value is above 0."""
        return rank(self.metric, self.teacher_value) > 0

    def describe(self, dev_set: str) -> list[str]:
        """Returns the lines that compare student and teacher."""
        lines, after = [], self.student_bytes / 1e6
        if self.sparsity is not None:
            lines.append(
                f"{self.sparsity:.1%} of the weights of layers and word embeddings are zero; "
                f"{self.student_nonzero:,} of {self.student_parameters:,} parameters are "
                f"not. With gzip, the weights of teacher and student take "
                f"{self.teacher_gzip_bytes / 1e6:.1f} and {after:.1f} MB ({self.smaller:.2f} times "
                "smaller)."
            )
        if self.layer_bits:
            lines.append(
                f"Weights of teacher and student: {self.teacher_bytes / 1e6:.2f} and {after:.2f} "
                f"MB ({self.smaller:.2f} times smaller)."
            )
        before, after = self.teacher_parameters, self.student_parameters
        theirs, ours = self.teacher_value, self.student_value
        kept = f" ({ours / theirs:.1%} kept)" if self.has_share else ""
        lines.append(
            f"Teacher and student: {before:,} and {after:,} parameters ({before / after:.2f} times "
            f"fewer); {self.metric.removeprefix('eval_')} {theirs:.4f} and {ours:.4f} on "
            f"{dev_set}{kept}."
        )
        return lines


def weights_of(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of a model, in order, without a pooler that the head does not read."""
    unread = "pooler" if checkpoint.head and not checkpoint.head.reads_pooler else None
    for path in sorted(checkpoint.tensors):
        if path.split("/")[0] in ("encoder", "task_model") and part_of(path) != unread:
            yield path, checkpoint.tensors[path]


def num_parameters(checkpoint: Checkpoint) -> int:
    """Returns the number of parameters; see `weights_of`."""
    return sum(int(np.prod(tensor.shape)) for _, tensor in weights_of(checkpoint))


_Arrays = dict[str, np.ndarray]
_DIGEST_BYTES = hashlib.sha256().digest_size


def computed_once(
    run_folder: str, name: str, inputs: object, compute: Callable[[], _Arrays]
) -> _Arrays:
    """Returns the result of `compute`; keeps it in the run folder and reads it there the next time.

    The file holds a checksum of the inputs and the arrays, then the arrays in NumPy's npz format.
    `inputs` are everything that determines the result; different ones differ in their `repr`.
    """
    path, key = os.path.join(run_folder, PRECOMPUTED, name), repr(inputs).encode()
    stored = read_file(path) if tf.io.gfile.exists(path) else b""
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest == hashlib.sha256(key + content).digest():
        say(f"Read {path}.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    if stored and not content.startswith(b"PK"):  # as npz files do
        check_free(path, advice="compress did not write it, so choose another --output_dir")
    if stored:
        say(f"{path} is damaged or belongs to other flags or data: computing it again.")
    arrays, file = compute(), io.BytesIO()
    np.savez(file, **arrays)
    content = file.getvalue()
    atomic_write(path, hashlib.sha256(key + content).digest() + content)
    return arrays
