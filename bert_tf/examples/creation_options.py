"""The flags of create_pretraining_data.

Flags that google-research/bert's script of the same name has keep their names and defaults.
"""

from dataclasses import dataclass

from bert_tf.base.choices import MASKINGS, OBJECTIVES, PAIR_LENGTH, SEED, SHARE, TOKENS
from bert_tf.base.command import option, rare_option
from bert_tf.base.common_options import RunnerOptions
from bert_tf.corpus.corpus_options import CorpusOptions


@dataclass(frozen=True, kw_only=True)
class DataOptions(CorpusOptions, RunnerOptions):
    """Which examples to create from which text, in which files, and where the work runs."""

    output_file: str = option(
        help="The TFRecord file to write, or several, comma-separated, to share the examples. "
        "With --num_shards=N, NAME stands for NAME-00000-of-0000N and so on."
    )
    # Manifests list the files, and the masking.
    num_shards: int | None = option(
        None, "The number of output files.", at_least=1, at_most=99999, role="place"
    )
    vocab_file: str = option(help="The vocabulary (vocab.txt), published or from build_vocab.")
    do_lower_case: bool | None = option(
        None,
        "Lower-case the text and strip accents. Turn it off for cased vocabularies. Default: "
        "what a tokenizer_config.json beside vocab.txt says, else true.",
    )
    masking: str | None = option(
        None,
        "What to mask. wordpiece (the default): single tokens. whole_word: words. ngram: "
        "runs of words as in the Model Garden. span: runs of words as in SpanBERT. entity: words "
        "and the phrases of --lexicon_file as in ERNIE. dynamic: nothing yet; run_pretraining "
        "masks differently in every epoch, and the records are a tenth of the size.",
        choices=MASKINGS,
    )
    do_whole_word_mask: bool = rare_option(False, "Same as --masking=whole_word.", role="place")
    max_ngram_size: int | None = rare_option(
        None,
        "The longest n-gram for --masking=ngram, which it implies. Default: 3.",
        at_least=1,
        at_most=32,
    )
    lexicon_file: str | None = rare_option(
        None,
        "Words and phrases, one per line, that are masked as a whole.",
        needs=("masking=entity or masking=dynamic",),
    )
    segmenter: str | None = rare_option(
        None,
        "What counts as a word in text without spaces, such as Chinese: MODULE:FUNCTION of a "
        "function from a string to its words, such as jieba:lcut, or 'whitespace' for text that is "
        "already segmented.",
        instead_of=("masking=wordpiece",),
    )
    objective: str = option(
        "nsp",
        "nsp: does B follow A, or come from another document (BERT)? sop: are A and B in "
        "order, or swapped (ALBERT)? mlm: no pairs, but whole sentences up to max_seq_length "
        "(RoBERTa).",
        choices=OBJECTIVES,
    )
    cross_documents: bool = rare_option(
        True,
        "Examples continue in the next document, after a [SEP].",
        needs=("objective=mlm",),
    )
    max_seq_length: int = option(
        128, "Tokens per example, including [CLS] and [SEP].", **PAIR_LENGTH
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of predictions per example.", **TOKENS
    )
    random_seed: int = rare_option(12345, "The same seed and input give the same files.", **SEED)
    dupe_factor: int | None = option(
        None,
        "Passes over the text, each with different pairs and masks. Default: 10, or 1 with "
        "--masking=dynamic.",
        at_least=1,
        at_most=1_000_000,
    )
    masked_lm_prob: float = rare_option(
        0.15, "Share of the tokens to predict.", at_least=1e-6, at_most=1
    )
    short_seq_prob: float = rare_option(
        0.1, "Share of the documents with examples shorter than max_seq_length.", **SHARE
    )
    gzip_compress: bool = rare_option(False, "Compress the output with gzip.")
    use_v2_feature_names: bool = rare_option(
        False,
        "Name features as the Model Garden does: input_word_ids and input_type_ids in place "
        "of input_ids and segment_ids.",
    )
    dry_run: bool = option(False, "Only estimate the time and the disk space.", role="place")
