"""Describes the examples that data creation made, and what to do with them."""

import tensorflow as tf

from bert_tf.examples.creation import CreationStatistics
from bert_tf.examples.job import Job
from bert_tf.examples.text_report import MAX_LOST, label_warnings
from bert_tf.presets import suggest_start
from tfrecords.command_line import command_line, unused_name
from tfrecords.manifest import manifest_path


def example_report(statistics: CreationStatistics, job: Job) -> str:
    """Returns the statistics of the examples as readable lines."""
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
    return "\n".join([*lines, *label_warnings(examples, statistics.text, job)])


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
    start = suggest_start(num_examples // job.dupe_factor, job.examples.max_seq_length, device)
    inspect = command_line("tfrecords.inspect", input_file=input_file)
    train = command_line(
        "bert_tf.run_pretraining",
        input_file=input_file,
        **start._asdict(),
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
    if lost > MAX_LOST:
        split = "" if job.text.split_sentences else "--split_sentences divides paragraphs. "
        lines.append(
            f"WARNING: truncation dropped {lost:.1%} of the tokens. {split}A longer "
            "--max_seq_length cuts less, and --objective=mlm cuts nothing."
        )
    return lines
