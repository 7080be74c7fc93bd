"""Tagging: a tag for every word, such as named entities or parts of speech."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from bert_tf.base.progress import counted
from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.metrics import OF_A_CLASS, mean_cross_entropy, precision_recall_f1
from bert_tf.finetuning.objectives import TaggingObjective
from bert_tf.finetuning.predictions import draw_confusion, write_table
from bert_tf.finetuning.tagging.conll import write_conll
from bert_tf.finetuning.tagging.module import TaggingModule, word_windows
from bert_tf.finetuning.tagging.tagged_text import TaggedText, hold_out_documents, prepare_tags
from bert_tf.finetuning.tagging.tags import breaks, entity_scores, is_entity_tag, tag_entities
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.lstms import FeatureTagger
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer

Logits = Mapping[str, list[np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class TaggingFeatures(Features):
    """Windows over documents or sentences; `examples` is the `TaggedText`.

    `predicted`, bool [N, (length)], are the tokens whose outputs are the predictions of all words,
    in order: the first token of each word, in one window.
    """

    predicted: tf.RaggedTensor

    def count(self) -> str:
        return f"{self.examples.describe()}, in {counted(len(self), 'window')}"


@dataclass(kw_only=True)
class TaggingTask(Task):
    """Assigns a tag to every word.

    The first token of a word carries its tag. A text that is longer than the model's inputs is
    divided into overlapping windows. Each word is learned and predicted in the window in which it
    has the most context.

    Attributes:
        labels: the tags, in the order of the model's outputs. If they are tags of entities in BIO,
            the metric is the F1 of entities, otherwise the accuracy.
        read: maps the user's files and a split to its text, with tags of any scheme.
        document_context: whether sentences are read together with the others of their document.
        feature_based: what a `FeatureTagger` reads from a frozen encoder; None to train the encoder
            with a dense layer.
        json_labels: see `Head`.
        name, columns, has_dev: see `Task`.

    Source: BERT (arXiv:1810.04805) section 5.3.
    """

    labels: Sequence[str]
    read: Callable[[DataFiles, str], TaggedText] | None = None
    document_context: bool = True
    feature_based: str | None = None
    json_labels: bool = False
    name: str = "ner"
    columns: Mapping[str, str] = field(default_factory=dict)
    has_dev: bool = True

    objective = TaggingObjective()
    hold_out = staticmethod(hold_out_documents)
    token_outputs = ("logits",)
    long_inputs = "Texts of any length are read in windows of {} tokens."

    def __post_init__(self):
        self.head = Head("tagger", tuple(self.labels), json_labels=self.json_labels)
        self.has_entities = tag_entities(self.labels)
        self.metrics = ("accuracy", "loss", "macro_precision", "macro_recall", "macro_f1")
        self.metrics += tuple(f"{x}/{tag}" for x in OF_A_CLASS for tag in self.labels)
        if self.has_entities:
            self.metrics = ("f1", "precision", "recall", "accuracy", "loss")
            types = {tag[2:] for tag in self.labels if is_entity_tag(tag)} - {""}
            self.metrics += tuple(f"f1_{name}" for name in sorted(types))
        self.metric = self.metrics[0]
        self._index = {label: number for number, label in enumerate(self.labels)}

    def build_model(self, config: BertConfig) -> BertTaskModel | FeatureTagger:
        if self.feature_based:
            return FeatureTagger(config, len(self.labels), self.feature_based)
        return super().build_model(config)

    def read_splits(self, names: Collection[str], files: DataFiles) -> dict[str, TaggedText]:
        texts = super().read_splits(names, files)
        if "dev" in texts and not texts["dev"].tags:
            raise ValueError(f"{texts['dev'].path} has no tags: give it as --test_file")
        return {name: prepare_tags(text, self.labels) for name, text in texts.items()}

    def featurize(
        self, examples: TaggedText, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> TaggingFeatures:
        ids, word_splits = tokenize_each(examples.words, tokenizer)
        text_splits = word_splits[examples.word_splits(self.document_context)]
        packed, predicted = word_windows(
            tf.RaggedTensor.from_row_splits(ids, text_splits),
            tf.constant(word_splits[:-1]),
            max_seq_length,
            tokenizer.vocab,
        )
        # Of every token; -1 for all but the one of a word that predicts.
        tags = np.full(predicted.values.shape[0], -1, np.int32)
        if examples.tags:
            tags[predicted.values.numpy()] = [self._index.get(tag, -1) for tag in examples.tags]
        return TaggingFeatures(
            ids=packed,
            types=tf.zeros_like(packed),
            targets={"tags": packed.with_values(tf.constant(tags))} if examples.tags else {},
            examples=examples,
            vocab=tokenizer.vocab,
            max_seq_length=max_seq_length,
            notes=examples.notes,
            predicted=predicted,
        )

    def score(self, outputs: Logits, features: TaggingFeatures) -> dict[str, float]:
        """Returns the mean cross-entropy of words, `loss`, their `accuracy`, and the entities'.

        Those are `precision`, `recall` and `f1` as conlleval counts them, the `f1_TYPE` of each
        type, and `invalid_tags`, the number of predicted tags that break BIO. Without entities,
        there are precision, recall and F1 of each tag. Words with tags that the model does not know
        have no loss.
        """
        logits, gold = _word_logits(outputs, features), features.examples.tags
        predicted = self._tags(logits)
        known = np.flatnonzero([tag in self._index for tag in gold])
        targets = np.array([self._index[gold[number]] for number in known])
        scores = {
            "loss": mean_cross_entropy(targets, logits[known]),
            "accuracy": float(np.mean(np.equal(gold, predicted))),
        }
        if not self.has_entities:
            predictions = logits[known].argmax(axis=-1)
            return scores | precision_recall_f1(targets, predictions, self.labels)
        by_sentence = features.examples.by_sentence(predicted)
        scores |= entity_scores(
            [sentence.tags for sentence in features.examples.sentences], by_sentence
        )
        return scores | {"invalid_tags": float(sum(len(breaks(tags)) for tags in by_sentence))}

    def check_metric(self, features: TaggingFeatures) -> None:
        """Raises a ValueError if the metric is that of a tag which the dev set lacks."""
        found = re.fullmatch("(?:f1_|[a-z0-9]+/)(.*)", self.metric, re.DOTALL)
        tags = {*features.examples.tags}
        if found and found[1] not in tags | {tag[2:] for tag in tags}:
            raise self.undefined_metric()

    def problem(self, outputs: Logits, features: TaggingFeatures) -> str | None:
        """Reports that all predictions are the same and some are wrong."""
        predicted = self._tags(_word_logits(outputs, features))
        (tag, count), *others = Counter(predicted).most_common()
        if others or features.examples.tags == predicted:
            return None
        return f'the model predicts "{tag}" for all {count:,} words: it ignores its input'

    def write_predictions(
        self, folder: str, split: str, outputs: Logits, features: TaggingFeatures
    ) -> list[str]:
        """Writes the predictions of a split.

        `predictions_<split>.tsv` has a row for every word: the number of its sentence, the word,
        its tag if known, the predicted tag and its probability.
        `predictions_<split>.conll` is the input of conlleval: word, tag if known, predicted tag.
        `confusion_<split>.png` is for a split with tags.
        """
        text, logits = features.examples, _word_logits(outputs, features)
        gold, predicted = text.tags, self._tags(logits)
        lengths = np.diff(text.word_splits(by_document=False))
        columns = {"sentence": np.repeat(np.arange(len(text)), lengths), "word": text.words}
        if gold:
            columns["tag"] = gold
        columns["prediction"] = predicted
        columns["probability"] = softmax(logits, axis=-1).max(axis=-1)
        files = [write_table(folder, f"predictions_{split}.tsv", columns)]
        files.append(f"predictions_{split}.conll")
        write_conll(f"{folder}/{files[-1]}", text, predicted)
        if gold:
            files.append(f"confusion_{split}.png")
            pairs = [(a, b) for a, b in zip(gold, predicted, strict=True) if a in self._index]
            numbers = np.array([[self._index[tag] for tag in pair] for pair in pairs])
            draw_confusion(*numbers.T, self.labels, f"{folder}/{files[-1]}", "word")
        return files

    def serving(
        self,
        model: BertTaskModel | FeatureTagger,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
    ) -> TaggingModule:
        return TaggingModule(model, tokenizer, max_seq_length, self.labels)

    def example_call(self) -> str:
        return '(["a text"])  # a dict: the tag of each word, where it is, and its probability'

    def _tags(self, logits: np.ndarray) -> list[str]:
        return [self.labels[number] for number in logits.argmax(axis=-1)]


def tokenize_each(
    words: Sequence[str], tokenizer: WordPieceTokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Tokenizes words one by one; a word of which cleaning leaves nothing is [UNK].

    Returns the ids, int32 [tokens], and where the words begin, int64 [words + 1].
    """
    lines = [word.encode(errors="replace") for word in words]
    ids, splits = tokenizer.tokenize_lines(lines)
    empty = splits[:-1][np.diff(splits) == 0]
    lengths = np.maximum(np.diff(splits), 1)
    return np.insert(ids, empty, tokenizer.vocab.unk_id), np.append(0, np.cumsum(lengths))


def _word_logits(outputs: Logits, features: TaggingFeatures) -> np.ndarray:
    """Returns the logits of all words [words, C], in order."""
    logits = np.concatenate(outputs["logits"]).astype(np.float64)
    return logits[features.predicted.values.numpy()]
