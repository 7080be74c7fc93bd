"""Creates the masked-LM and sentence-pair examples that run_pretraining trains on.

  python -m bert_tf.create_pretraining_data --input_file='corpus/*.txt' \\
    --output_file=data/train.tfrecord --num_shards=8 --vocab_file=vocab.txt

The input is text: one sentence a line, a blank line between documents (the end of a file ends its
document, too); or with --split_sentences one paragraph a line. Or JSON lines (*.jsonl) with a field
of text, or a TFDS dataset. Files may be compressed with gzip, bzip2, xz or zstd.

Sentences are gathered into pairs [CLS] A [SEP] B [SEP]; half the time, more often where documents
are short, B is not what follows A but comes from another document. About 15 % of the WordPieces are
chosen to be predicted. dupe_factor such passes over the text, each with other pairs and masks, go
to TFRecord files, and what was made of what to a manifest beside them. The same input, flags and
seed give the same files, byte for byte, with any number of workers. After a failure or a kill the
same command makes only what is missing. --dry_run says beforehand about how long it takes and how
much disk.

Flags, defaults and record format are those of google-research/bert's script of the same name. Its
memory does not grow with the input: bert_tf/pretraining/creation.py says how examples are shuffled.
"""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.examples.beam import BeamRunner
    from bert_tf.examples.creation import Statistics
    from bert_tf.examples.pipeline import Settings
    from bert_tf.examples.work import Work

_RUNNERS = ("local", "DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner")
# A worker takes seconds to start, in which one core makes examples of this much text (each byte
# counted as often as it is worked through).
_BYTES_PER_WORKER = 2**27


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags."""

    input_file: str | None = option(None, help="Text files, comma-separated; globs allowed.")
    tfds: str | None = option(
        None,
        help="In place of --input_file, a TensorFlow Datasets name, such as "
        "wikipedia/20230601.en, whose feature 'text' holds documents.",
    )
    tfds_data_dir: str | None = option(None, help="Where TFDS keeps its data.")
    output_file: str = option(
        help="The TFRecord file to write, or several, comma-separated, or with --num_shards=N the "
        "NAME of NAME-00000-of-0000N and so on."
    )
    num_shards: int | None = option(None, at_least=1, at_most=99999, help="Number of files.")
    vocab_file: str = option(help="The vocabulary (vocab.txt), for instance from build_vocab.")
    do_lower_case: bool = option(True, help="Lower-case the text; for uncased vocabularies.")
    split_sentences: bool = option(
        False, help="Lines are paragraphs: split them into sentences, by the rules of --language."
    )
    language: str = option("en", help="ISO 639 code of the text's language, for splitting.")
    clean: bool | None = option(
        None,
        help="Leave out titles, list items and leftover markup; bert_tf/pretraining/cleaning.py "
        "has the rules. Default: with --split_sentences.",
    )
    json_field: str = option("text", help="The field of JSON lines that holds the text.")
    masking: str | None = option(
        None,
        choices=("wordpiece", "whole_word", "ngram", "span", "entity", "dynamic"),
        help="What is masked: single pieces (the default), whole words, runs of words (ngram as "
        "the Model Garden, span as SpanBERT), words and the phrases of --lexicon_file (entity, as "
        "ERNIE). dynamic: nothing yet; run_pretraining masks anew in every epoch.",
    )
    do_whole_word_mask: bool = option(False, help="The same as --masking=whole_word.")
    max_ngram_size: int | None = option(
        None, at_least=1, help="The longest run of words for --masking=ngram, which it implies: 3."
    )
    lexicon_file: str | None = option(
        None, help="Words and phrases, one a line, that --masking=entity masks as one."
    )
    segmenter: str | None = option(
        None,
        help="What a word is, for masking whole words where the text has no spaces, such as "
        "Chinese: 'whitespace' for text that was segmented before, or MODULE:FUNCTION, from a "
        "string to its words, such as jieba:lcut.",
    )
    objective: str = option(
        "nsp",
        choices=("nsp", "sop", "mlm"),
        help="nsp: is B what follows A, or of another document? sop: or A (sentence order, as "
        "ALBERT)? mlm: no pairs, but one run of whole sentences (as RoBERTa).",
    )
    cross_documents: bool = option(
        True, help="With --objective=mlm: examples go on into the next document, after a [SEP]."
    )
    max_seq_length: int = option(128, help="Pieces of an example, [CLS] and [SEP] counted.")
    max_predictions_per_seq: int = option(20, help="Most pieces to predict in an example.")
    random_seed: int = option(
        12345, at_least=0, help="The same seed and input give the same files."
    )
    dupe_factor: int | None = option(
        None,
        at_least=1,
        help="Passes over the text, each with other pairs and masks. Default: 10, or 1 with "
        "--masking=dynamic.",
    )
    masked_lm_prob: float = option(0.15, help="Share of the pieces to predict.")
    short_seq_prob: float = option(
        0.1, help="Share of the documents cut into shorter examples than max_seq_length."
    )
    gzip_compress: bool = option(False, help="Compress the output with GZIP.")
    use_v2_feature_names: bool = option(
        False, help="Write input_word_ids and input_type_ids for input_ids and segment_ids."
    )
    num_workers: int | None = option(
        None,
        at_least=1,
        help="Processes on this machine. Default: one a core, fewer for little text.",
    )
    runner: str = option(
        "local", choices=_RUNNERS, help="Where the work is done: here, or a runner of Apache Beam."
    )
    beam_options: str | None = option(
        None,
        help="Further options for Beam, such as '--project=P --region=R --temp_location=gs://...'.",
    )
    overwrite: bool = option(False, help="Replace output that was made of something else.")
    dry_run: bool = option(False, help="Only say about how long it takes and how much disk.")


def run(options: Options) -> "Statistics | None":
    """Creates the files and prints statistics; None with --dry_run.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.examples.creation import create
    from bert_tf.examples.estimate import estimate
    from bert_tf.examples.local import LocalRunner
    from bert_tf.examples.report import report
    from bert_tf.workers import Workers

    work = _work(options)
    num_workers = options.num_workers or _num_workers(work)
    if options.dry_run:
        print(estimate(work, num_workers))
        return None
    with Workers(num_workers if options.runner == "local" else 1) as workers:
        runner = LocalRunner(workers) if options.runner == "local" else _beam_runner(options)
        statistics = create(work, _settings(options, work), runner, options.overwrite)
    print(report(statistics, work.settings, work.dupe_factor))
    _print_next(options, work)
    return statistics


def _beam_runner(options: Options) -> "BeamRunner":
    from bert_tf.examples.beam import BeamRunner

    return BeamRunner(options.runner, options.beam_options or "")


def _num_workers(work: "Work") -> int:
    """As many as there are cores, unless starting them took longer than the work."""
    import tensorflow as tf

    from bert_tf.workers import available_cores

    if work.tfds or work.text.split_sentences or work.text.segmenter:
        return available_cores()
    size = sum(tf.io.gfile.stat(file).length for group in work.groups for file in group)
    passes = work.dupe_factor + 2  # Tokenizing takes as long as two.
    return min(available_cores(), 1 + size * passes // _BYTES_PER_WORKER)


def _work(options: Options) -> "Work":
    """What is to be done, once the flags that belong together agree."""
    import tensorflow as tf

    from bert_tf.corpus.sources import group_files
    from bert_tf.examples.creation import work_folder
    from bert_tf.examples.documents import TextSettings
    from bert_tf.examples.plan import block_bytes
    from bert_tf.examples.work import Work
    from tfrecords.reader import expand_files
    from tfrecords.writer import check_output_files

    masking = _masking(options)
    if (options.input_file is None) == (options.tfds is None):
        raise ValueError("give one of --input_file and --tfds")
    if options.lexicon_file and masking not in ("entity", "dynamic"):
        raise ValueError("--lexicon_file is for --masking=entity and --masking=dynamic")
    input_files = expand_files(options.input_file) if options.input_file else []
    output_files = _output_files(options)
    others = [name for name in (options.vocab_file, options.lexicon_file) if name]
    check_output_files(output_files, [*input_files, *others])
    dupe_factor = options.dupe_factor or (1 if masking == "dynamic" else 10)
    clean = options.split_sentences if options.clean is None else options.clean
    # Of a TFDS dataset the size is not known; most are large.
    size = sum(tf.io.gfile.stat(file).length for file in input_files) if input_files else 2**40
    size_of_block = block_bytes(size, dupe_factor, len(output_files))
    groups = group_files(input_files, size_of_block) if input_files else [[]]
    return Work(
        folder=work_folder(output_files[0]),
        groups=tuple(map(tuple, groups)),
        tfds=options.tfds,
        tfds_dir=options.tfds_data_dir,
        block_bytes=size_of_block,
        text=TextSettings(
            json_field=options.json_field,
            split_sentences=options.split_sentences,
            language=options.language,
            clean=clean,
            segmenter=options.segmenter,
            lexicon=_lexicon(options.lexicon_file),
        ),
        lower_case=options.do_lower_case,
        settings=_example_settings(options, masking),
        dupe_factor=dupe_factor,
        seed=options.random_seed,
        output_files=tuple(output_files),
        compression="GZIP" if options.gzip_compress else "",
        original_names=not options.use_v2_feature_names,
    )


def _example_settings(options: Options, masking: str) -> "Settings":
    from bert_tf.examples.pipeline import Settings
    from tfrecords.vocabulary import load_vocab

    return Settings(
        vocab=load_vocab(options.vocab_file),
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        masked_lm_prob=options.masked_lm_prob,
        short_seq_prob=options.short_seq_prob,
        masking=masking,
        max_ngram_size=options.max_ngram_size or 3,
        objective=options.objective,
        cross_documents=options.cross_documents,
    )


def _masking(options: Options) -> str:
    """The kind of masking that three flags ask for."""
    asked = options.masking
    for kind, flag, is_implied in (
        ("ngram", "max_ngram_size", options.max_ngram_size is not None),
        ("whole_word", "do_whole_word_mask", options.do_whole_word_mask),
    ):
        # The Model Garden's script wants --do_whole_word_mask with --max_ngram_size.
        if is_implied and asked is None:
            asked = kind
        elif is_implied and asked != kind and not (kind == "whole_word" and asked == "ngram"):
            raise ValueError(f"--masking={asked} and --{flag} contradict each other")
    return asked or "wordpiece"


def _output_files(options: Options) -> list[str]:
    names = [name.strip() for name in options.output_file.split(",") if name.strip()]
    if options.num_shards is None:
        return names
    if len(names) != 1:
        raise ValueError("--num_shards needs one name as --output_file")
    count = options.num_shards
    return [f"{names[0]}-{shard:05}-of-{count:05}" for shard in range(count)]


def _lexicon(file: str | None) -> tuple[str, ...]:
    import tensorflow as tf

    if file is None:
        return ()
    try:
        with tf.io.gfile.GFile(file) as stream:
            phrases = [line.strip() for line in stream.read().split("\n")]
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise OSError(f"cannot read the lexicon {file}: {error}") from None
    if not any(phrases):
        raise ValueError(f"the lexicon {file} is empty")
    return tuple(filter(None, dict.fromkeys(phrases)))


def _settings(options: Options, work: "Work") -> dict[str, object]:
    """What the output depends on besides the input, by the names of the flags."""
    from tfrecords.manifest import lines_sha256

    made = {
        name: getattr(options, name)
        for name in (
            "tfds",
            "split_sentences",
            "language",
            "json_field",
            "segmenter",
            "do_lower_case",
            "objective",
            "cross_documents",
            "max_seq_length",
            "max_predictions_per_seq",
            "random_seed",
            "masked_lm_prob",
            "short_seq_prob",
            "gzip_compress",
            "use_v2_feature_names",
        )
    }
    return made | {
        "clean": work.text.clean,
        "masking": work.settings.masking,
        "max_ngram_size": work.settings.max_ngram_size,
        "dupe_factor": work.dupe_factor,
        "output_file": [work.name_in_manifest(shard) for shard in range(len(work.output_files))],
        "vocab_file": lines_sha256(work.settings.vocab.tokens),
        "lexicon_file": lines_sha256(work.text.lexicon),
    }


def _print_next(options: Options, work: "Work") -> None:
    from tfrecords.manifest import manifest_path

    files = work.output_files
    shown = files[0] if len(files) == 1 else f"{files[0]} ... {files[-1]}"
    names = shlex.quote(f"{options.output_file}-*" if options.num_shards else options.output_file)
    vocab = shlex.quote(options.vocab_file)
    print(
        f"Wrote {shown} and {manifest_path(files[0])}.\n"
        "Next, to look at them, then to train:\n"
        f"  python -m tfrecords.inspect --input_file={names} --vocab_file={vocab}\n"
        f"  python -m bert_tf.run_pretraining --input_file={names} --vocab_file={vocab} "
        f"--max_seq_length={options.max_seq_length} "
        f"--max_predictions_per_seq={options.max_predictions_per_seq} --preset=base --do_train "
        "--do_eval --output_dir=OUTPUT_DIR"
    )


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
