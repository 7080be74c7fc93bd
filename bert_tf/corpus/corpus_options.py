"""The flags of all commands that read text to train on."""

import dataclasses
from dataclasses import dataclass
from typing import Self

from bert_tf.base import command
from bert_tf.base.command import option, rare_option


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(command.Options):
    """Which text to read, and what a document and a sentence are in it."""

    input_file: str | None = option(
        None,
        "Text files, comma-separated; globs allowed, in quotes. From the Hugging Face Hub: "
        "'hf:datasets/wikimedia/wikipedia/20231101.en/*.parquet'.",
        role="place",
    )
    tfds: str | None = option(
        None,
        "Instead of --input_file, the name of a TensorFlow Datasets dataset whose feature "
        "'text' holds documents, such as wikipedia/20230601.en, optionally with ':' and a split. "
        "TFDS keeps its data in $TFDS_DATA_DIR.",
    )
    document_separator: str | None = rare_option(
        None,
        "What separates documents in text files: blank_line (the default); file, which makes "
        "each file one document (the default with --unwrap); or a regular expression such as "
        "'^CHAPTER ', where each line that contains a match begins a document. A line that matches "
        "as a whole only separates documents and is left out.",
    )
    unwrap: bool = option(
        False,
        "Join the lines of each paragraph and split it into sentences by the rules of "
        "--language: for text that is broken into lines of a fixed width, such as books of Project "
        "Gutenberg and mail. Verse, tables and list items keep their lines.",
    )
    split_sentences: bool = option(
        False, "Lines are paragraphs: split them into sentences by the rules of --language."
    )
    language: str = rare_option(
        "en", "ISO 639 code of the text's language.", needs=("split_sentences or unwrap",)
    )
    clean: bool | None = rare_option(
        None,
        "Drop titles, list items and leftover markup; docs/data.md lists the rules. Default: "
        "only with --split_sentences and without --unwrap.",
    )
    text_field: str = rare_option(
        "text",
        "The field of JSON lines, or the column of Parquet files, that holds the text.",
    )

    def with_corpus_defaults(self) -> Self:
        """Resolves the defaults that depend on other flags."""
        splits, unwrap = self.split_sentences, self.unwrap
        return dataclasses.replace(
            self,
            document_separator=self.document_separator or ("file" if unwrap else "blank_line"),
            split_sentences=splits or unwrap,
            clean=splits and not unwrap if self.clean is None else self.clean,
        )
