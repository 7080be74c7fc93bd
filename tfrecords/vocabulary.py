"""Reads and writes vocabularies: vocab.txt, one token per line, or a SentencePiece model."""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.base.calling import checked
from bert_tf.base.content import read_text
from bert_tf.base.files import read_file
from bert_tf.base.output_files import atomic_write
from tfrecords.sentencepiece import read_pieces

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
# The file of a SentencePiece model, the mark of a word's beginning in it, and its names of tokens.
SPIECE = "spiece.model"
_MARK = "\u2581"
_OUR_NAMES = {"<pad>": PAD, "<unk>": UNK}
# A longer word is [UNK], as in the original.
MAX_CHARACTERS_PER_WORD = 200
# A larger share of the text in such words suggests a language without spaces.
_MOST_LONG = 0.1
# The share of tokens below which letters are a by-product. Lower-casing makes 0% of the tokens of
# bert-base-uncased unreachable and 0.01% of bert-base-chinese's (<S> and <T>), but 31% of
# bert-base-cased's and 33% of bert-base-multilingual-cased's.
_FEW = 0.01
# [MASK], [unused1], <S> and the like, which no text contains.
_MARKUP = re.compile(r"\[.+\]|<.+>")
# A vocabulary without capitals is uncased if it has this many tokens with lower-case letters.
# Smaller vocabularies, which are for trials, do not tell.
_MANY = 100
# Parts of folder names that state the casing; the first match decides.
_NAMES = ((r"uncased|lower", True), (r"cased", False), (r"(multilingual|chinese)_l-\d", True))


def continues_word(token: str) -> bool:
    """Returns whether a token continues a word; "##" does not, because "#" is punctuation."""
    return len(token) > 2 and token.startswith("##")


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in text before that is split into words, such as an entity marker.

    The attributes are those of Hugging Face's `tokenizers.AddedToken`.
    """

    id: int
    content: str
    single_word: bool = False  # whether the text around it must not continue a word
    lstrip: bool = False  # whether it takes the spaces before it; this changes no ids
    rstrip: bool = False
    normalized: bool = True  # whether it is found in normalized text, such as lower-cased
    special: bool = False  # whether Hugging Face's programs leave it out of decoded text

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if type(value := getattr(self, field.name)) is not field.type:
                raise ValueError(f"{field.name} of an added token is {value!r}")


@dataclasses.dataclass(frozen=True, repr=False)
class Vocabulary:
    """The tokens that text is split into.

    A blank line is a placeholder that never occurs in text. A repeated token gets the id of its
    last line.

    Attributes:
        lines: the tokens of vocab.txt; the position of a token is its id.
        added: tokens that are found before text is split into words, in the order of their ids.
            Those without a line have the ids after the last line.
        strip_accents: whether text loses its accents; None if it does when it is lower-cased, or
            always with a SentencePiece model.
        sentencepiece: the serialized model whose pieces the lines are, with BERT's names for
            `<pad>` and `<unk>`; see `from_sentencepiece`. None for a vocabulary of word pieces.
        pad_id, unk_id, cls_id, sep_id, mask_id: the ids of the special tokens.

    Example:
        vocab = bert_tf.Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"))
        vocab.ids["text"], vocab.tokens[6]  # 6, "text"
    """

    lines: tuple[str, ...]
    added: tuple[AddedToken, ...] = ()
    strip_accents: bool | None = None
    sentencepiece: bytes | None = None

    def __post_init__(self) -> None:
        if not any(self.lines):
            raise ValueError("not a BERT vocabulary: it has no tokens: write one token per line")
        if missing := [token for token in SPECIAL_TOKENS if token not in self.lines]:
            raise ValueError(
                _other_form(self.lines)
                or f"not a BERT vocabulary: it lacks {' '.join(missing)}: give their names here in "
                'tokenizer_config.json ("cls_token": "<s>"), or write them over tokens that no '
                "text needs, such as [unused1]; new lines would shift all later ids"
            )
        if not isinstance(self.strip_accents, bool | None):
            raise ValueError(f"strip_accents is {self.strip_accents!r}, not a boolean")
        spaced = [token for token in self.added if token.content != token.content.strip()]
        takes_spaces = spaced and any(token.lstrip or token.rstrip for token in self.added)
        # Hugging Face's normalization puts spaces around CJK characters; ours does not.
        if takes_spaces or any(token.normalized for token in spaced):
            raise ValueError(
                f"the added token {spaced[0].content!r} begins or ends with a space, which is only "
                "supported without normalized, and without lstrip and rstrip in all added tokens"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        added = f", {len(self.added):,} of them added" if self.added else ""
        return f"Vocabulary({len(self):,} tokens{added})"

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """All tokens; the position of a token is its id."""
        tokens = dict(enumerate(self.lines)) | {token.id: token.content for token in self.added}
        return tuple(tokens.values())

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Maps each token to its id."""
        ids = {token: index for index, token in enumerate(self.lines)}
        return ids | {token.content: token.id for token in self.added}

    @functools.cached_property
    def begins_word(self) -> tuple[bool, ...]:
        """Whether each token begins a word; of a SentencePiece model, punctuation always does."""
        if not self.sentencepiece:
            return tuple(not continues_word(token) for token in self.tokens)
        whole = {*SPECIAL_TOKENS, *(token.content for token in self.added)} - {UNK}
        return tuple(
            token.startswith(_MARK) or token in whole or is_punctuation(token)
            for token in self.tokens
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Joins the tokens of a text; see `WordPieceTokenizer.decode`."""
        if wrong := [index for index in ids if index not in range(len(self))]:
            raise ValueError(f"{wrong[0]!r} is not an id of the {len(self):,} tokens")
        tokens = (self.tokens[index] for index in ids if index != self.pad_id)
        if self.sentencepiece:
            texts = (f" {x} " if x in SPECIAL_TOKENS else x.replace(_MARK, " ") for x in tokens)
            return " ".join("".join(texts).split())
        return "".join(x[2:] if continues_word(x) else f" {x}" for x in tokens).strip()

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum by which manifests identify a vocabulary, whatever its line endings."""
        text = "\n".join(self.lines)
        if values := self.tokenizer_values():
            text += json.dumps(values)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def written_names(self) -> tuple[str, ...]:
        """The names of `SPECIAL_TOKENS` in its file."""
        names = {ours: theirs for theirs, ours in _OUR_NAMES.items()} if self.sentencepiece else {}
        return tuple(names.get(token, token) for token in SPECIAL_TOKENS)

    @property
    def file_name(self) -> str:
        """The name of its file beside the weights of a model."""
        return SPIECE if self.sentencepiece else "vocab.txt"

    @property
    def text(self) -> str:
        """The content of vocab.txt."""
        return "".join(f"{line}\n" for line in self.lines)

    def tokenizer_values(self) -> dict[str, Any]:
        """Returns what vocab.txt cannot hold, as values of Hugging Face's tokenizer_config.json.

        The result is {} for most vocabularies.
        """
        values: dict[str, Any] = {}
        if self.added:
            tokens = map(dataclasses.asdict, self.added)
            values["added_tokens_decoder"] = {str(token.pop("id")): token for token in tokens}
        if self.strip_accents is not None:
            values["strip_accents"] = self.strip_accents
        if self.sentencepiece:
            values["keep_accents"] = self.strip_accents is False
            values[SPIECE] = base64.b64encode(self.sentencepiece).decode()
        return values

    @classmethod
    def from_values(cls, lines: Sequence[str], values: Mapping[str, Any]) -> "Vocabulary":
        """Returns the vocabulary of these lines and of what `tokenizer_values` returned."""
        try:
            added = values.get("added_tokens_decoder", {}).items()
            tokens = tuple(AddedToken(int(id_), **token) for id_, token in added)
            model = base64.b64decode(values[SPIECE]) if SPIECE in values else None
            return cls(tuple(lines), tokens, values.get("strip_accents"), model)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"the added tokens are damaged ({error})") from None

    @classmethod
    def from_sentencepiece(cls, model: bytes) -> "Vocabulary":
        """Returns the vocabulary of a serialized SentencePiece model, as of ALBERT.

        Raises:
            ValueError: it is no such model, or lacks `<pad>`, `<unk>`, [CLS], [SEP] or [MASK].
        """
        pieces = read_pieces(model)
        if missing := {*_OUR_NAMES, CLS, SEP, MASK} - {*pieces}:
            raise ValueError(
                f"not ALBERT's vocabulary: its pieces lack {' '.join(sorted(missing))}"
            )
        return cls(tuple(_OUR_NAMES.get(x, x) for x in pieces), sentencepiece=model)

    pad_id = property(lambda self: self.ids[PAD])
    unk_id = property(lambda self: self.ids[UNK])
    cls_id = property(lambda self: self.ids[CLS])
    sep_id = property(lambda self: self.ids[SEP])
    mask_id = property(lambda self: self.ids[MASK])


def check_word_pieces(vocab: Vocabulary | None, source: str = "the vocabulary") -> None:
    """Raises a ValueError if a vocabulary is a SentencePiece model; `source` says where it is."""
    if vocab and vocab.sentencepiece:
        raise ValueError(
            f"{source} is a SentencePiece model, but this takes word pieces only: give a vocab.txt"
        )


def is_punctuation(token: str) -> bool:
    """Returns whether a token has neither letters nor digits."""
    return not any(character.isalnum() for character in token)


def _other_form(lines: Sequence[str]) -> str | None:
    """Returns what is wrong with lines that hold more than a token each."""
    with contextlib.suppress(ValueError, RecursionError):
        json.loads("\n".join(lines))
        return (
            "JSON, not one token per line: write the tokens in the order of their ids, or give a "
            "tokenizer.json under that name"
        )
    if all(len(line.split()) > 1 for line in lines if line):
        return (
            f"not one token per line: lines such as {lines[0]!r} have several columns: keep only "
            "the tokens, in the order of their ids"
        )
    return None


@checked
def load_vocab(path: str | os.PathLike) -> Vocabulary:
    """Reads a vocab.txt without the blank lines at its end, or a SentencePiece model, `*.model`.

    Lines end with LF or CRLF. `tokenization.load_vocab` of google-research/bert strips all Unicode
    whitespace around a token; this function strips only spaces and tabs, because bert-base-chinese
    has U+2028 as a token, which must not become empty. The ids of a text stay the same, since words
    never contain whitespace.

    Example:
        preprocessor = bert_tf.BertPreprocessor(bert_tf.load_vocab("vocab.txt"), lower_case=True)
    """
    is_model = os.fspath(path).endswith(".model")
    content = read_file(path) if is_model else tuple(read_tokens(path))
    try:
        return (Vocabulary.from_sentencepiece if is_model else Vocabulary)(content)
    except ValueError as error:
        raise ValueError(f"{path} is {error}") from None


# The vocabulary itself, the path of a vocab.txt, or the tokens in the order of their ids.
VocabularyLike = Vocabulary | str | os.PathLike | Sequence[str]


def as_vocabulary(given: VocabularyLike) -> Vocabulary:
    """Returns the vocabulary that is given in any of these forms."""
    if isinstance(given, str | os.PathLike):
        return load_vocab(given)
    if not isinstance(given, Vocabulary | Iterable):
        needed = "the path of a vocab.txt, a Vocabulary or a list of tokens"
        raise ValueError(f"the vocabulary is {given!r:.60}: give {needed}")
    return given if isinstance(given, Vocabulary) else Vocabulary(tuple(given))


def read_tokens(path: str) -> list[str]:
    """Reads the tokens of a vocab.txt, whether or not it is BERT's; see `load_vocab`."""
    lines = [line.strip(" \t\r") for line in read_vocab_lines(path)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def read_vocab_lines(path: str) -> list[str]:
    """Reads the lines of a vocab.txt up to their LF, without a byte order mark."""
    data = read_text(path)
    try:
        # Not str.splitlines, which would also split at U+2028 and U+0085, which are tokens.
        return data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text: save the file as UTF-8") from None


def write_vocab(path: str, vocab: Vocabulary) -> None:
    """Writes its file atomically; `Vocabulary.tokenizer_values` belongs beside it."""
    atomic_write(path, vocab.sentencepiece or vocab.text)


def describe_long_words(characters: int, of: int) -> list[str]:
    """Returns a warning if many characters of a text are in words that are too long for a token."""
    if characters <= _MOST_LONG * of:
        return []
    return [
        f"WARNING: {characters / of:.0%} of the text is in words of more than "
        f"{MAX_CHARACTERS_PER_WORD} characters, each of which becomes a single [UNK]. If the "
        "language has no spaces, put one after each word first, with a word segmenter."
    ]


def is_cased(vocab: Vocabulary) -> bool:
    """Returns whether a vocabulary is for text that keeps its capitals and accents."""
    return len(_unreachable(vocab)) > _FEW * len(vocab)


def guess_casing(vocab: Vocabulary | None, path: str) -> bool | None:
    """Guesses from the vocabulary, or else from a folder's name, whether text is lower-cased.

    Returns None if neither tells. The path is that of a checkpoint, or of the folder that holds it.
    """
    if vocab and is_cased(vocab):
        return False
    if vocab and len(_small(vocab)) >= _MANY:
        return True
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    name = os.path.basename(os.path.abspath(folder)).lower()
    named = next((value for pattern, value in _NAMES if re.search(pattern, name)), None)
    # Lower-casing loses no token of a vocabulary without capitals.
    return True if vocab and named is None else named


def warn_about_casing(
    vocab: Vocabulary | None,
    lower_case: bool | None,
    source: str = "the vocabulary",
    say: Callable[[str], None] = print,
) -> None:
    """Prints how the casing contradicts the vocabulary, if it does; None, unknown, never does.

    `source` is where the vocabulary comes from, and `say` prints the warning.
    """
    if vocab is None or lower_case is None:
        return
    if lower_case:
        if is_cased(vocab):
            lost = _unreachable(vocab)
            # The first tokens are often single letters, and those in the middle words.
            some = ", ".join(lost[len(lost) // 2 :][:3])
            say(
                f"WARNING: {source} is cased, but the text is lower-cased and loses its accents: "
                f"{len(lost):,} of {len(vocab):,} tokens, such as {some}, can never occur. Use "
                "--nodo_lower_case, from data creation on."
            )
        return
    small = _small(vocab)
    capital = [token for token in _tokens_of_text(vocab) if token.lower() != token]
    if len(small) > _FEW * len(vocab) and len(capital) <= _FEW * len(small):
        say(
            f"WARNING: {source} is uncased, but the text is not lower-cased: of {len(vocab):,} "
            f"tokens, {len(small):,} have small letters and {len(capital):,} have capitals, so "
            "words with capitals become [UNK]. Use --do_lower_case, from data creation on."
        )


def _unreachable(vocab: Vocabulary) -> list[str]:
    """Returns the tokens that lower-cased text never contains."""

    def lower_cased(token: str) -> str:
        if token.isascii() or vocab.strip_accents is False:
            return token.lower()
        decomposed = unicodedata.normalize("NFD", token.lower())
        return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")

    return [token for token in _tokens_of_text(vocab) if lower_cased(token) != token]


def _small(vocab: Vocabulary) -> list[str]:
    """Returns the tokens with lower-case letters."""
    # Title case, because the letters of Georgian have capitals that no ordinary text uses.
    return [token for token in _tokens_of_text(vocab) if token.title() != token]


def _tokens_of_text(vocab: Vocabulary) -> list[str]:
    return [token for token in vocab.lines if not _MARKUP.fullmatch(token)]
