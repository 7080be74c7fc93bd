"""Records as people read them."""

import numpy as np

from tfrecords.vocabulary import Vocabulary

LEGEND = {
    False: "[shown→hidden] hides the piece after the arrow; {piece} is to be predicted as it is.",
    True: "· joins what is masked as a whole though a space was there; nothing is masked yet.",
}


def readable(record: dict[str, np.ndarray], vocab: Vocabulary | None) -> str:
    """One record as a line: pieces put together to words, masks in their places.

    Args:
        record: the features of one record, [length].
        vocab: without it ids stand for the pieces.
    """
    length = int(record["input_mask"].sum())
    pieces = [_piece(index, vocab) for index in record["input_word_ids"][:length].tolist()]
    # How a piece is glued to the one before goes by what it hides.
    hidden = list(pieces)
    if "masked_lm_ids" in record:
        count = int(record["masked_lm_weights"].sum())
        positions = record["masked_lm_positions"][:count].tolist()
        labels = record["masked_lm_ids"][:count].tolist()
        for position, label in zip(positions, labels, strict=True):
            hidden[position] = _piece(label, vocab)
            same = pieces[position] == hidden[position]
            shown = "MASK" if pieces[position] == "[MASK]" else pieces[position]
            pieces[position] = f"{{{shown}}}" if same else f"[{shown}→{hidden[position]}]"
    starts = record.get("word_starts")
    special = {vocab.cls_id, vocab.sep_id} if vocab else set()
    line = pieces[0]
    for column in range(1, length):
        continues = hidden[column].startswith("##") and len(hidden[column]) > 2
        within = False
        if starts is not None:
            within = not starts[column] and int(record["input_word_ids"][column]) not in special
            continues = continues and within
        text = pieces[column]
        if continues:
            line += text[2:] if text == hidden[column] else text
        else:
            line += f"{'·' if within and vocab else ' '}{text}"
    return line


def _piece(index: int, vocab: Vocabulary | None) -> str:
    return vocab.tokens[index] if vocab else str(index)
