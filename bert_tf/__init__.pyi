"""The Python interface. `python docs/types.py` writes this file."""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from bert_tf import plots as plots
from bert_tf.api.trained_run import TrainedRun as TrainedRun
from bert_tf.api.trained_run import open_run as open_run
from bert_tf.cli import ablation as ablation
from bert_tf.cli import build_vocab as build_vocab
from bert_tf.cli import completion as completion
from bert_tf.cli import compress as compress
from bert_tf.cli import convert_checkpoint as convert_checkpoint
from bert_tf.cli import create_pretraining_data as create_pretraining_data
from bert_tf.cli import device_check as device_check
from bert_tf.cli import explore as explore
from bert_tf.cli import extract_features as extract_features
from bert_tf.cli import fill_mask as fill_mask
from bert_tf.cli import glue_submission as glue_submission
from bert_tf.cli import predict as predict
from bert_tf.cli import quickstart as quickstart
from bert_tf.cli import results as results
from bert_tf.cli import run_finetuning as run_finetuning
from bert_tf.cli import run_pretraining as run_pretraining
from bert_tf.config import Size as Size
from bert_tf.config import preset_config as preset_config
from bert_tf.config.bert_config import BertConfig as BertConfig
from bert_tf.finetuning.lora import load_adapters as load_adapters
from bert_tf.inference.explorer.server import NotebookPage as NotebookPage
from bert_tf.inference.loading import load as load
from bert_tf.inference.loading import load_preprocessor as load_preprocessor
from bert_tf.inference.masks import MaskFiller as MaskFiller
from bert_tf.inference.predictor import Predictor as Predictor
from bert_tf.inference.text_embedder import load_embedder as load_embedder
from bert_tf.models.bert_encoder import BertEncoder as BertEncoder
from bert_tf.models.bert_encoder import attention_probabilities as attention_probabilities
from bert_tf.models.pretrainer import BertPretrainer as BertPretrainer
from bert_tf.models.task_model import BertTaskModel as BertTaskModel
from bert_tf.text.bert_preprocessor import BertPreprocessor as BertPreprocessor
from bert_tf.text.bert_preprocessor import pack_segments as pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer as WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary as Vocabulary
from tfrecords.vocabulary import load_vocab as load_vocab

# A list stands for comma-separated values.
_Text: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | int | float]
REVIEWS: str
__version__: str
PRESETS: dict[str, Size]

def build_vocabulary(
    input_file: _Text | None = None,
    output_file: _Text | None = None,
    *,
    vocab_size: int | None = 30522,
    do_lower_case: bool | None = None,
    extend_vocab: _Text | None = None,
    num_new_tokens: int | None = 1000,
    report_vocab: _Text | None = None,
    overwrite: bool | None = False,
    tfds: _Text | None = None,
    unwrap: bool | None = False,
    split_sentences: bool | None = False,
    placement: Literal["append", "unused"] | None = "append",
    num_workers: int | None = None,
    document_separator: _Text | None = None,
    language: _Text | None = "en",
    clean: bool | None = None,
    text_field: _Text | None = "text",
    quiet: bool | None = False,
) -> Vocabulary:
    """Builds, extends or measures a WordPiece vocabulary (vocab.txt).

    `help(bert_tf.build_vocabulary)` explains the arguments.
    """
    ...

def create_examples(
    input_file: _Text | None = None,
    *,
    output_file: _Text,
    vocab_file: _Text,
    num_shards: int | None = None,
    do_lower_case: bool | None = None,
    masking: Literal["wordpiece", "whole_word", "ngram", "span", "entity", "dynamic"] | None = None,
    objective: Literal["nsp", "sop", "mlm"] | None = "nsp",
    max_seq_length: int | None = 128,
    max_predictions_per_seq: int | None = 20,
    dupe_factor: int | None = None,
    dry_run: bool | None = False,
    tfds: _Text | None = None,
    unwrap: bool | None = False,
    split_sentences: bool | None = False,
    overwrite: bool | None = False,
    do_whole_word_mask: bool | None = False,
    max_ngram_size: int | None = None,
    lexicon_file: _Text | None = None,
    segmenter: _Text | None = None,
    cross_documents: bool | None = True,
    random_seed: int | None = 12345,
    masked_lm_prob: float | None = 0.15,
    short_seq_prob: float | None = 0.1,
    gzip_compress: bool | None = False,
    use_v2_feature_names: bool | None = False,
    document_separator: _Text | None = None,
    language: _Text | None = "en",
    clean: bool | None = None,
    text_field: _Text | None = "text",
    num_workers: int | None = None,
    runner: Literal[
        "local",
        "DirectRunner",
        "DataflowRunner",
        "FlinkRunner",
        "SparkRunner",
        "DaskRunner",
        "PortableRunner",
    ]
    | None = "local",
    beam_options: _Text | None = None,
    quiet: bool | None = False,
) -> str:
    """Creates masked-LM and sentence-pair examples for run_pretraining.

    `help(bert_tf.create_examples)` explains the arguments.
    """
    ...

def pretrain(
    input_file: _Text,
    output_dir: _Text,
    *,
    do_train: bool | None = True,
    do_eval: bool | None = True,
    init_checkpoint: _Text | None = None,
    bert_config_file: _Text | None = None,
    preset: _Text | None = None,
    eval_input_file: _Text | None = None,
    train_batch_size: int | None = 32,
    learning_rate: float | None = 5e-05,
    num_train_steps: int | None = 100000,
    num_warmup_steps: int | None = 10000,
    save_checkpoints_steps: int | None = 1000,
    precision: Literal["float32", "bfloat16", "float16"] | None = "float32",
    strategy: Literal["auto", "cpu", "gpu", "multi_worker", "tpu"] | None = "auto",
    init_vocab_mapping: _Text | None = None,
    phases_file: _Text | None = None,
    vocab_file: _Text | None = None,
    replace_vocab: bool | None = False,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    masking: Literal["wordpiece", "whole_word", "left_to_right"] | None = None,
    masked_lm_prob: float | None = None,
    eval_masked_lm_prob: float | None = None,
    replacements: _Text | None = None,
    objective: Literal["nsp", "sop", "mlm"] | None = None,
    eval_batch_size: int | None = 8,
    gradient_accumulation_steps: int | None = 1,
    rematerialize: Literal["none", "selective", "layers"] | None = None,
    optimizer: Literal["adamw", "lamb"] | None = "adamw",
    bias_correction: bool | None = None,
    log_steps: int | None = 100,
    keep_checkpoints: int | None = 5,
    iterations_per_loop: int | None = 1000,
    max_eval_steps: int | None = 100,
    random_seed: int | None = 12345,
    worker_hosts: _Text | None = None,
    task_index: int | None = None,
    use_tpu: bool | None = False,
    tpu_name: _Text | None = None,
    tpu_zone: _Text | None = None,
    gcp_project: _Text | None = None,
    quiet: bool | None = False,
) -> TrainedRun:
    """Pre-trains an encoder on the examples that create_pretraining_data wrote.

    `help(bert_tf.pretrain)` explains the arguments.
    """
    ...

def finetune(
    init_checkpoint: _Text | None = None,
    train: Any = None,
    *,
    dev: Any = None,
    test: Any = None,
    task: _Text | None = "csv",
    output_dir: _Text,
    do_train: bool | None = True,
    do_eval: bool | None = True,
    do_predict: bool | None = False,
    max_seq_length: int | None = None,
    train_batch_size: int | None = 32,
    learning_rate: float | None = 5e-05,
    num_train_epochs: float | None = 3.0,
    num_seeds: int | None = 1,
    grid: bool | None = False,
    data_dir: _Text | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = "float32",
    strategy: Literal["auto", "cpu", "gpu", "multi_worker", "tpu"] | None = "auto",
    init_vocab_mapping: _Text | None = None,
    bert_config_file: _Text | None = None,
    preset: _Text | None = None,
    vocab_file: _Text | None = None,
    replace_vocab: bool | None = False,
    do_lower_case: bool | None = None,
    eval_batch_size: int | None = 32,
    num_train_examples: int | None = None,
    warmup_proportion: float | None = 0.1,
    random_seed: int | None = 12345,
    bias_correction: bool | None = True,
    metric: _Text | None = None,
    early_stopping: int | None = None,
    class_weights: _Text | None = None,
    freeze_encoder: bool | None = False,
    lora_rank: int | None = None,
    lora_alpha: float | None = 16.0,
    layer_decay: float | None = 1.0,
    text_column: _Text | None = None,
    text_b_column: _Text | None = None,
    negative_column: _Text | None = None,
    label_column: _Text | None = None,
    label_type: Literal["class", "classes", "number", "tags", "similarity", "pairs"]
    | None = "class",
    label_separator: _Text | None = None,
    tsv_quotes: bool | None = None,
    pooling: Literal["mean", "cls", "max"] | None = None,
    normalize: bool | None = None,
    temperature: float | None = 0.05,
    document_context: bool | None = True,
    feature_based: Literal[
        "embeddings",
        "last",
        "second_to_last",
        "sum_last_four",
        "concat_last_four",
        "weighted_sum_last_four",
        "weighted_sum_all",
    ]
    | None = None,
    doc_stride: int | None = 128,
    max_query_length: int | None = 64,
    n_best_size: int | None = None,
    max_answer_length: int | None = None,
    null_score_diff_threshold: float | None = None,
    worker_hosts: _Text | None = None,
    task_index: int | None = None,
    use_tpu: bool | None = False,
    tpu_name: _Text | None = None,
    tpu_zone: _Text | None = None,
    gcp_project: _Text | None = None,
    quiet: bool | None = False,
) -> TrainedRun:
    """Fine-tunes a pre-trained encoder on a task.

    `help(bert_tf.finetune)` explains the arguments.
    """
    ...

def export_encoder(
    checkpoint: _Text,
    output_dir: _Text,
    *,
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = "float32",
    license: _Text | None = None,
    vocab_file: _Text | None = None,
    replace_vocab: bool | None = False,
    do_lower_case: bool | None = None,
    quiet: bool | None = False,
) -> str:
    """Exports a pre-trained encoder as a SavedModel that hub.KerasLayer loads.

    `help(bert_tf.export_encoder)` explains the arguments.
    """
    ...

def export_classifier(
    checkpoint: _Text,
    output_dir: _Text,
    *,
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = "float32",
    license: _Text | None = None,
    max_seq_length: int | None = None,
    pairs: bool | None = False,
    null_score_diff_threshold: float | None = None,
    vocab_file: _Text | None = None,
    do_lower_case: bool | None = None,
    quiet: bool | None = False,
) -> str:
    """Exports a fine-tuned model as a SavedModel from text to predictions.

    `help(bert_tf.export_classifier)` explains the arguments.
    """
    ...

def export_embedder(
    checkpoint: _Text,
    output_dir: _Text,
    *,
    pooling: Literal["mean", "cls", "max"] | None = None,
    normalize: bool | None = None,
    max_seq_length: int | None = None,
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = "float32",
    license: _Text | None = None,
    vocab_file: _Text | None = None,
    do_lower_case: bool | None = None,
    quiet: bool | None = False,
) -> str:
    """Exports a SavedModel that maps text to vectors.

    `help(bert_tf.export_embedder)` explains the arguments.
    """
    ...

def load_predictor(
    checkpoint: _Text | os.PathLike[str] | Sequence[_Text | os.PathLike[str]],
    *,
    vocab_file: _Text | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    pairs: bool | None = False,
    null_score_diff_threshold: float | None = None,
    batch_size: int | None = 32,
) -> Predictor:
    """Loads a fine-tuned model to predict new texts, as the command `predict` does.

    `help(bert_tf.load_predictor)` explains the arguments.
    """
    ...

def load_mask_filler(
    checkpoint: _Text,
    *,
    vocab_file: _Text | None = None,
    do_lower_case: bool | None = None,
    top_k: int | None = None,
    targets: _Text | None = (),
) -> MaskFiller:
    """Loads a pre-trained model to predict the words behind [MASK], as `fill_mask` does.

    `help(bert_tf.load_mask_filler)` explains the arguments.
    """
    ...

def notebook_page(
    checkpoint: _Text,
    *texts: str,
    vocab_file: _Text | None = None,
    do_lower_case: bool | None = None,
    top_k: int | None = 5,
    max_seq_length: int | None = None,
) -> NotebookPage:
    """Returns the page for a notebook; without texts, it shows examples.

    `help(bert_tf.notebook_page)` explains the arguments.
    """
    ...
