"""Describes the text that data creation read, and warns of problems with it."""

from bert_tf.corpus.problems import describe_problems
from bert_tf.corpus.sources import is_json
from bert_tf.examples.documents import TextCounts
from bert_tf.examples.job import Job
from bert_tf.examples.pipeline import ExampleCounts
from tfrecords.statistics import label_warning

# A larger share of [UNK] suggests a wrong vocabulary.
_MAX_UNKNOWN = 0.1
# Larger shares of the text that are lost suggest other flags.
MAX_LOST = 0.1
# Below this share of wrapped lines, most lines are sentences or paragraphs.
_MIN_WRAPPED = 0.4


def text_report(text: TextCounts, job: Job) -> str:
    """Returns the counts as readable lines, with the warnings."""
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
    if text.left_out_characters > MAX_LOST * text.characters:
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
    return [*lines, *_pair_warnings(text, job)]


def _pair_warnings(text: TextCounts, job: Job) -> list[str]:
    """Returns a warning if the documents yield few pairs of sentences, or only one kind of pair."""
    objective, single = job.examples.objective, text.single_sentences
    few = f"{single:,} of {text.documents:,} documents are a single sentence"
    if objective == "nsp" and text.documents == 1:
        problem = (
            "the text is one document, so there are no random next segments, and the next-sentence "
            f"task teaches nothing.{_more_documents(job)}"
        )
    elif objective == "nsp" and single > text.documents / 2:
        problem = f"{few}, which only random segments follow.{longer_documents(text, job)}"
    elif objective == "sop" and single > MAX_LOST * text.sentences:
        problem = f"{few}, so they have no order and are left out.{longer_documents(text, job)}"
    else:
        return []
    return [f"WARNING: {problem} --objective=mlm needs no pairs of sentences."]


def label_warnings(examples: ExampleCounts, text: TextCounts, job: Job) -> list[str]:
    """Returns a warning if nearly all pairs are of one kind."""
    # `text_warnings` has said it of a text of one document.
    if job.examples.objective == "mlm" or text.documents == 1:
        return []
    positive = examples.random_next + examples.swapped
    warning = label_warning(positive, examples.examples, "the examples")
    return [warning] if warning else []


def _blank_lines_count(job: Job) -> bool:
    """Returns whether blank lines end documents."""
    separator = job.text.layout.document_separator
    return separator == "blank_line" and not all(map(is_json, job.input_files))


def _more_documents(job: Job) -> str:
    """Returns advice on making several documents of one."""
    if all(map(is_json, job.input_files)):
        return ""
    blank = ", or put blank lines between them" if _blank_lines_count(job) else ""
    return f" Name what separates documents with --document_separator{blank}."


def longer_documents(text: TextCounts, job: Job) -> str:
    """Returns advice on making documents of several sentences."""
    advice = ""
    # Files of one line each have no blank lines.
    if _blank_lines_count(job) and text.documents > len(job.input_files):
        lines = "every line" if text.single_sentences == text.documents else "many lines"
        advice += (
            f" A blank line, which ends a document, follows {lines}: remove those between lines "
            "that belong together."
        )
    if not job.text.split_sentences:
        advice += " --split_sentences divides lines that hold several sentences."
    return advice
