"""SentencePiece models, as ALBERT's: checks them, and makes one from a tokenizer.json."""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

# What is read of sentencepiece_model.proto; other fields are kept.
_MESSAGES = """
name: "pieces.proto" package: "pieces" syntax: "proto2"
message_type { name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "score" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "type" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "1" } }
message_type { name: "Trainer"
  field { name: "model_type" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "1" }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL label: LABEL_OPTIONAL } }
message_type { name: "Normalizer"
  field { name: "precompiled_charsmap" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "escape_whitespaces" number: 5 type: TYPE_BOOL label: LABEL_OPTIONAL } }
message_type { name: "Model"
  field { name: "pieces" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".pieces.Piece" }
  field { name: "trainer_spec" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".pieces.Trainer" }
  field { name: "normalizer_spec" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".pieces.Normalizer" } }
"""
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()).SerializeToString()
)
_Model = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("pieces.Model"))
# Values of `model_type` and `type`.
_UNIGRAM = 1
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
# How much a piece such as "9," loses. No score of training is as low.
_LOSS = 100


def read_pieces(model: bytes) -> tuple[str, ...]:
    """Returns the pieces of a serialized model; the position of a piece is its id.

    Raises:
        ValueError: the bytes are no model, or one that ALBERT's tokenizer cannot use.
    """
    message = _parsed(model)
    spec = message.trainer_spec
    if spec.model_type != _UNIGRAM or spec.byte_fallback:
        raise ValueError("a SentencePiece model of another kind than ALBERT's (unigram)")
    if [x.type for x in message.pieces].count(_UNKNOWN) != 1:
        raise ValueError("not a SentencePiece model: it lacks a piece for unknown characters")
    return tuple(x.piece for x in message.pieces)


def scored_pieces(model: bytes) -> tuple[list[tuple[str, float]], bytes]:
    """Returns the pieces and scores of a serialized model, and the table that normalizes text."""
    message = _parsed(model)
    scores = [(x.piece, x.score) for x in message.pieces]
    return scores, message.normalizer_spec.precompiled_charsmap


def model_of_pieces(pieces: Iterable[tuple[str, float]], unk_id: int, charsmap: bytes) -> bytes:
    """Returns the serialized model of the pieces and scores in a tokenizer.json."""
    message = _Model()
    try:
        for index, (piece, score) in enumerate(pieces):
            kind = _UNKNOWN if index == unk_id else _NORMAL
            message.pieces.add(piece=piece, score=score, type=kind)
    except TypeError as error:
        raise ValueError(f"not pieces and scores ({error})") from None
    message.normalizer_spec.precompiled_charsmap = charsmap
    return message.SerializeToString(deterministic=True)


def as_albert_reads(model: bytes, special: Iterable[int]) -> bytes:
    """Returns a model that splits text as transformers' AlbertTokenizer does.

    A piece of a digit and a comma, such as "9,", is a last resort; every word begins with "▁";
    the `special` ids never occur in text.

    Source: transformers/convert_slow_tokenizer.py `AlbertConverter`.
    """
    message = _parsed(model)
    for piece in message.pieces:
        text = piece.piece
        if text[-1:] == "," and text[-2:-1].isdigit() and piece.score > -_LOSS:
            piece.score -= _LOSS
        if piece.type == _USER_DEFINED:
            piece.type = _NORMAL
    for index in special:
        if message.pieces[index].type != _UNKNOWN:
            message.pieces[index].type = _CONTROL
    spec = message.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = True
    return message.SerializeToString(deterministic=True)


def _parsed(model: bytes) -> Any:
    try:
        return _Model.FromString(model)
    except DecodeError as error:
        raise ValueError(f"not a SentencePiece model ({error})") from None
