"""Vocabulary and casing in the files of a folder, as Hugging Face's tokenizers read them.

vocab.txt               the vocabulary, one token per line
spiece.model            or another *.model: the vocabulary of an ALBERT, a SentencePiece model
tokenizer_config.json   casing, accents and added tokens
tokenizer.json          the whole tokenizer in one file; newer folders have no vocab.txt
added_tokens.json, special_tokens_map.json   added tokens in folders of older programs
"""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import Any

import tensorflow as tf

from bert_tf.base.files import errors_at, read_file, read_json
from bert_tf.base.output_files import write_json
from tfrecords.sentencepiece import model_of_pieces
from tfrecords.vocabulary import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    SPIECE,
    UNK,
    AddedToken,
    Vocabulary,
    read_tokens,
    read_vocab_lines,
)

VOCAB = "vocab.txt"
TOKENIZER = "tokenizer_config.json"
WHOLE = "tokenizer.json"
_ADDED = "added_tokens.json"
_SPECIAL = "special_tokens_map.json"
# The key of tokenizer_config.json for `Vocabulary.sha256`. It marks files that bert_tf wrote, whose
# ids of added tokens hold. Other libraries ignore it.
CHECKSUM = "vocab_sha256"
TOKENIZER_FILES = (VOCAB, SPIECE, TOKENIZER, WHOLE, _ADDED, _SPECIAL)
# The classes that split text as BERT does; others, such as BertJapaneseTokenizer, find words first.
_CLASSES = ("BertTokenizer", "BertTokenizerFast", "MobileBertTokenizer", "MobileBertTokenizerFast")
# The same of SentencePiece models.
_PIECE_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast")
# Classes that read everything from tokenizer.json.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
# The keys of tokenizer_config.json and special_tokens_map.json that name special tokens. Five of
# these tokens correspond to ours, whatever their names.
_ROLES = dict(unk_token=UNK, sep_token=SEP, pad_token=PAD, cls_token=CLS, mask_token=MASK)
_DECODER = "added_tokens_decoder"
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
_NAMED = ("bos_token", "eos_token", *_ROLES, _EXTRA)
_FLAGS = ("single_word", "lstrip", "rstrip", "special")
# The types of models in tokenizer.json.
_OURS, _SENTENCEPIECE = "WordPiece", "Unigram"
# The parts of tokenizer.json, with the types that do what BERT's tokenizer does.
_PARTS = {
    "normalizer": ("BertNormalizer",),
    "pre_tokenizer": ("BertPreTokenizer",),
    "post_processor": ("TemplateProcessing", "BertProcessing"),
}
# What Hugging Face's tokenizers strip from the end of a line of vocab.txt.
_SPACES = "".join(x for x in map(chr, range(0x3001)) if x.isspace() and not "\x1c" <= x <= "\x1f")
# The most ids without a token in a tokenizer.json; a damaged file has more.
_MOST_GAPS = 100_000
# The keys of the steps of a part.
_STEPS = ("normalizers", "pretokenizers", "processors")


def _optional(kind: Any, *keys: str) -> dict[str, Any]:
    return {f"{key}?": kind for key in keys}


_TOKEN = {"content": str}
_NAME = (str, _TOKEN, NoneType)
_NAMES = _optional(_NAME, *_NAMED)
# With the comma, the tuple is the only argument of the list.
_NAMES |= _optional(list[_NAME,] | dict[str, _NAME] | None, _EXTRA, _OLD_EXTRA)
_CONFIG = _NAMES | _optional(dict[str, _TOKEN] | None, _DECODER)
_CONFIG |= _optional(bool | None, "do_lower_case", "strip_accents", "tokenize_chinese_chars")
_CONFIG |= _optional(bool | None, "keep_accents")
_CONFIG |= _optional(str | None, "padding_side", "tokenizer_class", "truncation_side")
_CONFIG |= _optional(float | None, "model_max_length")
_STEP = _optional(bool | None, "handle_chinese_chars", "lowercase", "strip_accents")
_STEP |= _optional(str, "type", "precompiled_charsmap")
_PART = _STEP | _optional(list[_STEP], *_STEPS)
_MODEL = {"type?": str | None, "unk_token?": str | None, "vocab?": dict[str, int] | list[Any]}
_MODEL |= {"unk_id?": int | None}
_NUMBERED = _TOKEN | {"id": int}
_WHOLE = {"model": _MODEL, "added_tokens?": list[_NUMBERED] | None}
_WHOLE |= _optional((_PART, NoneType), *_PARTS)
_WHOLE |= _optional(dict[str, Any] | None, "padding", "truncation")


class TokenizerFiles:
    """What the files of a folder say about its tokenizer; each file is read once, when needed."""

    def __init__(self, folder: str):
        self._folder = folder
        names = (VOCAB, WHOLE, TOKENIZER)
        self._path, self._whole_path, self.config_file = (os.path.join(folder, x) for x in names)

    def check_ours(self) -> None:
        """Raises a ValueError if tokenizer_config.json describes a vocabulary of other programs."""
        path = self.config_file
        if tf.io.gfile.exists(path) and CHECKSUM not in self.config:
            raise ValueError(f"{path} exists and describes another vocabulary: use another folder")

    def write(self, vocab: Vocabulary | None, lower_case: bool | None, **others: Any) -> None:
        """Writes what is known about the casing and the vocabulary's file, and other values."""
        values = {"do_lower_case": lower_case, **others, "tokenizer_class": "BertTokenizer"}
        if vocab:
            values |= vocab.tokenizer_values() | {CHECKSUM: vocab.sha256}
            if values.pop(SPIECE, None):
                values["tokenizer_class"] = "AlbertTokenizer"
        stated = {name: value for name, value in values.items() if value is not None}
        write_json(self.config_file, stated)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of tokenizer_config.json; {} without one."""
        values = read_json(self.config_file, _CONFIG)
        # transformers keeps our checksum when it saves a tokenizer, perhaps with other tokens.
        others = (os.path.join(self._folder, name) for name in (WHOLE, _ADDED, _SPECIAL))
        if any(map(tf.io.gfile.exists, others)):
            values.pop(CHECKSUM, None)
        return values

    @cached_property
    def _whole(self) -> dict[str, Any]:
        return read_json(self._whole_path, _WHOLE)

    @cached_property
    def file(self) -> str:
        """The path of the file that holds the vocabulary, if there is any."""
        if tf.io.gfile.exists(self._path):
            return self._path
        models = sorted(tf.io.gfile.glob(os.path.join(self._folder, "*.model")))
        return models[0] if models else self._whole_path

    @cached_property
    def vocab(self) -> Vocabulary | None:
        """The vocabulary, or None; warns of added tokens that have other ids in transformers."""
        source = self.file
        if self._has_pieces:
            return self._piece_vocab()
        if source == self._path:
            lines = read_tokens(self._path)
            size = len({line.rstrip(_SPACES) for line in read_vocab_lines(self._path)})
            _check_same(self._path, lines, self._whole_path, self._whole)
        elif lines := _lines_of(self._whole_path, self._whole):
            size = len(self._whole["model"]["vocab"])
        else:
            return None
        strips = self._stated("strip_accents", "strip_accents")
        if strips == (self._stated("do_lower_case", "lowercase") is not False):
            strips = None
        with errors_at(source):
            if CHECKSUM in self.config:
                added = Vocabulary.from_values(lines, self.config).added
            else:
                names = self._names(lines)
                lines = [names.get(line, line) for line in lines]
                added = _with_ids(self._added_tokens(), names, lines, size)
            # transformers counts a blank line at the end, too.
            first = min((token.id for token in added if token.id >= len(lines)), default=0)
            lines += [""] * (first - len(lines))
            return Vocabulary(tuple(lines), tuple(added), strips)

    @cached_property
    def lower_case(self) -> bool | None:
        """Whether text is lower-cased, None if unknown; warns of tokenizers unlike ours."""
        if self._has_pieces:
            return None if self.unread else self.config.get("do_lower_case") is not False
        splits = self._stated("tokenize_chinese_chars", "handle_chinese_chars") is False
        kind = self.config.get("tokenizer_class") or _CLASSES[0]
        differences = ["tokenize_chinese_chars is False"] if splits else []
        if self._is_generic:
            differences += self._other_parts()
        elif kind not in (*_CLASSES, *_GENERIC):
            differences.append(f"tokenizer_class is {kind}")
        for side, part in (("truncation_side", "truncation"), ("padding_side", "padding")):
            whole = (self._whole.get(part) or {}).get("direction")
            if str(self.config.get(side) or whole).lower() == "left":
                differences.append(f"{side} is left")
        for difference in differences:
            print(
                f"WARNING: {self.config_file}: {difference}, which bert_tf "
                "does not support: some texts will get other tokens than in transformers."
            )
        return self._stated("do_lower_case", "lowercase")

    @property
    def _has_pieces(self) -> bool:
        """Whether the vocabulary is a SentencePiece model."""
        kind = self._whole.get("model", {}).get("type")
        of_whole = self.file == self._whole_path and kind == _SENTENCEPIECE
        return of_whole or self.file.endswith(".model")

    @property
    def unread(self) -> str | None:
        """Says what is unlike AlbertTokenizer in a SentencePiece model; None if nothing is."""
        kind = self.config.get("tokenizer_class") or _PIECE_CLASSES[0]
        if kind in _PIECE_CLASSES or not self._has_pieces:
            return None
        return f"{self.file} is a SentencePiece vocabulary for {kind}, not {_PIECE_CLASSES[0]}"

    def _piece_vocab(self) -> Vocabulary | None:
        """Returns the vocabulary of a SentencePiece model, None if it is not AlbertTokenizer's."""
        if self.unread:
            return None
        with errors_at(self.file):
            if self.file.endswith(".model"):
                model = read_file(self.file)
            else:
                steps = _steps(self._whole.get("normalizer"))
                maps = (step.get("precompiled_charsmap", "") for step in steps)
                charsmap = base64.b64decode(next(filter(None, maps), ""))
                whole = self._whole["model"]
                model = model_of_pieces(whole.get("vocab", ()), whole.get("unk_id"), charsmap)
            vocab = Vocabulary.from_sentencepiece(model)
            if CHECKSUM in self.config:
                added = Vocabulary.from_values(vocab.lines, self.config).added
            else:
                names = dict(zip(vocab.written_names, SPECIAL_TOKENS, strict=True))
                added = _with_ids(self._added_tokens(), names, vocab.lines, len(vocab))
            strips = False if self.config.get("keep_accents") else None
            return replace(vocab, added=tuple(added), strip_accents=strips)

    def _stated(self, key: str, of_normalizer: str) -> bool | None:
        """Returns a value of tokenizer_config.json or of the normalizer, as transformers does."""
        if self._is_generic and self._normalizer:
            return self._normalizer.get(of_normalizer)
        return self.config.get(key, self._normalizer.get(of_normalizer))

    @property
    def _normalizer(self) -> Mapping[str, Any]:
        """The normalizer of tokenizer.json; {} if it is not BERT's."""
        found = _steps(self._whole.get("normalizer"))[0]
        return found if found.get("type") == "BertNormalizer" else {}

    @property
    def _is_generic(self) -> bool:
        """Whether transformers reads all parts of tokenizer.json."""
        return bool(self._whole) and self.config.get("tokenizer_class") in _GENERIC

    def _other_parts(self) -> list[str]:
        """Describes the parts of tokenizer.json that differ from BERT's tokenizer."""
        found = []
        for name, known in _PARTS.items():
            steps = [str(step.get("type", "null")) for step in _steps(self._whole.get(name))]
            if len(steps) > 1 or steps[0] not in known:
                found.append(f"the {name} of {WHOLE} is {', '.join(steps)}")
        template = self._template()
        for step in _steps(self._whole.get("post_processor")):
            theirs = step.get("single", template[:3]), step.get("pair", template)
            if theirs != (template[:3], template):
                found.append(f"the template of {WHOLE} is not [CLS] A [SEP] B [SEP]")
        for part, name, ours in (
            (self._whole["model"], "continuing_subword_prefix", "##"),
            (self._whole["model"], "max_input_chars_per_word", 100),
            (self._normalizer, "clean_text", True),
        ):
            if (value := part.get(name, ours)) != ours:
                found.append(f"{name} of {WHOLE} is {value!r}")
        return found

    def _template(self) -> list[dict[str, Any]]:
        """Returns BERT's template of two texts, in the form of tokenizer.json."""
        roles = ("cls_token", "sep_token")
        cls, sep = (_listed(self._named.get(x) or _ROLES[x])[0]["content"] for x in roles)
        parts = ((cls, 0), ("A", 0), (sep, 0), ("B", 1), (sep, 1))
        kinds = ("SpecialToken", "Sequence")
        return [{kinds[name in ("A", "B")]: {"id": name, "type_id": kind}} for name, kind in parts]

    def _names(self, lines: Sequence[str]) -> dict[str, str]:
        """Maps the names of special tokens to ours, and ours, if also in use, to theirs."""
        named = self._named | (self._whole["model"] if self._is_generic else {})
        found: dict[str, str] = {}
        for role, ours in _ROLES.items():
            for token in _listed(named.get(role)):
                if (theirs := token["content"]) != ours and theirs in lines:
                    found |= {ours: theirs, theirs: ours}
        return found

    @cached_property
    def _named(self) -> dict[str, Any]:
        """The special tokens that files name, as `_from_pretrained` of transformers finds them."""
        named = dict(self.config)
        if _OLD_EXTRA in named and not named.get(_EXTRA):
            named[_EXTRA] = named.pop(_OLD_EXTRA)
        if named.get(_DECODER) is None:
            others = read_json(os.path.join(self._folder, _SPECIAL), _NAMES)
            if isinstance(others.get(_EXTRA), list):
                others[_EXTRA] = _listed(named.get(_EXTRA)) + others[_EXTRA]
            named |= others
        return named

    def _added_tokens(self) -> list[dict[str, Any]]:
        """Returns the attributes of added tokens as transformers orders them: by ids, others."""
        decoder, named = self.config.get(_DECODER), dict(self._named)
        stated: dict[int, dict[str, Any]] = {}
        if decoder is None:
            special = {token["content"] for key in _NAMED for token in _listed(named.get(key))}
            added = read_json(os.path.join(self._folder, _ADDED), dict[str, int])
            for content, index in added.items():
                stated[index] = {"content": content, "special": content in special}
        named.setdefault(_EXTRA, named.get(_OLD_EXTRA))
        if decoder is None or self._is_generic:
            stated |= {token["id"]: dict(token) for token in self._whole.get("added_tokens") or ()}
        stated |= {int(index): dict(token) for index, token in (decoder or {}).items()}
        tokens = [token | {"id": index} for index, token in sorted(stated.items())]
        return tokens + [token for key in _NAMED for token in _listed(named.get(key))]


def _check_same(path: str, lines: Sequence[str], whole: str, tokenizer: Mapping[str, Any]) -> None:
    """Raises a ValueError if vocab.txt and tokenizer.json assign different tokens to an id."""
    ids = tokenizer.get("model", {}).get("vocab")
    if not isinstance(ids, dict):  # SentencePiece models have a list
        return
    for token, index in ids.items():
        if index in range(len(lines)) and lines[index].strip() != token.strip():
            raise ValueError(
                f"token {index} is {lines[index]!r} in {path}, but {token!r} in {whole}: "
                "remove the file that does not belong to the model"
            )


def _lines_of(path: str, tokenizer: Mapping[str, Any]) -> list[str]:
    """Returns the vocabulary in a tokenizer.json, blank at unused ids; [] if SentencePiece's."""
    model = tokenizer.get("model", {"type": _SENTENCEPIECE})
    if (kind := model.get("type") or _OURS) == _SENTENCEPIECE:
        return []
    with errors_at(f"{path} holds no vocabulary that BERT can use"):
        if kind != _OURS:
            raise ValueError(f"its model is {kind}, but BERT's is {_OURS}")
        ids = model.get("vocab")
        if not (isinstance(ids, dict) and any(ids)):
            raise ValueError("its model has no tokens")
        # Reading vocab.txt would change them.
        if wrong := [token for token in ids if "\n" in token or token.strip(" \t\r") != token]:
            raise ValueError(f"its token {wrong[0]!r} cannot be a line of {VOCAB}")
        tokens = {index: token for token, index in ids.items()}
        if max(tokens) >= _MOST_GAPS + len(tokens):
            raise ValueError(f"its largest id is {max(tokens)}, of {len(tokens)} tokens")
        last = max(index for index, token in tokens.items() if token)
        return [tokens.get(index, "") for index in range(last + 1)]


def _steps(part: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Returns the steps that a part of tokenizer.json takes, one after the other."""
    part = part or {}
    return next((part[key] for key in _STEPS if part.get(key)), [part])


def _listed(value: Any) -> list[dict[str, Any]]:
    """Returns the attributes of the tokens that a value of tokenizer_config.json names."""
    if isinstance(value, dict) and "content" not in value:
        value = list(value.values())
    values = value if isinstance(value, list) else [value]
    named = (x if isinstance(x, dict) else {"content": x, "special": True} for x in values if x)
    return [dict(token) for token in named]


def _with_ids(
    tokens: Iterable[dict[str, Any]], names: Mapping[str, str], lines: Sequence[str], size: int
) -> list[AddedToken]:
    """Gives added tokens their ids as `add_tokens` of tokenizers does, after `size` others.

    `names` are those that become others.
    """
    ids = {line: index for index, line in enumerate(lines)}
    added: dict[int, AddedToken] = {}
    contents = {""}
    for values in tokens:
        content = names.get(values["content"], values["content"])
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
