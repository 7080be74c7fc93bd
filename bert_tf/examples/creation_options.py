"""The flags of create_pretraining_data.

Flags that google-research/bert's script of the same name has keep their names and defaults.
"""

from dataclasses import dataclass

from bert_tf.choices import MASKINGS, OBJECTIVES, PAIR_LENGTH, SEED, SHARE, TOKENS, WORKERS
from tfrecords import command
from tfrecords.command import option

_RUNNERS = ("local", "DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner")


@dataclass(frozen=True, kw_only=True)
class DataOptions(command.Options):
    """Which examples to create from which text, in which files, and where the work runs."""

    input_file: str | None = option(
        None, help="Text files, comma-separated; globs allowed, in quotes."
    )
    tfds: str | None = option(
        None,
        help="Instead of --input_file, the name of a TensorFlow Datasets dataset whose feature "
        "'text' holds documents, such as wikipedia/20230601.en, optionally with ':' and a split.",
    )
    tfds_data_dir: str | None = option(
        None, help="TFDS's data folder. Default: TFDS's own.", rare=True
    )
    output_file: str = option(
        help="The TFRecord file to write. Several comma-separated names divide the examples among "
        "them; with --num_shards=N, NAME stands for NAME-00000-of-0000N and so on."
    )
    num_shards: int | None = option(
        None, at_least=1, at_most=99999, help="The number of output files."
    )
    vocab_file: str = option(help="The vocabulary (vocab.txt), published or from build_vocab.")
    do_lower_case: bool | None = option(
        None,
        help="Lower-case the text and strip accents. Turn it off for cased vocabularies. Default: "
        "what a tokenizer_config.json beside vocab.txt says, else true.",
    )
    document_separator: str | None = option(
        None,
        help="What separates documents in text files: blank_line (the default); file, which makes "
        "each file one document (the default with --unwrap); or a regular expression such as "
        "'^CHAPTER ', where each line that contains a match begins a document. A line that matches "
        "as a whole only separates documents and is left out.",
        rare=True,
    )
    unwrap: bool = option(
        False,
        help="Join the lines of each paragraph and split it into sentences by the rules of "
        "--language: for text that is broken into lines of a fixed width, such as books of Project "
        "Gutenberg and mail. Verse, tables and list items keep their lines.",
    )
    split_sentences: bool = option(
        False, help="Lines are paragraphs: split them into sentences by the rules of --language."
    )
    language: str | None = option(
        None,
        help="ISO 639 code of the text's language, for --split_sentences and --unwrap. Default: "
        "en.",
        rare=True,
    )
    clean: bool | None = option(
        None,
        help="Drop titles, list items and leftover markup; docs/data.md lists the rules. Default: "
        "only with --split_sentences and without --unwrap.",
        rare=True,
    )
    json_field: str | None = option(
        None, help="The field of JSON lines that holds the text. Default: text.", rare=True
    )
    masking: str | None = option(
        None,
        choices=MASKINGS,
        help="What to mask. wordpiece (the default): single tokens. whole_word: words. ngram: "
        "runs of words as in the Model Garden. span: runs of words as in SpanBERT. entity: words "
        "and the phrases of --lexicon_file as in ERNIE. dynamic: nothing yet; run_pretraining "
        "masks differently in every epoch, and the records are a tenth of the size.",
    )
    do_whole_word_mask: bool = option(False, help="Same as --masking=whole_word.", rare=True)
    max_ngram_size: int | None = option(
        None,
        at_least=1,
        at_most=32,
        help="The longest n-gram for --masking=ngram, which it implies. Default: 3.",
        rare=True,
    )
    lexicon_file: str | None = option(
        None,
        help="Words and phrases, one per line, that --masking=entity masks as a whole.",
        rare=True,
    )
    segmenter: str | None = option(
        None,
        help="What counts as a word in text without spaces, such as Chinese: MODULE:FUNCTION of a "
        "function from a string to its words, such as jieba:lcut, or 'whitespace' for text that is "
        "already segmented.",
        rare=True,
    )
    objective: str = option(
        "nsp",
        choices=OBJECTIVES,
        help="nsp: does B follow A, or come from another document (BERT)? sop: are A and B in "
        "order, or swapped (ALBERT)? mlm: no pairs, but whole sentences up to max_seq_length "
        "(RoBERTa).",
    )
    cross_documents: bool | None = option(
        None,
        help="With --objective=mlm, examples continue in the next document, after a [SEP]. "
        "Default: true.",
        rare=True,
    )
    max_seq_length: int = option(
        128, **PAIR_LENGTH, help="Tokens per example, including [CLS] and [SEP]."
    )
    max_predictions_per_seq: int = option(
        20, **TOKENS, help="Maximum number of predictions per example."
    )
    random_seed: int = option(
        12345,
        **SEED,
        aliases=("seed",),
        help="The same seed and input give the same files.",
        rare=True,
    )
    dupe_factor: int | None = option(
        None,
        at_least=1,
        at_most=1_000_000,
        help="Passes over the text, each with different pairs and masks. Default: 10, or 1 with "
        "--masking=dynamic.",
    )
    masked_lm_prob: float = option(
        0.15, at_least=1e-6, at_most=1, help="Share of the tokens to predict.", rare=True
    )
    short_seq_prob: float = option(
        0.1,
        **SHARE,
        help="Share of the documents with examples shorter than max_seq_length.",
        rare=True,
    )
    gzip_compress: bool = option(False, help="Compress the output with gzip.", rare=True)
    use_v2_feature_names: bool = option(
        False,
        help="Name features as the Model Garden does: input_word_ids and input_type_ids in place "
        "of input_ids and segment_ids.",
        rare=True,
    )
    num_workers: int | None = option(
        None,
        **WORKERS,
        help="Number of processes. Default: one per core, fewer for small inputs.",
        rare=True,
    )
    runner: str = option(
        "local",
        choices=_RUNNERS,
        help="Where the work runs: on this machine, or on a runner of Apache Beam.",
        rare=True,
    )
    beam_options: str | None = option(
        None,
        help="Further Beam options, such as '--project=P --region=R --temp_location=gs://...'.",
        rare=True,
    )
    overwrite: bool = option(
        False, help="Replace output that was created with other settings or from other input."
    )
    dry_run: bool = option(False, help="Only estimate the time and the disk space.")
