"""Describes the text and the examples of data creation, with warnings; estimates what they take."""

import itertools
import time
from dataclasses import replace

import tensorflow as tf

from bert_tf.base.command_help import command_line, python_call, unused_name
from bert_tf.base.content import describe_problems
from bert_tf.base.progress import counted, duration, for_caller
from bert_tf.config import suggest_start
from bert_tf.corpus.sources import estimate_bytes
from bert_tf.examples.chunk import Chunk, CreationStatistics, ExampleCounts, TextCounts
from bert_tf.examples.documents import make_chunk
from bert_tf.examples.job import Job
from bert_tf.examples.steps import make_examples, pass_seed
from bert_tf.text.sentencepiece import make_tokenizer
from tfrecords.features import serialize_examples
from tfrecords.records import FRAME_BYTES
from tfrecords.statistics import label_warning
from tfrecords.vocabulary import describe_long_words

# A larger share of [UNK] suggests a wrong vocabulary.
_MAX_UNKNOWN = 0.1
# Larger shares of the text that are lost suggest other flags.
_MAX_LOST = 0.1
# Pairs are cut in mid-sentence, which drops about 15% at a length of 64, and 7% at 128.
_MAX_TRUNCATED = 0.2
# Below this share of wrapped lines, most lines are sentences or paragraphs.
_MIN_WRAPPED = 0.4
LONGER_DOCUMENTS = (
    "In text files, --document_separator says what separates documents, by default a blank line; "
    "--split_sentences splits lines that hold several sentences."
)
_SAMPLES = 8


def text_report(text: TextCounts, job: Job) -> str:
    """Returns the counts of the text as readable lines, with the warnings."""
    lines = [
        f"Read {text.documents:,} documents, {text.sentences:,} sentences, {text.tokens:,} tokens "
        f"({text.unknown_tokens / text.tokens:.3%} [UNK])."
    ]
    if text.left_out:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in text.left_out.items())
        lines.append(f"Cleaning dropped lines or sentences: {rules}.")
    if text.empty_documents or text.empty_sentences:
        lines.append(
            f"Skipped {text.empty_sentences:,} lines and {text.empty_documents:,} documents "
            "without tokens."
        )
    return "\n".join([*lines, *text_warnings(text, job)])


def text_warnings(text: TextCounts, job: Job) -> list[str]:
    """Returns warnings about the text, or about flags that do not suit it."""
    lines = describe_problems(job.input_files, text.invalid_lines)
    if long := describe_long_words(text.long_word_characters, text.characters):
        lines += long
    elif text.unknown_tokens > _MAX_UNKNOWN * text.tokens:
        lines.append(
            "WARNING: with so many [UNK], there is little to learn. Check that the vocabulary is "
            "for this language and that --do_lower_case matches the vocabulary."
        )
    if text.wrapped_lines > _MIN_WRAPPED * text.lines:
        lines.append(
            f"WARNING: the text is hard-wrapped: {text.wrapped_lines:,} of {text.lines:,} lines "
            "are full and end in mid-sentence. Every line was read as a sentence or paragraph, "
            f"which made {text.documents:,} documents of {len(job.input_files):,} files. --unwrap "
            "joins the lines of each paragraph and reads each file as one document."
        )
    if text.left_out_characters > _MAX_LOST * text.characters:
        share = text.left_out_characters / text.characters
        lines.append(
            f"WARNING: cleaning dropped {share:.1%} of the text ({text.left_out_characters:,} of "
            f"{text.characters:,} characters). --noclean keeps everything."
        )
    files, separator = len(job.input_files), job.options.document_separator
    if separator not in ("blank_line", "file") and text.documents <= files:
        lines.append(
            f"WARNING: --document_separator={separator} divides no file: each of the {files:,} "
            "files was read as one document."
        )
    if problem := _pair_problem(text, job):
        lines.append(f"WARNING: {problem} --objective=mlm needs no pairs of sentences.")
    return lines


def _pair_problem(text: TextCounts, job: Job) -> str | None:
    """Returns why the documents yield few pairs of sentences, or only one kind of pair."""
    if job.options.objective == "nsp" and text.documents == 1:
        return (
            "the text is one document, so there are no random next segments, and the next-sentence "
            "task teaches nothing. In text files, --document_separator says what separates "
            "documents."
        )
    if job.options.objective != "mlm" and text.single_sentences > text.documents / 2:
        return (
            f"{text.single_sentences:,} of {text.documents:,} documents are a single sentence, "
            f"which has no next one. {LONGER_DOCUMENTS}"
        )
    return None


def example_report(statistics: CreationStatistics, job: Job) -> str:
    """Returns the statistics of the examples as readable lines, with the warnings."""
    examples, options = statistics.examples, job.options
    fill = examples.tokens / examples.examples / options.max_seq_length
    predictions = f"{examples.predictions / examples.examples:.2f} predictions each"
    if options.masking == "dynamic":
        predictions = "to be masked while reading"
    labels = {
        "nsp": f", {examples.random_next / examples.examples:.1%} with a random next segment",
        "sop": f", {examples.swapped / examples.examples:.1%} with swapped segments",
        "mlm": "",
    }
    lines = [
        f"Created {examples.examples:,} examples (--dupe_factor={options.dupe_factor}), "
        f"{fill:.1%} of --max_seq_length filled, {predictions}{labels[options.objective]}."
    ]
    lost = examples.cut_tokens / (examples.tokens + examples.cut_tokens)
    if options.objective == "mlm":
        lines.append(
            f"Split {examples.cut_sentences:,} sentences that are longer than an example, without "
            "losing a token."
        )
    else:
        lines.append(
            f"Truncated {examples.cut_pairs:,} pairs by {examples.cut_tokens:,} tokens ({lost:.1%} "
            f"of all passes). {statistics.long_sentences:,} sentences are longer than an example."
        )
    if lost > _MAX_TRUNCATED:
        lines.append(
            f"WARNING: truncation dropped {lost:.1%} of the tokens. --split_sentences splits "
            "paragraphs, a longer --max_seq_length truncates less, and --objective=mlm nothing."
        )
    if examples.documents_without_pairs:
        lines.append(
            f"Skipped documents of one sentence, which have no second segment, "
            f"{examples.documents_without_pairs:,} times."
        )
    return "\n".join([*lines, *label_warnings(examples, statistics.text, job)])


def label_warnings(examples: ExampleCounts, text: TextCounts, job: Job) -> list[str]:
    """Returns a warning if nearly all pairs are of one kind."""
    # `text_warnings` has said it of a text of one document.
    if job.options.objective == "mlm" or text.documents == 1:
        return []
    positive = examples.random_next + examples.swapped
    warning = label_warning(positive, examples.examples, "the examples")
    return [warning] if warning else []


def next_steps(job: Job, input_file: str, num_examples: int) -> str:
    """Describes which commands to run next; `input_file` names the output files, or is a glob."""
    # The fastest of this machine.
    found = {device.device_type for device in tf.config.list_physical_devices()}
    device = next(kind for kind in ("TPU", "GPU", "CPU") if kind in found)
    once = num_examples // job.options.dupe_factor
    start = suggest_start(once, job.options.max_seq_length, device)
    inspect = command_line("tfrecords.inspect", input_file=input_file)
    strategy = "tpu" if device == "TPU" else None
    flags = dict(input_file=input_file, **start._asdict(), strategy=strategy)
    does = dict(do_train=True, do_eval=True, output_dir=unused_name("run"))
    train = command_line("bert_tf.run_pretraining", **flags, **does)
    call = python_call("pretrain", **flags, output_dir=does["output_dir"])
    end = f"suit this amount of text and a {device}; training says how long it will take."
    return for_caller(
        f"Next, inspect the examples and train on them:\n  {inspect}\n  {train}\nThe flags {end}",
        f"Next, train on the examples:\n  {call}\nThe settings {end}",
    )


def estimate(job: Job, num_workers: int) -> str:
    """Describes the time and disk space that a job would take, after a pass over eight blocks."""
    chunks, text, tokenizing = _tokenize(job)
    started = time.process_time()
    examples, record_bytes = _make_examples(job, chunks)
    making = time.process_time() - started
    total = max(estimate_bytes(job.input_files, job.options.text_field), text.bytes)
    dupe_factor = job.options.dupe_factor
    scale = total / text.bytes
    passes = scale * dupe_factor
    seconds = (scale * tokenizing + passes * making) / num_workers
    num_files = len(job.output_files)
    disk = passes * record_bytes
    scope = " (the size of a TFDS dataset is unknown: all figures are for the sample)"
    return "\n".join(
        [
            f"Sample: {text.bytes / 1e6:.1f} MB of about {total / 1e6:,.1f} MB of text"
            f"{scope if job.options.tfds else ''}, {text.documents:,} documents, "
            f"{text.unknown_tokens / text.tokens:.3%} [UNK].",
            f"Output: about {text.tokens * scale:,.0f} tokens of text and, with "
            f"--dupe_factor={dupe_factor}, {examples.examples * passes:,.0f} examples in "
            f"{counted(num_files, 'file')} of {disk / num_files / 1e6:,.1f} MB.",
            f"Time: about {duration(max(2, seconds))} with --num_workers={num_workers}.",
            f"Disk: {disk / 1e6:,.0f} MB, and up to {(disk + 3 * total) / 1e6:,.0f} MB more while "
            "the job runs.",
            *text_warnings(text, job),
            *label_warnings(examples, text, job),
            "Nothing was written (--dry_run).",
        ]
    )


def _tokenize(job: Job) -> tuple[list[Chunk], TextCounts, float]:
    """Returns the chunks of a sample, their counts and the seconds that they took on one core."""
    tokenizer = make_tokenizer(job.vocab, job.options.do_lower_case)
    groups = range(0, len(job.groups), max(1, len(job.groups) // _SAMPLES))[:_SAMPLES]
    each = _SAMPLES // len(groups)
    blocks = [block for group in groups for block in itertools.islice(job.blocks(group), each)]
    if not blocks:
        raise ValueError(f"no text in {job.source}")
    # The first call traces the tokenizer's graph, which must not count.
    # Of whole lines, because part of a line is not JSON.
    end = blocks[0].data.find(b"\n", 10_000) + 1
    warm_up = replace(blocks[0], data=blocks[0].data[: end or None])
    make_chunk(warm_up, tokenizer, job.options, job.lexicon)
    started = time.process_time()
    made = [make_chunk(block, tokenizer, job.options, job.lexicon) for block in blocks]
    seconds = time.process_time() - started
    chunks = [chunk for chunk, _ in made if chunk.num_documents]
    if not chunks:
        raise ValueError(f"no text in the first blocks of {job.source}")
    return chunks, sum((counts for _, counts in made), TextCounts()), seconds


def _make_examples(job: Job, chunks: list[Chunk]) -> tuple[ExampleCounts, int]:
    """Makes one pass over the chunks; returns the counts and the size of the records on disk."""
    counts, size = ExampleCounts(), 0
    for index, chunk in enumerate(chunks):
        partner = chunks[index - 1] if len(chunks) > 1 else None
        arrays, chunk_counts = make_examples(
            chunk, partner, pass_seed(0, index, 0), job.options, job.vocab
        )
        size += sum(len(record) + FRAME_BYTES for record in serialize_examples(arrays))
        counts += chunk_counts
    return counts, size
