"""Vocabulary and casing in the files of a folder, as Hugging Face's tokenizers read them.

vocab.txt               the vocabulary, one token per line
tokenizer_config.json   casing, accents and added tokens
tokenizer.json          the whole tokenizer in one file; newer folders have no vocab.txt
added_tokens.json, special_tokens_map.json   added tokens in folders of older programs
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from tfrecords.files import read_json
from tfrecords.vocabulary import SPECIAL_TOKENS, AddedToken, Vocabulary, load_vocab, read_lines

VOCAB = "vocab.txt"
TOKENIZER = "tokenizer_config.json"
WHOLE = "tokenizer.json"
_ADDED = "added_tokens.json"
_SPECIAL = "special_tokens_map.json"
# The key of tokenizer_config.json for `Vocabulary.sha256`. It marks files that bert_tf wrote, whose
# ids of added tokens hold. Other libraries ignore it.
CHECKSUM = "vocab_sha256"
FILES = (VOCAB, TOKENIZER, WHOLE, _ADDED, _SPECIAL)
# The classes that split text as BERT does; others, such as BertJapaneseTokenizer, find words first.
_CLASSES = ("BertTokenizer", "BertTokenizerFast", "MobileBertTokenizer", "MobileBertTokenizerFast")
# Classes that read everything from tokenizer.json.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
# The values of tokenizer_config.json and special_tokens_map.json that name special tokens.
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
_NAMED = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    _EXTRA,
)
_FLAGS = ("single_word", "lstrip", "rstrip", "special")
# The types of models in tokenizer.json.
_OURS, _SENTENCEPIECE = "WordPiece", "Unigram"
# What Hugging Face's tokenizers strip from the end of a line of vocab.txt.
_SPACES = "".join(x for x in map(chr, range(0x3001)) if x.isspace() and not "\x1c" <= x <= "\x1f")
# The most ids without a token in a tokenizer.json; a damaged file has more.
_MOST_GAPS = 100_000


class TokenizerFiles:
    """What the files of a folder say about its tokenizer; each file is read once, when needed."""

    def __init__(self, folder: str):
        self._folder = folder
        self._path, self._whole_path = (os.path.join(folder, name) for name in (VOCAB, WHOLE))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of tokenizer_config.json; {} without one."""
        return read_json(os.path.join(self._folder, TOKENIZER))

    @cached_property
    def _whole(self) -> dict[str, Any]:
        return read_json(self._whole_path)

    @cached_property
    def vocab(self) -> Vocabulary | None:
        """The vocabulary; None if there is none.

        Prints a warning if the files and transformers give an added token different ids.
        """
        if tf.io.gfile.exists(self._path):
            lines = list(load_vocab(self._path).lines)
            size = len({line.rstrip(_SPACES) for line in read_lines(self._path)})
            _check_same(self._path, lines, self._whole_path, self._whole)
        else:
            lines = _lines_of(self._whole_path, self._whole)
            size = len(self._whole["model"]["vocab"]) if lines else 0
        if not lines:
            return None
        strips = self.config.get("strip_accents", self._normalizer.get("strip_accents"))
        if strips == (self._lower_case is not False):
            strips = None
        try:
            if CHECKSUM in self.config:
                added = Vocabulary.from_values(lines, self.config).added
            else:
                added = _with_ids(self._added_tokens(), lines, size)
            # transformers counts a blank line at the end, too.
            first = min((token.id for token in added if token.id >= len(lines)), default=0)
            lines += [""] * (first - len(lines))
            return Vocabulary(tuple(lines), tuple(added), strips)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._folder}: its added tokens cannot be used ({error}): download or copy "
                "them again"
            ) from None

    @cached_property
    def lower_case(self) -> bool | None:
        """Whether text is lower-cased; None if no file states it.

        Prints a warning if the tokenizer splits text differently from ours.
        """
        ideographs = self._normalizer.get("handle_chinese_chars")
        splits = self.config.get("tokenize_chinese_chars", ideographs) is False
        kind = self.config.get("tokenizer_class") or _CLASSES[0]
        differences = ["tokenize_chinese_chars is False"] if splits else []
        if kind not in (*_CLASSES, *_GENERIC):
            differences.append(f"tokenizer_class is {kind}")
        for difference in differences:
            print(
                f"WARNING: {os.path.join(self._folder, TOKENIZER)}: {difference}, which bert_tf "
                "does not support: some texts will get other tokens than in transformers."
            )
        return self._lower_case

    @property
    def sentencepiece_file(self) -> str | None:
        """The tokenizer.json of a SentencePiece model; None if there is none."""
        model = self._whole.get("model")
        found = isinstance(model, dict) and model.get("type") == _SENTENCEPIECE
        return self._whole_path if found else None

    @property
    def _lower_case(self) -> bool | None:
        value = self.config.get("do_lower_case", self._normalizer.get("lowercase"))
        if not isinstance(value, bool | None):
            path = os.path.join(self._folder, TOKENIZER)
            raise ValueError(f"{path}: do_lower_case is {value!r}, not a boolean")
        return value

    @property
    def _normalizer(self) -> Mapping[str, Any]:
        """The normalizer of tokenizer.json; {} if it is not BERT's."""
        found = self._whole.get("normalizer")
        return found if isinstance(found, dict) and found.get("type") == "BertNormalizer" else {}

    def _added_tokens(self) -> list[dict[str, Any]]:
        """Returns the attributes of added tokens, in the order in which transformers adds them.

        Those that a file gives an id come first, in the order of their ids.

        Source: transformers tokenization_utils_base.py `_from_pretrained`.
        """
        decoder, named = self.config.get("added_tokens_decoder"), dict(self.config)
        stated: dict[int, dict[str, Any]] = {}
        if _OLD_EXTRA in named and not named.get(_EXTRA):
            named[_EXTRA] = named.pop(_OLD_EXTRA)
        if decoder is None:
            others = read_json(os.path.join(self._folder, _SPECIAL))
            if isinstance(others.get(_EXTRA), list):
                others[_EXTRA] = (named.get(_EXTRA) or []) + others[_EXTRA]
            named |= others
            special = {token["content"] for key in _NAMED for token in _listed(named.get(key))}
            for content, index in read_json(os.path.join(self._folder, _ADDED)).items():
                stated[index] = {"content": content, "special": content in special}
        named.setdefault(_EXTRA, named.get(_OLD_EXTRA))
        if decoder is None or self.config.get("tokenizer_class") in _GENERIC:
            stated |= {token["id"]: dict(token) for token in self._whole.get("added_tokens") or ()}
        stated |= {int(index): dict(token) for index, token in (decoder or {}).items()}
        tokens = [token | {"id": index} for index, token in sorted(stated.items())]
        return tokens + [token for key in _NAMED for token in _listed(named.get(key))]


def _check_same(path: str, lines: Sequence[str], whole: str, tokenizer: Mapping[str, Any]) -> None:
    """Raises a ValueError if vocab.txt and tokenizer.json assign different tokens to an id."""
    model = tokenizer.get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict):  # SentencePiece models have a list
        return
    for token, index in ids.items():
        if index in range(len(lines)) and lines[index].strip() != token.strip():
            raise ValueError(
                f"token {index} is {lines[index]!r} in {path}, but {token!r} in {whole}: "
                "remove the file that does not belong to the model"
            )


def _lines_of(path: str, tokenizer: Mapping[str, Any]) -> list[str]:
    """Returns the vocabulary in the content of a tokenizer.json; ids without tokens are blank.

    Returns [] if there is no content, or if it is a SentencePiece model.
    """
    try:
        if not tokenizer or (kind := tokenizer["model"].get("type", _OURS)) == _SENTENCEPIECE:
            return []
        if kind != _OURS:
            raise ValueError(f"its model is {kind}, but BERT's is {_OURS}")
        ids = dict(tokenizer["model"]["vocab"])
        # Reading vocab.txt would change them.
        if wrong := [token for token in ids if "\n" in token or token.strip(" \t\r") != token]:
            raise ValueError(f"its token {wrong[0]!r} cannot be a line of {VOCAB}")
        tokens = {index: token for token, index in ids.items()}
        if max(tokens) >= _MOST_GAPS + len(tokens):
            raise ValueError(f"its largest id is {max(tokens)}, of {len(tokens)} tokens")
        last = max(index for index, token in tokens.items() if token)
        return list(Vocabulary(tuple(tokens.get(x, "") for x in range(last + 1))).lines)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no vocabulary that BERT can use: {error}") from None


def _listed(value: Any) -> list[dict[str, Any]]:
    """Returns the attributes of the tokens that a value of tokenizer_config.json names."""
    if isinstance(value, dict) and "content" not in value:
        value = list(value.values())
    values = value if isinstance(value, list) else [value]
    named = (x if isinstance(x, dict) else {"content": x, "special": True} for x in values if x)
    return [dict(token) for token in named]


def _with_ids(
    tokens: Iterable[dict[str, Any]], lines: Sequence[str], size: int
) -> list[AddedToken]:
    """Gives added tokens the ids that they have in transformers, regardless of the files.

    The vocabulary has `size` different lines, as transformers counts them.

    Source: tokenizers/src/tokenizer/added_vocabulary.rs `add_tokens`.
    """
    ids = {line: index for index, line in enumerate(lines)}
    added: dict[int, AddedToken] = {}
    contents = {""}
    for values in tokens:
        content = values["content"]
        if content in contents:
            continue
        contents.add(content)
        index = ids.get(content, size)
        size += content not in ids
        if (stated := values.get("id", index)) != index:
            print(
                f"WARNING: a file states the id {stated} for the added token {content!r}, but it "
                f"has {index}, as in transformers, which numbers added tokens after the vocabulary."
            )
        flags = {name: values.get(name, False) for name in _FLAGS}
        normalized = values.get("normalized", not flags["special"])
        # Repeated lines can give two tokens the same id; transformers then forgets the first.
        added[index] = AddedToken(index, content, **flags, normalized=normalized)
    return [added[index] for index in sorted(added) if added[index].content not in SPECIAL_TOKENS]
