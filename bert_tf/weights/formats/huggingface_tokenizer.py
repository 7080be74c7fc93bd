"""Vocabulary and casing in the files of Hugging Face's tokenizers."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from bert_tf.config import ModelSpec
from bert_tf.json_files import read_json
from bert_tf.run_folder import TOKENIZER, VOCAB, RunFolder
from bert_tf.weights.formats import albert
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, write_vocab

# The whole tokenizer in one file. Newer versions of transformers write no vocab.txt beside it.
WHOLE = "tokenizer.json"
# The classes that split text as BERT does; others, such as BertJapaneseTokenizer, find words first.
_CLASSES = (
    *("BertTokenizer", "BertTokenizerFast", "MobileBertTokenizer", "MobileBertTokenizerFast"),
    *("PreTrainedTokenizerFast", "TokenizersBackend"),
)

# The type of such models in tokenizer.json.
_SENTENCEPIECE = "Unigram"


def read_vocab(folder: str, vocab_size: int) -> tuple[Vocabulary | None, str | None]:
    """Reads vocab.txt, or else tokenizer.json.

    Args:
        vocab_size: that of the configuration.

    Returns:
        the vocabulary, and a vocab.txt that holds it; (None, None) if there is none. Prints a
        warning if it has fewer tokens than `vocab_size`.

    Raises:
        ValueError: a file is damaged or has more tokens than `vocab_size`, or the two files
            contradict each other.
        OSError: a file cannot be read.
    """
    path, vocab = os.path.join(folder, VOCAB), RunFolder(folder).read_vocab()
    whole = os.path.join(folder, WHOLE)
    tokenizer = read_json(whole)
    if vocab:
        _check_same(path, vocab, whole, tokenizer)
    else:
        path, vocab = whole, _vocab_of(whole, tokenizer)
    if vocab and len(vocab) > vocab_size:
        raise ValueError(
            f"{path} has {len(vocab)} tokens, more than the vocab_size {vocab_size} of the "
            "configuration: use files that belong together"
        )
    if vocab and len(vocab) < vocab_size:
        print(
            f"WARNING: {path} has {len(vocab)} tokens, fewer than the vocab_size {vocab_size} of "
            "the configuration: unless the embeddings were padded to that size, the vocabulary is "
            "incomplete or belongs to another model."
        )
    if vocab and os.path.basename(path) == WHOLE:
        path = _temporary_vocab_file(vocab)
    return vocab, path if vocab else None


def _check_same(path: str, vocab: Vocabulary, whole: str, tokenizer: Mapping[str, Any]) -> None:
    """Raises a ValueError if vocab.txt and tokenizer.json assign different tokens to an id."""
    model = tokenizer.get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict):  # SentencePiece models have a list
        return
    for token, index in ids.items():
        if index in range(len(vocab)) and vocab.tokens[index] != token.strip(" \t\r"):
            raise ValueError(
                f"token {index} is {vocab.tokens[index]!r} in {path}, but {token!r} in {whole}: "
                "remove the file that does not belong to the model"
            )


def _vocab_of(path: str, tokenizer: Mapping[str, Any]) -> Vocabulary | None:
    """Returns the vocabulary in the content of a tokenizer.json.

    Returns None if there is no content, or if it is a SentencePiece model.
    """
    if not tokenizer:
        return None
    try:
        model = tokenizer["model"]
        if (kind := model.get("type", "WordPiece")) == _SENTENCEPIECE:
            return None
        if kind != "WordPiece":
            raise ValueError(f"its model is {kind}, but BERT's is WordPiece")
        ids = dict(model["vocab"])
        ids |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
        # Reading vocab.txt would change them.
        if wrong := [token for token in ids if "\n" in token or token.strip(" \t\r") != token]:
            raise ValueError(f"its token {wrong[0]!r} cannot be a line of {VOCAB}")
        tokens = {index: token for token, index in ids.items()}
        if missing := [index for index in range(len(ids)) if index not in tokens]:
            raise ValueError(f"no token has id {missing[0]}")
        return Vocabulary(tuple(tokens[index] for index in range(len(ids))))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} holds no vocabulary ({error}): download or copy it again"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def sentencepiece_file(folder: str) -> str | None:
    """Returns the file with a SentencePiece vocabulary; None if there is none."""
    whole = os.path.join(folder, WHOLE)
    model = read_json(whole).get("model")
    found = isinstance(model, dict) and model.get("type") == _SENTENCEPIECE
    return albert.sentencepiece_file(folder) or (whole if found else None)


def _temporary_vocab_file(vocab: Vocabulary) -> str:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, VOCAB)
    write_vocab(path, vocab)
    return path


def read_lower_case(folder: str) -> bool | None:
    """Reads whether text is lower-cased; returns None if no file states it.

    Prints a warning if the tokenizer splits text differently from ours.

    Raises:
        ValueError: a file is damaged.
        OSError: a file cannot be read.
    """
    path = os.path.join(folder, TOKENIZER)
    stated, normalizer = read_json(path), _normalizer(read_json(os.path.join(folder, WHOLE)))
    lower_case = RunFolder(folder).read_lower_case()
    if lower_case is None:
        lower_case = normalizer.get("lowercase")
    accents = stated.get("strip_accents", normalizer.get("strip_accents"))
    ideographs = stated.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars"))
    kind = stated.get("tokenizer_class") or _CLASSES[0]
    differences = {
        f"strip_accents is {accents} with do_lower_case {lower_case}": accents
        not in (None, lower_case),
        "tokenize_chinese_chars is False": ideographs is False,
        f"tokenizer_class is {kind}": kind not in _CLASSES,
    }
    for difference in (text for text, differs in differences.items() if differs):
        print(
            f"WARNING: {path}: {difference}, which bert_tf does not support: some texts will get "
            "other tokens than in transformers."
        )
    return lower_case


def _normalizer(tokenizer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the normalizer in the content of a tokenizer.json; {} if it is not BERT's."""
    found = tokenizer.get("normalizer")
    return found if isinstance(found, dict) and found.get("type") == "BertNormalizer" else {}


def write_tokenizer(spec: ModelSpec, folder: str) -> None:
    """Writes vocab.txt and the tokenizer_config.json that AutoTokenizer needs.

    Raises:
        OSError: a file cannot be written.
    """
    if not spec.vocab:
        return
    write_vocab(os.path.join(folder, VOCAB), spec.vocab)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    RunFolder(folder).write_tokenizer(
        spec.vocab,
        spec.lower_case,
        model_max_length=spec.config.max_position_embeddings,
        **dict(zip(names, SPECIAL_TOKENS, strict=True)),
    )
    if spec.lower_case is None:
        print(
            f"WARNING: the casing of the vocabulary is unknown: transformers will lower-case text "
            f'unless you add "do_lower_case": false to {TOKENIZER}.'
        )
