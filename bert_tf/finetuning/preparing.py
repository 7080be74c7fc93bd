"""What training and evaluation begin with: the encoder, the task, and its tokenized splits."""

import dataclasses
from collections.abc import Callable, Collection

from bert_tf.base.choices import VECTOR_TYPES
from bert_tf.config import Head, ModelSpec
from bert_tf.finetuning import saved_run
from bert_tf.finetuning.examples import draw_examples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task, with_length
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.tokenizing import Features
from bert_tf.runs.run import Run
from bert_tf.sessions.session import Session
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, settings_of
from bert_tf.weights.resolving import resolve_model
from tfrecords.vocabulary import warn_about_casing


def model_spec(session: Session) -> ModelSpec:
    """Returns the encoder's configuration with its vocabulary and casing."""
    options = session.options
    spec = resolve_model(session.resumed, options, init=session.init, mapping=session.mapping)
    if spec.vocab is None:
        raise ValueError("no vocab.txt beside --init_checkpoint: give --vocab_file")
    return dataclasses.replace(spec, lower_case=spec.lower_case is not False)


def prepare(
    session: Session, head: Head | None, task: Task | None
) -> tuple[Session, ModelSpec, Task]:
    """Completes the flags with what the initial checkpoint decides, and makes their task.

    `head` is that of a model which learned the task already; a `task` replaces that of the flags.
    Training of vectors goes on as the checkpoint computes them: with its pooling and dense layer.
    """
    spec, options, init, vectors = model_spec(session), session.options, session.init, None
    if options.label_type in VECTOR_TYPES:
        vectors = (init and settings_of(init, options.pooling)) or EmbeddingSettings()
        values = dataclasses.asdict(vectors.head) | {"max_seq_length": vectors.max_seq_length}
        unset = {x: y for x, y in values.items() if getattr(options, x, 0) is None}
        options = options.changed(**unset)
        if vectors.dense:
            init = dataclasses.replace(init, tensors={**init.tensors, **vectors.dense})
    options = with_length(options, spec.config, session.say)
    if not task:
        task = make_task(options, head)
        if vectors and not head:
            layer = dict(outputs=vectors.head.outputs, activation=vectors.head.activation)
            task = dataclasses.replace(task, head=dataclasses.replace(task.head, **layer))
    return dataclasses.replace(session, options=options, init=init), spec, task


def read_reported(
    session: Session, task: Task, spec: ModelSpec, others: Collection[str] = ()
) -> tuple[list[str], dict[str, Features]]:
    """Reads the splits to report, and others; returns the names of the former, and all splits."""
    warn_about_casing(spec.vocab, spec.lower_case, say=session.say)
    options, optional = session.options, task.optional_splits
    reported = list(task.dev_splits) if options.do_eval else []
    if options.do_predict:
        reported += task.test_splits
    else:
        if options.do_eval:
            reported += [name for name in task.test_splits if name not in optional]
        # A test set that no flag names may be missing or have no answers.
        optional = () if options.test_file else task.test_splits
    names = dict.fromkeys([*others, *reported])
    splits = read_features(options, task, spec, names, session.say, optional)
    return [name for name in reported if name in splits], splits


def read_features(
    options: FineTuningOptions,
    task: Task,
    spec: ModelSpec,
    names: Collection[str],
    say: Callable[[str], None],
    optional: Collection[str] = (),
) -> dict[str, Features]:
    """Reads and tokenizes some splits.

    Leaves out `optional` splits without a file and, without --do_predict, those without targets.
    """
    tokenizer = make_tokenizer(spec.vocab, spec.lower_case)
    files, splits = DataFiles.of(options), {}
    found = task.read_splits([x for x in names if x not in optional], files)
    if options.num_train_examples and TRAIN in found:
        arguments = options.num_train_examples, options.random_seed
        found[TRAIN] = draw_examples(found[TRAIN], *arguments)
    for name in filter(optional.__contains__, names):
        try:
            found |= task.read_splits([name], files)
        except FileNotFoundError as error:
            if options.do_predict:
                say(f"WARNING: no predictions for {name.upper()}: {error}.")
    for name, examples in found.items():
        features = task.featurize(examples, tokenizer, options.max_seq_length)
        if features.targets or options.do_predict or name not in optional:
            splits[name] = features
            say(f"{name}: {features.describe()}")
    return splits


def checked_splits(options: FineTuningOptions, task: Task) -> list[str]:
    """Returns the splits that a finished run must find as they were."""
    return [*([] if options.changes_examples else [TRAIN]), task.dev_splits[0]]


def check_data_of(options: FineTuningOptions) -> None:
    """Checks that the data of a finished run has not changed."""
    run = Run(options.output_dir)
    options = saved_run.own_flags(options, run)
    task = make_task(options, run.head)
    names = checked_splits(options, task)
    splits = read_features(options, task, run.spec, names, lambda line: None)
    saved_run.check_same_data(run, splits)
