"""Builds a WordPiece vocabulary (vocab.txt) for BERT from raw text.

The text is normalized and split into words by the same code that tokenizes it later, so that
every piece learnt can be found again. The same text gives the same file, byte for byte.

Example:
  python -m bert_tf.build_vocab --input_file='text/*.txt' --output_file=vocab.txt

Ids follow the published vocabularies: [PAD] is 0, then come [unused] slots for words of your own,
then [UNK], [CLS], [SEP] and [MASK], characters, and pieces from frequent to rare.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option

# Characters outside this share of the text get no piece: a word with one of them is [UNK]. Else the
# odd foreign names of a Wikipedia would take thousands of pieces.
_CHARACTER_COVERAGE = 0.9999
_LINES_AT_ONCE = 2000
_MAX_CHARACTERS_PER_WORD = 200


@dataclass(frozen=True)
class Options(command.Options):
    input_file: str = option(help="Text files, comma-separated; globs allowed.")
    output_file: str = option(help="Where to write the vocabulary, one token a line.")
    vocab_size: int = option(
        30522, at_least=1, help="Number of tokens, the special and unused ones included."
    )
    do_lower_case: bool = option(True, help="Lower-case the text and strip its accents.")
    min_frequency: int = option(2, at_least=1, help="How often a piece must occur to be taken in.")
    num_unused: int = option(
        99,
        at_least=0,
        help="Number of [unused] slots; 99 gives [UNK] the id 100, as the published ones do.",
    )


def run(options: Options) -> None:
    """Reads the text, learns the pieces, writes the vocabulary, prints what it covers.

    Raises:
      ValueError: a file is missing or empty, the text has no words, `vocab_size` is too small.
      OSError: the vocabulary cannot be written.
    """
    from tfrecords.reader import expand_files
    from tfrecords.writer import atomic_write, check_output_files

    files = expand_files(options.input_file)
    check_output_files([options.output_file], files)
    words = _count_words(files, options.do_lower_case)
    if not words:
        raise ValueError(f"{options.input_file}: the text holds no words")
    tokens = learn_vocabulary(words, options.vocab_size, options.min_frequency, options.num_unused)
    atomic_write(options.output_file, "".join(f"{token}\n" for token in tokens))
    _report(words, tokens, options)


def _count_words(files: list[str], lower_case: bool) -> Counter[str]:
    """Counts the words of the files as the tokenizer sees them; says how much was not UTF-8."""
    import tensorflow as tf
    from tqdm import tqdm

    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

    tokenizer = WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS), lower_case)

    def count(lines):
        words, _, counts = tf.unique_with_counts(tokenizer.words(lines).values)
        damaged = tf.strings.unicode_transcode(lines, "UTF-8", "UTF-8") != lines
        size = tf.reduce_sum(tf.strings.length(lines) + 1)
        return words, counts, tf.math.count_nonzero(damaged), size

    batches = tf.data.TextLineDataset(files).batch(_LINES_AT_ONCE)
    batches = batches.map(count, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    total = sum(tf.io.gfile.stat(file).length for file in files)
    counter: Counter[bytes] = Counter()
    damaged_lines = 0
    with tqdm(total=total, unit="B", unit_scale=True, desc="reading") as progress:
        try:
            for words, counts, damaged, size in batches.as_numpy_iterator():
                for word, times in zip(words.tolist(), counts.tolist(), strict=True):
                    counter[word] += times
                damaged_lines += int(damaged)
                progress.update(int(size))
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {', '.join(files)}: {error.message}") from error
    if damaged_lines:
        print(f"{damaged_lines:,} lines held bytes that are not UTF-8; these bytes were left out")
    return Counter({word.decode(): times for word, times in counter.items()})


def learn_vocabulary(
    words: Counter[str], vocab_size: int, min_frequency: int = 2, num_unused: int = 99
) -> list[str]:
    """The tokens of a BERT vocabulary, at most `vocab_size`, in the order of their ids.

    Args:
      words: normalized words with the number of their occurrences.

    Raises:
      ValueError: `vocab_size` does not hold the special tokens and the characters.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    unused = [f"[unused{slot}]" for slot in range(num_unused)]
    reserved = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = _alphabet(words, min_frequency)
    words = Counter(
        {
            word: times
            for word, times in words.items()
            if len(word) <= _MAX_CHARACTERS_PER_WORD and alphabet.issuperset(word)
        }
    )
    inner = sorted({character for word in words for character in word[1:]})
    # The trainer numbers "##x" in the random order of a hash table, and breaks ties between pieces
    # by number. Given as special tokens they have numbers of our choice: the result is fixed.
    given = [*reserved, *sorted(alphabet), *(f"##{character}" for character in inner)]
    if len(given) > vocab_size:
        raise ValueError(
            f"--vocab_size={vocab_size} is too small: the special and unused tokens and the"
            f" characters of this text are {len(given)} already"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=given,
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(_repeat(words), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _alphabet(words: Counter[str], min_frequency: int) -> set[str]:
    """The characters worth a piece: frequent enough, and within the coverage wanted."""
    characters: Counter[str] = Counter()
    for word, times in words.items():
        for character in word:
            characters[character] += times
    room = characters.total() * (1 - _CHARACTER_COVERAGE)
    # From the rarest on; code points decide among equals.
    for character, times in sorted(characters.items(), key=lambda item: (item[1], item[0])):
        room -= times
        if room < 0 and times >= min_frequency:
            break
        del characters[character]
    return set(characters)


def _repeat(words: Counter[str], at_once: int = 1000) -> Iterator[str]:
    """Each word as often as it occurs: the trainer takes text, not counts."""
    for word, times in sorted(words.items()):
        whole, rest = divmod(times, at_once)
        for _ in range(whole):
            yield " ".join([word] * at_once)
        yield " ".join([word] * rest)


def _report(words: Counter[str], tokens: list[str], options: Options) -> None:
    import tensorflow as tf

    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.text.vocab import Vocabulary

    vocab = Vocabulary(tuple(tokens))
    pieces = WordPieceTokenizer(vocab, options.do_lower_case).tokenize_flat(list(words))
    times = tf.constant(list(words.values()), tf.int64)
    unknown = tf.reduce_any(pieces == vocab.unk_id, axis=1)
    total = words.total()
    unknown_rate = int(tf.reduce_sum(tf.where(unknown, times, 0))) / total
    pieces_per_word = int(tf.reduce_sum(pieces.row_lengths() * times)) / total
    if len(tokens) < options.vocab_size:
        print(
            f"The text gave only {len(tokens):,} of {options.vocab_size:,} tokens with"
            f" --min_frequency={options.min_frequency}: set vocab_size to {len(tokens)} in"
            " bert_config.json."
        )
    print(
        f"{total:,} words, {len(words):,} different: {pieces_per_word:.3f} pieces per word,"
        f" {unknown_rate:.4%} of the words [UNK]"
    )
    case = "" if options.do_lower_case else " --nodo_lower_case"
    text, vocab_file = map(shlex.quote, (options.input_file, options.output_file))
    print(
        f"Wrote {len(tokens):,} tokens to {options.output_file}. Next: python -m"
        f" bert_tf.create_pretraining_data --vocab_file={vocab_file}{case}"
        f" --input_file={text} --output_file=pretraining.tfrecord"
    )


def main() -> None:
    command.run(Options, run)


if __name__ == "__main__":
    main()
