"""Writes vocabulary and casing as Hugging Face's tokenizers read them."""

import os

from bert_tf.config import ModelSpec
from bert_tf.run_folder import TOKENIZER, VOCAB, RunFolder
from tfrecords.vocabulary import SPECIAL_TOKENS, write_vocab


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
