"""Hugging Face's folders: config.json, model.safetensors, vocab.txt, tokenizer_config.json."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.base.files import read_json
from bert_tf.base.output_files import atomic_write, write_json
from bert_tf.base.process import needed
from bert_tf.base.storage import download_errors
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.text.tokenizer_files import TOKENIZER, TOKENIZER_FILES, WHOLE, TokenizerFiles
from bert_tf.weights.checkpoint import Checkpoint, matches, with_vocab
from bert_tf.weights.formats import huggingface_config
from bert_tf.weights.formats.architectures import ARCHITECTURES
from bert_tf.weights.formats.sentence_transformers import FILES as EMBEDDER_FILES
from bert_tf.weights.formats.sentence_transformers import transformer_folder
from bert_tf.weights.formats.tensor_files import FILE, INDEX, open_tensors
from bert_tf.weights.formats.tokenizer_json import tokenizer_json
from bert_tf.weights.translation import export_tensors, import_tensors
from tfrecords.vocabulary import write_vocab

NAME = "Hugging Face"
HF_CONFIG = "config.json"

_PICKLES = "pytorch_model*.bin*"
# Arguments of transformers' `from_pretrained` for the weights of other libraries than PyTorch.
_OTHERS = {"tf_model*.h5*": ", from_tf=True", "flax_model*.msgpack*": ", from_flax=True"}
_ADAPTERS = "adapter_model.*"
# Patterns of weight files, in order of precedence: the first one in a folder counts.
_WEIGHTS = (FILE, INDEX, _PICKLES, *_OTHERS, _ADAPTERS)


def recognizes(path: str) -> bool:
    """Returns whether a path is a folder of this format, or a file of weights in one."""
    if matches(os.path.basename(path), _WEIGHTS):
        return tf.io.gfile.exists(path)
    return bool(_weights(path))


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens a folder, or its model.safetensors."""
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path) or "."
    folder = transformer_folder(folder)
    config_file = os.path.join(folder, HF_CONFIG)
    values = read_json(config_file, huggingface_config.CONFIG_JSON)
    _check_weights(folder, values)
    if values:
        config = huggingface_config.read_config(config_file, values)
    if not config:
        raise FileNotFoundError(
            f"{folder} has no {HF_CONFIG}: convert it with convert_checkpoint --bert_config_file"
        )
    theirs, types = open_tensors(folder)
    type_name = config.model_type
    theirs = huggingface_config.named_as_usual(values.get("model_type", type_name), theirs)
    wanted = {name: theirs[name] for name in theirs if not matches(name, ignored)}
    prefix = any(name.startswith(f"{type_name}.") for name in wanted)
    old = any(name.endswith("LayerNorm.gamma") for name in wanted)
    head, classes = huggingface_config.read_head(config_file, values, wanted)
    table = huggingface_config.rows(config, head and head.kind, prefix, old)
    left_out = (*huggingface_config.copies(folder, type_name, wanted), *ignored)
    halves = sorted(types & {"float16", "bfloat16"})
    files = TokenizerFiles(folder)
    checkpoint = Checkpoint(
        path=folder,
        format=f"{NAME}, {' and '.join(halves)}" if halves else NAME,
        spec=ModelSpec(config),
        tensors=theirs,
        head=head,
        config_file=config_file if values else None,
        vocab_file=files.file,
        unread_vocab=files.unread,
    )
    checkpoint = import_tensors(checkpoint, table, left_out, classes)
    checkpoint = with_vocab(checkpoint, lambda: files.vocab)
    vocab = checkpoint.spec.vocab
    if vocab and len(vocab) < config.vocab_size:
        print(
            f"WARNING: {files.file} has {len(vocab)} tokens, fewer than the vocab_size "
            f"{config.vocab_size} of the configuration: unless the embeddings were padded to that "
            "size, the vocabulary is incomplete or belongs to another model."
        )
    spec = dataclasses.replace(checkpoint.spec, lower_case=files.lower_case)
    return dataclasses.replace(checkpoint, spec=spec)


def _weights(folder: str) -> list[str]:
    """Returns the names of the files of weights in a folder, in the order of `_WEIGHTS`."""
    folder = transformer_folder(folder)
    names = sorted(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else []
    return [name for pattern in _WEIGHTS for name in names if matches(name, [pattern])]


def _check_weights(folder: str, config: Mapping[str, Any]) -> None:
    """Raises a ValueError if the weights are in a form that is not read."""
    found = _weights(folder)[0]
    if found in (FILE, INDEX):
        return
    if matches(found, [_ADAPTERS]):
        raise ValueError(
            f"{folder} contains an adapter of peft, not a model: merge it into its model with "
            "merge_and_unload of peft, and save the result with save_pretrained"
        )
    model = next(iter(config.get("architectures") or ()), "BertModel")
    why = ", a pickle, which can run any code" if matches(found, [_PICKLES]) else ""
    other = next((x for pattern, x in _OTHERS.items() if matches(found, [pattern])), "")
    raise ValueError(
        f"{folder} holds its weights as {found}{why}: only {FILE} is read. If you trust the file, "
        f"convert it with transformers{' before version 5' if other else ''}: {model}."
        f"from_pretrained({folder!r}{other}).save_pretrained({folder!r})"
    )


def write(checkpoint: Checkpoint, folder: str) -> None:
    """Writes a folder that transformers' AutoModel... and AutoTokenizer load."""
    with needed("safetensors", "Hugging Face's form needs"):
        from safetensors.numpy import save
    values = huggingface_config.config_json(checkpoint)
    if checkpoint.spec.config.pruned_heads:
        print(
            f"WARNING: heads were removed from {checkpoint.path} (pruned_heads), which only "
            "transformers before version 5 can load"
        )
    kind = checkpoint.head and checkpoint.head.kind
    config = checkpoint.spec.config
    architecture = ARCHITECTURES[config.model_type]
    prefix = values["architectures"] != [f"{architecture.prefix}Model"]
    table = huggingface_config.rows(config, kind, prefix)
    tensors = dict(export_tensors(table, config, checkpoint.tensors))
    # Some versions of transformers refuse files without this mark.
    atomic_write(os.path.join(folder, FILE), save(tensors, metadata={"format": "pt"}))
    write_json(os.path.join(folder, HF_CONFIG), values)
    _write_tokenizer(checkpoint.spec, folder, architecture.tokenizer)


def _write_tokenizer(spec: ModelSpec, folder: str, others: Mapping[str, Any]) -> None:
    """Writes the vocabulary and the tokenizer_config.json that AutoTokenizer needs."""
    if not spec.vocab:
        return
    write_vocab(os.path.join(folder, spec.vocab.file_name), spec.vocab)
    if spec.vocab.sentencepiece:
        write_json(os.path.join(folder, WHOLE), tokenizer_json(spec.vocab, spec.lower_case), None)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    TokenizerFiles(folder).write(
        spec.vocab,
        spec.lower_case,
        model_max_length=spec.config.max_position_embeddings,
        **dict(zip(names, spec.vocab.written_names, strict=True)),
        **others,
    )
    if spec.lower_case is None:
        print(
            f"WARNING: the casing of the vocabulary is unknown: transformers will lower-case text "
            f'unless you add "do_lower_case": false to {TOKENIZER}.'
        )


def download(name: str) -> str:
    """Downloads org/name or org/name@revision of the Hugging Face Hub, unless its cache has it."""
    with needed("huggingface_hub safetensors", f"hf:{name} needs"):
        from huggingface_hub import snapshot_download
    repository, _, revision = name.partition("@")
    patterns = [HF_CONFIG, FILE, INDEX, "model-*.safetensors", *TOKENIZER_FILES, *EMBEDDER_FILES]
    patterns += [f"0_*/{pattern}" for pattern in patterns]
    with download_errors(f"hf:{name}"):
        folder = snapshot_download(repository, revision=revision or None, allow_patterns=patterns)
    if not recognizes(folder):
        raise ValueError(
            f"hf:{name} has no {FILE}: name a revision that has one, such as "
            f"hf:{repository}@refs/pr/1 if a pull request adds it; or, if you trust the model, "
            "convert it with transformers: from_pretrained, then save_pretrained"
        )
    return folder
