"""The tokenizer.json of an ALBERT: without it, transformers 5 splits words at punctuation."""

import base64
import dataclasses
from typing import Any

from tfrecords.sentencepiece import as_albert_reads, scored_pieces
from tfrecords.vocabulary import CLS, SEP, SPECIAL_TOKENS, AddedToken, Vocabulary


def tokenizer_json(vocab: Vocabulary, lower_case: bool) -> dict[str, Any]:
    """Returns the content of a tokenizer.json for the vocabulary of a SentencePiece model.

    Source: transformers/convert_slow_tokenizer.py `AlbertConverter`.
    """
    scores, charsmap = scored_pieces(as_albert_reads(vocab.sentencepiece, ()))
    names = zip(SPECIAL_TOKENS, vocab.written_names, strict=True)
    special = [AddedToken(vocab.ids[x], y, normalized=False, special=True) for x, y in names]
    added = sorted([*special, *vocab.added], key=lambda token: token.id)
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
    metaspace["split"] = True
    steps = [_replace("``"), _replace("''")]
    if vocab.strip_accents is not False:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lower_case:
        steps.append({"type": "Lowercase"})
    if charsmap:
        text = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": text})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [dataclasses.asdict(token) for token in added],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "post_processor": _template(vocab),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": vocab.unk_id,
            "vocab": scores,
            "byte_fallback": False,
        },
    }


def _replace(quotes: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}


def _template(vocab: Vocabulary) -> dict[str, Any]:
    def part(name: str, type_id: int) -> dict[str, Any]:
        kind = "Sequence" if name in ("A", "B") else "SpecialToken"
        return {kind: {"id": name, "type_id": type_id}}

    single = [part(CLS, 0), part("A", 0), part(SEP, 0)]
    tokens = {x: {"id": x, "ids": [vocab.ids[x]], "tokens": [x]} for x in (CLS, SEP)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, part("B", 1), part(SEP, 1)],
        "special_tokens": tokens,
    }
