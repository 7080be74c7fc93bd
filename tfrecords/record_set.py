"""Describes a set of pre-training records: the files, their contents and their order."""

from dataclasses import dataclass

from tfrecords.dynamic_masking import DynamicMasking


@dataclass(frozen=True, kw_only=True)
class RecordSet:
    """Pre-training records to read.

    Attributes:
        files: TFRecord files, as returned by `input_files.expand_files`.
        max_seq_length: S, the number of tokens per record.
        max_predictions_per_seq: P, the number of predictions per record; S - 1 for the dynamic
            masking "left_to_right".
        vocab_size: upper bound of all token ids.
        num_types: upper bound of all segment ids.
        seed: seed of the training order.
        part: "all"; "held_out" for the first of every 100 records of each file; "train" for the
            others.
        masking: how to mask dynamic records; None for records that are already masked.
    """

    files: tuple[str, ...]
    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    num_types: int = 2
    seed: int = 0
    part: str = "all"
    masking: DynamicMasking | None = None
