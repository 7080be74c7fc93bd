"""Reads text from files and TFDS datasets, in blocks of whole documents.

A file is plain text, or JSON lines if its name ends in .jsonl or .json (before a suffix such as
.gz), or Parquet. The first two may be compressed.
"""

import functools
import itertools
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.base.content import checked_content, decode, estimate_content_bytes
from bert_tf.base.files import errors_at, named_errors
from bert_tf.base.progress import shows_bars
from bert_tf.base.storage import file_size
from bert_tf.tables.parquet import parquet_bytes, parquet_texts

# A line of bytes that occur in encoded whitespace. Only decoding shows whether it is blank.
_MAYBE_BLANK = re.compile(
    rb"\n([\t\x0b-\r\x1c- \xc2\x85\xa0\xe1-\xe3\x80-\x8a\x9a\x9f\xa8\xa9\xaf]*)(?=\n)"
)
_SECONDS_TO_ANSWER = 5


@dataclass(frozen=True)
class Block:
    """A piece of the input that consists of whole documents."""

    kind: str  # "text" (lines) or "json" (a JSON object per line)
    data: bytes  # decompressed, not necessarily valid UTF-8
    files: tuple[tuple[str, int], ...]  # where in the data each of them begins

    def texts(self, invalid_lines: dict[str, int]) -> Iterator[tuple[str, str]]:
        """Yields name and text of every file in the block; counts lines that are not UTF-8."""
        ends = [start for _, start in self.files[1:]]
        for (file, start), end in zip(self.files, [*ends, len(self.data)], strict=True):
            text, invalid = decode(self.data[start:end])
            if invalid:
                invalid_lines[file] = invalid
            yield file, text


def is_json(file: str) -> bool:
    """Returns whether a file holds JSON lines, judged by its name."""
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", file.lower())
    return name.endswith((".jsonl", ".json"))


def is_parquet(file: str) -> bool:
    """Returns whether a file is a Parquet file, judged by its name."""
    return file.lower().endswith(".parquet")


def has_fields(file: str) -> bool:
    """Returns whether documents are in a named field of a file, JSON lines or Parquet."""
    return is_json(file) or is_parquet(file)


def estimate_bytes(files: Sequence[str], field: str) -> int:
    """Returns about how many bytes of content the files hold, of Parquet the bytes of a column."""
    columns = [*filter(is_parquet, files)]
    others = [file for file in files if file not in columns]
    return estimate_content_bytes(others) + sum(parquet_bytes(file, field) for file in columns)


def group_files(files: Sequence[str], min_bytes: int) -> list[list[str]]:
    """Groups consecutive files: small ones up to `min_bytes` on disk together, large ones alone."""
    groups: list[list[str]] = []
    room = 0
    for file in files:
        with named_errors(f"cannot read {file}"):
            size = file_size(file)
        if room <= 0 or size >= min_bytes:
            groups.append([])
            room = min_bytes
        groups[-1].append(file)
        room -= size
    return groups


def read_blocks(
    files: Sequence[str],
    block_bytes: int,
    separator: str | None = "blank_line",
    field: str = "text",
    is_wrapped: bool = False,
) -> Iterator[Block]:
    """Yields the content of the files in blocks of `block_bytes` to about twice as many bytes.

    A block of plain text ends where a document ends, so a long document makes a larger block; the
    separator is that of `read_documents`. A block of JSON lines ends where a line ends, and so does
    one of text without a separator. The last block holds the remainder. Byte order
    marks are removed. Memory use grows with the longest document, not with the size of the files,
    and with the row groups of Parquet files, whose texts are in the column `field`. Those texts
    become plain text, so that they give what a text file with the same documents gives; but JSON
    lines where blank lines do not separate documents, or matter to hard-wrapped text.
    """
    as_text = separator == "blank_line" and not is_wrapped

    def is_text(file: str) -> bool:
        return as_text if is_parquet(file) else not is_json(file)

    for text, group in itertools.groupby(files, is_text):
        parts = ((file, part) for file in group for part in _content(file, field, text))
        yield from _blocks("text" if text else "json", parts, block_bytes, separator)


def _content(file: str, field: str, is_text: bool) -> Iterator[bytes]:
    if not is_parquet(file):
        return checked_content(file)
    make = _document if is_text else functools.partial(_json_line, field)
    return map(make, parquet_texts(file, field))


def _document(text: str) -> bytes:
    lines = (line for line in text.split("\n") if line.strip())
    return "\n".join([*lines, "\n"]).encode(errors="surrogateescape")


def _json_line(field: str, text: str) -> bytes:
    # Bytes that are not UTF-8 stay, so that they are counted.
    line = json.dumps({field: text}, ensure_ascii=False) + "\n"
    return line.encode(errors="surrogateescape")


def tfds_blocks(name: str, block_bytes: int) -> Iterator[Block]:
    """Yields the texts of a TFDS dataset as blocks of JSON lines with the field "text"."""
    texts = (text.decode("utf-8", "replace") for text in read_tfds_texts(name))
    lines = ((f"TFDS {name}", _json_line("text", text)) for text in texts)
    yield from _blocks("json", lines, block_bytes, None)


def _blocks(
    kind: str, parts: Iterable[tuple[str, bytes]], block_bytes: int, separator: str | None
) -> Iterator[Block]:
    """Cuts files, given as pairs of a name and a part of the content, into blocks."""
    # The files that have data in the buffer, and where they begin there.
    data, files = bytearray(), []
    # One and a half blocks, so that the last block is not tiny.
    cut_size = min_cut_size = block_bytes + block_bytes // 2

    def full_blocks() -> Iterator[Block]:
        nonlocal files
        while len(data) >= min_cut_size:
            if kind == "json" or not separator:
                end = _end_of_line(data, block_bytes)
            else:
                end = _end_of_document(data, files, block_bytes, separator)
            if not end:
                return
            yield Block(kind, bytes(data[:end]), tuple(_files_between(files, 0, end)))
            files = _files_between(files, end, len(data) + 1)
            del data[:end]

    for file, part in parts:
        if not files or file != files[-1][0]:
            # The end of a file ends its last document or line.
            if data:
                data += {"text": b"\n\n", "json": b"\n"}[kind]
            else:
                files = []
            files.append((file, len(data)))
        data += part
        if len(data) >= cut_size:
            yield from full_blocks()
            # Searches a long document again only when it has doubled, which keeps the time linear.
            cut_size = 2 * len(data) if len(data) >= min_cut_size else min_cut_size
    yield from full_blocks()
    if data:
        yield Block(kind, bytes(data), tuple(files))


def _files_between(files: list[tuple[str, int]], start: int, end: int) -> list[tuple[str, int]]:
    """Returns the files that have data or begin between two positions, relative to `start`."""
    ends = [begin for _, begin in files[1:]] + [end]
    return [
        (file, max(0, begin - start))
        for (file, begin), file_end in zip(files, ends, strict=True)
        if begin < end and file_end > start
    ]


def _end_of_document(
    data: bytearray, files: list[tuple[str, int]], start: int, separator: str
) -> int | None:
    """Returns the first end of a document from `start` on."""
    if separator == "blank_line":
        for match in _MAYBE_BLANK.finditer(data, start):
            if not match[1].decode("utf-8", "replace").strip():
                return match.end() + 1
        return None
    next_file = next((begin for _, begin in files if begin >= start), None)
    if separator == "file" or not (position := _end_of_line(data[:next_file], start)):
        return next_file
    # The last line may be incomplete.
    for line in data[position:next_file].split(b"\n")[:-1]:
        if re.search(separator, line.decode("utf-8", "replace").strip()):
            return position
        position += len(line) + 1
    return next_file


def _end_of_line(data: bytearray, start: int) -> int | None:
    return data.find(b"\n", start) + 1 or None


def read_tfds_texts(name: str) -> Iterator[bytes]:
    """Yields the feature "text" of every example, in the order in which they are stored.

    The name of a dataset, such as "wikipedia/20230601.en", may be followed by ":" and a split; the
    default is all of "train". A dataset that is missing is downloaded and prepared.
    """
    # The import takes half a second and few runs need it.
    import tensorflow_datasets as tfds

    name, _, split = name.partition(":")
    split = split or "train"
    try:
        builder = tfds.builder(name)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise ValueError(f"no TFDS dataset {name!r}: {str(error).splitlines()[0]}") from None
    specs = builder.info.features.get_tensor_spec()
    if not isinstance(specs, dict) or specs.get("text") != tf.TensorSpec((), tf.string):
        raise ValueError(f"the TFDS dataset {name} has no string feature 'text': choose another")
    prepare_dataset(builder)
    # Keeps the stored order, and never caches the dataset in memory.
    reading = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    with errors_at(f"TFDS dataset {name}, split {split!r}"):
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=reading)
    for example in dataset:
        yield example["text"].numpy()


def prepare_dataset(builder: "tfds.core.DatasetBuilder") -> None:  # noqa: F821
    """Downloads and prepares a TFDS dataset unless it is there."""
    if builder.is_prepared():
        return
    import tensorflow_datasets as tfds

    _check_network(builder)
    if not shows_bars():
        tfds.disable_progress_bar()
    builder.download_and_prepare()


def _check_network(builder: "tfds.core.DatasetBuilder") -> None:  # noqa: F821
    # TFDS itself would try again for more than a minute.
    import requests

    addresses = {urllib.parse.urlsplit(url).netloc: url for url in builder.url_infos or ()}
    for url in addresses.values():
        try:
            requests.head(url, timeout=_SECONDS_TO_ANSWER)
            return
        except requests.RequestException:
            continue
    if addresses:
        raise OSError(
            f"cannot download TFDS {builder.info.full_name}: {', '.join(sorted(addresses))} cannot "
            "be reached: check the network, or name a folder that holds the data"
        )
