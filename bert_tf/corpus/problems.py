"""Describes what is wrong with input files."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.corpus.compression import read_content
from tfrecords.input_files import shortened

# Enough for a compressed file without content.
_SMALL = 100


def describe_problems(files: Sequence[str], invalid_lines: Mapping[str, int]) -> list[str]:
    """Returns a warning about files without text, and one about bytes that are not UTF-8.

    Args:
        files: the input files.
        invalid_lines: the number of lines that are not UTF-8, by the name of the file.
    """
    warnings = []
    if empty := [file for file in files if _is_empty(file)]:
        warnings.append(
            f"WARNING: {len(empty):,} of {len(files):,} files are empty: {shortened(empty)}."
        )
    if invalid_lines:
        most = sorted(invalid_lines, key=lambda file: (-invalid_lines[file], file))
        counted = [f"{file} ({invalid_lines[file]:,})" for file in most]
        warnings.append(
            f"WARNING: dropped invalid bytes in {sum(invalid_lines.values()):,} lines that are not "
            f"UTF-8: {shortened(counted)}. Convert such files, for example with iconv."
        )
    return warnings


def _is_empty(file: str) -> bool:
    if tf.io.gfile.stat(file).length > _SMALL:
        return False
    return not b"".join(read_content(file)).strip()
