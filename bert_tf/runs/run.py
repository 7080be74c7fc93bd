"""A run on disk: everything that its folder keeps.

    bert_config.json        the encoder's configuration
    vocab.txt               its vocabulary, or spiece.model, the SentencePiece model of an ALBERT
    tokenizer_config.json   its casing and added tokens, in the form that Hugging Face's tokenizers
                            read, and a checksum of the vocabulary
    flags.json              the flags of the last start
    made_from.json          what it was made from: checksums of records, of data, of other models
    head.json               of a fine-tuned model: what its head predicts
    ckpt-STEP.*             checkpoints; `checkpoint` names the newest
    metrics.jsonl, eval_metrics.jsonl, eval_results.txt, curves.png, train/, eval/   reports
    lock                    names the process that is training here; see `output_files.locked`
    best/                   after fine-tuning: the best weights, a run folder of its own

Vocabulary and casing are missing if no source stated them, as with records of other programs.
"""

import os
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf

from bert_tf.base.files import errors_at, read_json
from bert_tf.base.made import MADE, Inputs, Made
from bert_tf.base.output_files import check_free, write_json
from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.text.tokenizer_files import CHECKSUM, TOKENIZER, VOCAB, TokenizerFiles
from bert_tf.training.checkpoints import BEST, check_name
from tfrecords.vocabulary import SPIECE, Vocabulary, write_vocab

CONFIG = "bert_config.json"
FLAGS = "flags.json"
# The key in flags.json for the command that trains the run.
COMMAND = "command"
# The key in flags.json for the objective of pre-training, that of the flag or of the records.
LEARNED_OBJECTIVE = "learned_objective"
# The key in flags.json for a few texts of the records.
SOME_TEXTS = "some_texts"
# The key in flags.json for whether a fine-tuning run took all its steps.
FINISHED = "finished"
MADE_FROM = "made_from.json"
HEAD = "head.json"
# What a new run writes first, or into every folder.
_FILES = (CONFIG, VOCAB, SPIECE, TOKENIZER, FLAGS, MADE_FROM, HEAD, "checkpoint", "curves.png")
_FILES += ("metrics.jsonl", "eval_metrics.jsonl", "eval_results.txt", "eval_results.json")
# In a folder of several runs: which is the best, among others.
SWEEP_RESULTS = "results.json"
# The flags that other commands read, and what runs add to them.
_FLAGS = {"task?": str, "command?": str, "finished?": bool, "normalize?": bool | None}
_FLAGS |= {"split_files?": list[str], "in_memory?": list[str], "pooling?": str | None}
_FLAGS |= {"some_texts?": list[str], "tsv_quotes?": bool | None}
_FLAGS |= {"label_type?": str | None, "objective?": str | None, "learned_objective?": str}
_FLAGS |= dict.fromkeys(("label_column?", "text_column?", "text_b_column?"), str | None)
_FLAGS |= dict.fromkeys(("max_seq_length?", "max_query_length?", "doc_stride?"), int | None)
_FLAGS |= dict.fromkeys(("random_seed?", "lora_rank?"), int | None)


class Run:
    """A run on disk; see the module's docstring for the files.

    Each file is read once, when it is first needed. The folder need not exist yet.
    """

    def __init__(self, path: str):
        self.path = path

    def file(self, name: str) -> str:
        """Returns the path of a file of the folder."""
        return os.path.join(self.path, name)

    @cached_property
    def has_checkpoint(self) -> bool:
        """Whether the folder holds a checkpoint."""
        check_name(self.path)
        return bool(tf.io.gfile.glob(self.file("ckpt-*.index")))

    @cached_property
    def config(self) -> BertConfig:
        """The configuration."""
        return BertConfig.from_json_file(self.file(CONFIG))

    def config_or(self, config: BertConfig | None) -> BertConfig:
        """Returns the configuration of the folder, or `config` if it has none."""
        return config if config and not tf.io.gfile.exists(self.file(CONFIG)) else self.config

    @cached_property
    def _tokenizer(self) -> TokenizerFiles:
        return TokenizerFiles(self.path)

    @cached_property
    def vocab(self) -> Vocabulary | None:
        """The vocabulary; None if there is none."""
        vocab, path = self._tokenizer.vocab, self._tokenizer.file
        if vocab and self._tokenizer.config.get(CHECKSUM, vocab.sha256) != vocab.sha256:
            raise ValueError(
                f"{path} has changed since it was written: restore it, or, if you changed it on "
                f'purpose, remove "{CHECKSUM}" from {self.file(TOKENIZER)}'
            )
        return vocab

    @property
    def vocab_file(self) -> str:
        """The path of the file that holds the vocabulary, if there is any."""
        return self._tokenizer.file

    @cached_property
    def lower_case(self) -> bool | None:
        """The casing; None if it is not stated."""
        return self._tokenizer.lower_case

    @property
    def spec(self) -> ModelSpec:
        """Configuration, vocabulary and casing."""
        return ModelSpec(self.config, self.vocab, self.lower_case)

    def read_json(self, name: str, kind: Any = dict[str, Any]) -> Any:
        """Reads a JSON file of the folder, of a declared kind; returns {} if there is none."""
        return read_json(self.file(name), kind)

    @cached_property
    def flags(self) -> dict[str, Any]:
        """The flags of the last start; {} if there are none."""
        return self.read_json(FLAGS, _FLAGS)

    @property
    def finished(self) -> bool | None:
        """Whether a fine-tuning run took all its steps; None if the folder holds none."""
        return self.flags.get(FINISHED)

    def changed_flags(self, flags: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Returns those of some flags that changed since the last start: name -> (then, now)."""
        then, names = self.flags, sorted(self.flags.keys() & flags.keys())
        return {name: (then[name], flags[name]) for name in names if then[name] != flags[name]}

    def check_flags(
        self,
        flags: Mapping[str, Any],
        advice: str = "choose another --output_dir, or use the same command to resume",
    ) -> None:
        """Checks that these flags have not changed since the last start."""
        changed = self.changed_flags(flags)
        then, now = (Made({x: source[x] for x in changed}) for source in (self.flags, flags))
        then.check(self.path, now, advice)

    @cached_property
    def made_from(self) -> Made:
        """The inputs on record: all that a run was made from since it began.

        A run that stopped before its first checkpoint may begin again with others.
        """
        if self.flags and not (self.has_checkpoint or self.finished):
            return Made()
        return Made.from_dict(self.read_json(MADE_FROM, MADE))

    def check_made_from(
        self,
        inputs: Inputs,
        advice: str = "choose another --output_dir",
        needed: Collection[str] = (),
    ) -> None:
        """Checks that inputs are those on record; one that is not on record is new, unless needed.

        `advice` says what to do about other inputs.
        """
        now = Made(inputs=inputs)
        then = self.made_from.only(now.sets)
        then.check(self.path, now.only({*then.sets, *needed}), advice)

    def record_made_from(self, inputs: Inputs) -> None:
        """Writes inputs beside those on record."""
        sets = self.made_from.sets | Made(inputs=inputs).sets
        made = Made(inputs=[x for entries in sets.values() for x in entries])
        write_json(self.file(MADE_FROM), made.to_dict(), indent=1, sort_keys=True)
        self._forget()

    def check_own(self) -> None:
        """Raises a FileExistsError if a new run would replace files that no run wrote."""
        if COMMAND not in self.flags and not self.has_checkpoint:
            advice = "no run wrote it, so move it away, or choose another --output_dir"
            check_free(*map(self.file, _FILES), advice=advice)

    def write(
        self, spec: ModelSpec, flags: Mapping[str, Any] | None = None, head: Head | None = None
    ) -> None:
        """Writes what is known about the model and, if given, the flags, which mark a run."""
        self._forget()
        if flags is not None:
            write_json(self.file(FLAGS), dict(flags), default=str)
        spec.config.to_json_file(self.file(CONFIG))
        if spec.vocab:
            write_vocab(self.file(spec.vocab.file_name), spec.vocab)
        if spec.vocab or spec.lower_case is not None:
            length = spec.config.max_position_embeddings
            self._tokenizer.write(spec.vocab, spec.lower_case, model_max_length=length)
        if head:
            self.write_head(head)

    def _forget(self) -> None:
        """Makes the next use of a file read it again."""
        for name in vars(self).keys() - {"path"}:
            del vars(self)[name]

    @cached_property
    def best(self) -> "Run":
        """The best weights of a fine-tuning run."""
        return Run(self.file(BEST))

    @cached_property
    def whole(self) -> "Run":
        """The run that has these weights; the folder of its best weights has no flags."""
        path = self.path.rstrip("/")
        if os.path.basename(os.path.abspath(path)) != BEST or tf.io.gfile.exists(self.file(FLAGS)):
            return self
        return Run(os.path.dirname(path) if path.endswith(BEST) else self.file(os.pardir))

    def check_single(self) -> None:
        """Raises a FileNotFoundError if the folder holds the runs of --num_seeds or --grid."""
        best = Run(self.file(str(self.read_json(SWEEP_RESULTS).get("best"))))
        if tf.io.gfile.exists(best.file(FLAGS)):
            raise FileNotFoundError(
                f"{self.path} holds several runs and no model of its own: use the best run, "
                f"{best.path}"
            )

    def check_one_task(self) -> None:
        """Raises a ValueError if the run trained several tasks at once."""
        first, several, _ = self.flags.get("task", "").partition(",")
        if several:
            one = self.file(first)
            raise ValueError(f"{self.path} has several tasks: give the folder of one, {one}")

    @cached_property
    def head(self) -> Head | None:
        """What the head predicts; None if there is none."""
        values = self.read_json(HEAD)
        with errors_at(self.file(HEAD)):
            return Head.from_dict(values) if values else None

    def write_head(self, head: Head) -> None:
        """Writes what the head predicts."""
        self._forget()
        write_json(self.file(HEAD), head.to_dict())
