"""Describes in words what data creation read and created."""

import tensorflow as tf

from bert_tf.corpus.problems import describe_problems
from bert_tf.examples.creation import CreationStatistics
from bert_tf.examples.documents import TextCounts
from bert_tf.examples.job import Job
from bert_tf.presets import suggest_recipe
from tfrecords.command_line import command_line, unused_name
from tfrecords.manifest import manifest_path

# A larger share of [UNK] suggests a wrong vocabulary.
_MAX_UNKNOWN = 0.1
# Larger shares of the text that are lost suggest other flags.
_MAX_LOST = 0.1
# Below this share of wrapped lines, most lines are sentences or paragraphs.
_MIN_WRAPPED = 0.4


def report(statistics: CreationStatistics, job: Job) -> str:
    """Returns the statistics as readable lines."""
    return "\n".join([*_text_lines(statistics, job), *_example_lines(statistics, job)])


def written(job: Job) -> str:
    """Names the files that were written."""
    first, *others = job.output_files
    files = f"{first} ... {others[-1]}" if others else first
    return f"Wrote {files} and {manifest_path(first)}."


def next_steps(job: Job, input_file: str, num_examples: int) -> str:
    """Describes which commands to run next.

    Args:
        job: the finished job.
        input_file: the names or the glob of the output files.
        num_examples: the number of examples in them.
    """
    device = _device_type()
    recipe = suggest_recipe(num_examples // job.dupe_factor, job.examples.max_seq_length, device)
    inspect = command_line("tfrecords.inspect", input_file=input_file)
    train = command_line(
        "bert_tf.run_pretraining",
        input_file=input_file,
        **recipe._asdict(),
        strategy="tpu" if device == "TPU" else None,
        do_train=True,
        do_eval=True,
        output_dir=unused_name("run"),
    )
    return (
        f"Next, inspect the examples and train on them:\n  {inspect}\n  {train}\n"
        f"The flags suit this amount of text and a {device}; training says how long it will take."
    )


def _device_type() -> str:
    """Returns the kind of the fastest devices of this machine."""
    found = {device.device_type for device in tf.config.list_physical_devices()}
    return next(kind for kind in ("TPU", "GPU", "CPU") if kind in found)


def _text_lines(statistics: CreationStatistics, job: Job) -> list[str]:
    text = statistics.text
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
    return [*lines, *text_warnings(text, job)]


def text_warnings(text: TextCounts, job: Job) -> list[str]:
    """Returns warnings about the text, or about flags that do not suit it."""
    lines = describe_problems(job.input_files, text.invalid_lines)
    if text.unknown_tokens > _MAX_UNKNOWN * text.tokens:
        lines.append(
            "WARNING: so many [UNK] leave little to learn. Check that the vocabulary is for this "
            "language and that --do_lower_case matches the vocabulary."
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
    return [*lines, *_document_warnings(text, job)]


def _document_warnings(text: TextCounts, job: Job) -> list[str]:
    lines = []
    separator = job.text.layout.document_separator
    files = len(job.input_files)
    if separator not in ("blank_line", "file") and text.documents <= files:
        lines.append(
            f"WARNING: --document_separator={separator} divides no file: each of the {files:,} "
            "files was read as one document."
        )
    if text.documents == 1 and job.examples.objective == "nsp":
        lines.append(
            "WARNING: the text is one document, so there are no random next segments, and the "
            "next-sentence task teaches nothing. Put blank lines between documents, or name what "
            "separates them with --document_separator."
        )
    return lines


def _example_lines(statistics: CreationStatistics, job: Job) -> list[str]:
    examples, settings = statistics.examples, job.examples
    fill = examples.tokens / examples.examples / settings.max_seq_length
    predictions = f"{examples.predictions / examples.examples:.2f} predictions each"
    if settings.masking == "dynamic":
        predictions = "to be masked while reading"
    labels = {
        "nsp": f", {examples.random_next / examples.examples:.1%} with a random next segment",
        "sop": f", {examples.swapped / examples.examples:.1%} with swapped segments",
        "mlm": "",
    }
    lines = [
        f"Created {examples.examples:,} examples (--dupe_factor={job.dupe_factor}), {fill:.1%} of "
        f"--max_seq_length filled, {predictions}{labels[settings.objective]}."
    ]
    lines += _truncation_lines(statistics, job)
    if examples.documents_without_pairs:
        lines.append(
            f"Skipped one-sentence documents without a second segment "
            f"{examples.documents_without_pairs:,} times."
        )
    return lines


def _truncation_lines(statistics: CreationStatistics, job: Job) -> list[str]:
    examples = statistics.examples
    if job.examples.objective == "mlm":
        return [
            f"Divided {examples.cut_sentences:,} sentences that are longer than an example, "
            "without losing a token."
        ]
    lost = examples.cut_tokens / (examples.tokens + examples.cut_tokens)
    lines = [
        f"Truncated {examples.cut_pairs:,} pairs by {examples.cut_tokens:,} tokens ({lost:.1%} "
        f"of all passes). {statistics.long_sentences:,} sentences are longer than an example."
    ]
    if lost > _MAX_LOST:
        split = "" if job.text.split_sentences else "--split_sentences divides paragraphs. "
        lines.append(
            f"WARNING: truncation dropped {lost:.1%} of the tokens. {split}A longer "
            "--max_seq_length cuts less, and --objective=mlm cuts nothing."
        )
    return lines
