"""Turns a block of text into a chunk of tokenized documents."""

from collections.abc import Sequence

import numpy as np

from bert_tf.corpus.reading import read_sentences
from bert_tf.corpus.sources import Block
from bert_tf.examples.chunk import Chunk, TextCounts
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.units import load_lexicon, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer

# The bytes of text tokenized at once, which takes about ten times as much memory.
TOKENIZE_BYTES = 2**23


def make_chunk(
    block: Block, tokenizer: WordPieceTokenizer, options: DataOptions, lexicon: tuple[str, ...] = ()
) -> tuple[Chunk, TextCounts]:
    """Tokenizes the documents of a block. A pure function.

    In plain text, a line is a sentence, or a paragraph with `split_sentences`. In JSON lines, each
    string is a document. Lines end with LF or CRLF. Bytes that are not valid UTF-8 are dropped and
    counted. The options have all defaults resolved. Each phrase of the lexicon is one unit of
    masking; the longest match wins.
    """
    counts = TextCounts(bytes=len(block.data))
    sentences: list[bytes] = []
    document_ends = [0]
    for lines in read_sentences(block, options, counts):
        sentences += [line.encode("utf-8") for line in lines]
        document_ends.append(len(sentences))
    token_ids, splits, unit_starts = _tokenize(sentences, tokenizer, options.segmenter)
    if lexicon:
        unit_starts = load_lexicon(lexicon, tokenizer).join_units(token_ids, unit_starts, splits)
    # Leaves out sentences without tokens, then documents without sentences.
    full = np.diff(splits) > 0
    document_starts = np.append(0, np.cumsum(full))[document_ends]
    full_documents = np.diff(document_starts) > 0
    document_starts = np.append(document_starts[:-1][full_documents], document_starts[-1])
    chunk = Chunk(
        token_ids=token_ids,
        unit_starts=unit_starts,
        sentence_starts=np.append(splits[:-1][full], len(token_ids)).astype(np.int64),
        document_starts=document_starts.astype(np.int64),
    )
    counts.documents = chunk.num_documents
    counts.empty_documents = len(document_ends) - 1 - counts.documents
    counts.single_sentences = int(np.count_nonzero(np.diff(document_starts) == 1))
    counts.sentences = int(document_starts[-1])
    counts.empty_sentences = len(sentences) - counts.sentences
    counts.tokens = len(token_ids)
    counts.unknown_tokens = int(np.count_nonzero(token_ids == tokenizer.vocab.unk_id))
    return chunk, counts


def _tokenize(
    sentences: Sequence[bytes], tokenizer: WordPieceTokenizer, segmenter: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids [T] int32, the first token of each sentence [sentences + 1], unit starts [T]."""
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    first = size = 0
    for end, sentence in enumerate(sentences, start=1):
        size += len(sentence)
        if size < TOKENIZE_BYTES and end < len(sentences):
            continue
        if segmenter:
            token_ids, splits, starts = tokenize_words(sentences[first:end], tokenizer, segmenter)
        else:
            token_ids, splits = tokenizer.tokenize_lines(sentences[first:end])
            starts = tokenizer.starts_word[token_ids]
        parts.append((token_ids, np.diff(splits), starts))
        first, size = end, 0
    token_ids, lengths, starts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return token_ids, np.append(0, np.cumsum(lengths)), starts
