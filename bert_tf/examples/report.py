"""What was read and made, in words."""

from bert_tf.examples.creation import Statistics
from bert_tf.examples.pipeline import Settings

_MUCH_UNKNOWN = 0.1


def report(statistics: Statistics, settings: Settings, dupe_factor: int) -> str:
    """The statistics as lines for people."""
    text, made = statistics.text, statistics.examples
    lines = [
        f"Read {text.documents:,} documents, {text.sentences:,} sentences, {text.tokens:,} tokens; "
        f"{text.unknown_tokens / text.tokens:.3%} of the tokens are [UNK].",
    ]
    if text.unknown_tokens > _MUCH_UNKNOWN * text.tokens:
        lines.append(
            "WARNING: so many [UNK] teach little: is it the vocabulary of this language, and "
            "do_lower_case as it was made with?"
        )
    if text.invalid_lines:
        lines.append(f"{text.invalid_lines:,} lines are not valid UTF-8: bad bytes were dropped.")
    if text.left_out:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in text.left_out.items())
        lines.append(f"Cleaning left out, as lines or sentences: {rules}.")
    if text.empty_documents or text.empty_sentences:
        lines.append(
            f"Left out: {text.empty_sentences:,} lines and {text.empty_documents:,} whole "
            "documents without a token."
        )
    fill = made.tokens / made.examples / settings.max_seq_length
    kinds = {
        "nsp": f", {made.random_next / made.examples:.1%} with a random next segment",
        "sop": f", {made.swapped / made.examples:.1%} with their segments swapped",
        "mlm": "",
    }
    predictions = f"{made.predictions / made.examples:.2f} predictions each"
    if settings.masking == "dynamic":
        predictions = "to be masked as they are read"
    lines.append(
        f"Made {made.examples:,} examples (--dupe_factor={dupe_factor}): {fill:.1%} of "
        f"max_seq_length filled, {predictions}"
        f"{kinds[settings.objective]}."
    )
    if settings.objective == "mlm":
        lines.append(
            f"{made.cut_sentences:,} sentences are longer than an example and were divided; "
            "nothing was lost."
        )
    else:
        lines.append(
            f"{made.cut_pairs:,} pairs were too long and lost {made.cut_tokens:,} tokens "
            f"({made.cut_tokens / (made.tokens + made.cut_tokens):.1%} of those of all passes); "
            f"{statistics.long_sentences:,} sentences are longer than an example by themselves."
        )
    if made.documents_without_pairs:
        lines.append(
            f"{made.documents_without_pairs:,} times a document of one sentence found no second "
            "segment and was left out."
        )
    if text.documents == 1 and settings.objective == "nsp":
        lines.append(
            "WARNING: the text is one document, so there is no other to take a random next segment "
            "from: all pairs are true neighbours and the next-sentence task teaches nothing. "
            "Put blank lines between documents."
        )
    return "\n".join(lines)
