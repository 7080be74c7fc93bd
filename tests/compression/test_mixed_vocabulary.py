"""Dual training of a teacher and a student with a small vocabulary."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from support import SESSION, save_run

from bert_tf.compression.compressing import compress, distill
from bert_tf.compression.compression_options import GeneralOptions
from bert_tf.compression.mixed_vocabulary import DualLearner, DualObjective, SharedProjections
from bert_tf.compression.resegmentation import MixedRows, both_vocabularies
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import latest_checkpoint, saved_tensors
from bert_tf.weights.names import training_flops
from bert_tf.weights.opening import open_checkpoint
from tfrecords.features import ORIGINAL_NAMES, serialize_examples, write_records
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, write_vocab

LENGTH, PREDICTIONS = 24, 4
LETTERS = "abcdefgh"
SMALL = Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{x}" for x in LETTERS), ",", "deaf"))
# In this order no id is that of the student. "h" has no token, so that words with it have none.
LARGE = Vocabulary(
    ("[UNK]", "[MASK]", "[CLS]", "[PAD]", "[SEP]", ",", "face", "cab", "de", "##af", "bad")
    + ("##e", "##d", "age", "##ca", *LETTERS[:7])
)
CONFIG = BertConfig(len(SMALL) + 2, 8, 2, 2, 16, max_position_embeddings=LENGTH)
TEACHER = dataclasses.replace(
    CONFIG, vocab_size=len(LARGE) + 1, hidden_size=12, intermediate_size=20, initializer_range=0.3
)
STUDENT = ModelSpec(CONFIG, SMALL, True)
ROWS = MixedRows(STUDENT, ModelSpec(TEACHER, LARGE, True), 0.2)
TEXTS = ("face, cab deaf ha bad", "bade age decade , faced cab", "h bead [UNK]", "cab cab cab cab")


def records(texts=TEXTS) -> dict[str, np.ndarray]:
    """Records of the student's tokens, with up to four of them masked."""
    random = np.random.default_rng(0)
    tokenizer = WordPieceTokenizer(SMALL, special_tokens_in_text=True)
    widths = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), LENGTH)
    widths |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), PREDICTIONS)
    batch = {name: np.zeros((len(texts), width), "int32") for name, width in widths.items()}
    batch["masked_lm_weights"] = np.zeros((len(texts), PREDICTIONS), "float32")
    for row, tokens in enumerate(tokenizer.tokenize_flat(tf.constant(texts)).to_list()):
        ids = np.array([SMALL.cls_id, *tokens, SMALL.sep_id])[:LENGTH]
        count = random.integers(1, PREDICTIONS + 1)
        places = np.sort(random.choice(np.arange(1, len(ids) - 1), count, replace=False))
        batch["masked_lm_positions"][row, :count] = places
        batch["masked_lm_ids"][row, :count] = ids[places]
        batch["masked_lm_weights"][row, :count] = 1
        ids[places] = SMALL.mask_id
        batch["input_word_ids"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
        batch["input_type_ids"][row, 6 : len(ids)] = 1
    return batch | {"next_sentence_labels": np.zeros((len(texts), 1), "int32")}


@pytest.fixture(scope="module")
def batch() -> dict[str, tf.Tensor]:
    """Segmented records, the last of which only fills the batch."""
    batch = records() | {"example_weights": np.array([1, 1, 1, 0], "float32")}
    return next(iter(tf.data.Dataset.from_tensors(batch).map(ROWS.segment)))


def words_of(text: str) -> list[tuple[list[int], list[int]]]:
    """Returns every word's ids in mixed rows, in the student's and in the teacher's tokens."""
    words, texts = [], text.replace(",", " , ").split()
    tokens = (
        WordPieceTokenizer(vocab, special_tokens_in_text=True).tokenize_flat(texts).to_list()
        for vocab in (SMALL, LARGE)
    )
    for word, small, large in zip(texts, *tokens, strict=True):
        fits = word != "[UNK]" and LARGE.unk_id not in large and len(large) <= len(small)
        own = {SMALL.ids[token]: LARGE.ids[token] for token in SPECIAL_TOKENS}
        small = [own.get(token, TEACHER.vocab_size + token) for token in small]
        words.append((small, large if fits else small))
    return words


def test_words_have_the_tokens_of_both_vocabularies(batch):
    """Oracle: the tokenizers of both vocabularies, word by word."""
    for row, text in enumerate(TEXTS):
        small, large = zip(*words_of(text), strict=True)
        length = sum(map(len, small)) + 2
        for name, words in (("student_tokens", small), ("teacher_tokens", large)):
            found = [x for x in batch[name].numpy()[row, :length] if x >= 0]
            ids = [LARGE.cls_id, *(id for word in words for id in word), LARGE.sep_id]
            assert found == ids
        numbers = batch["word_numbers"].numpy()[row, :length]
        assert numbers.tolist() == [0, *np.repeat(1 + np.arange(len(small)), [*map(len, small)]),
                                    len(small) + 1]  # fmt: skip
    # "deaf" has two tokens in the teacher's vocabulary and one in the student's; "ha" has none.
    kept = [small == large for small, large in words_of(TEXTS[0])]
    assert kept == [False, False, False, True, True, False]
    assert words_of("faced")[0][1] == [LARGE.ids["face"], LARGE.ids["##d"]]


def test_a_word_that_was_cut_is_read_as_a_word_of_its_own():
    """Oracle: the teacher's tokens of "bade", whose first token is a continuation here."""
    cut = records(["cab cab cab"])
    tokens = "[CLS] ##b ##a ##d ##e c ##a ##b [SEP] [PAD] [PAD] [PAD]".split()
    cut["input_word_ids"][0, : len(tokens)] = [SMALL.ids[token] for token in tokens]
    cut["masked_lm_weights"][:] = 0
    found = ROWS.segment({name: tf.constant(x) for name, x in cut.items()})
    assert found["word_numbers"].numpy()[0, :9].tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 3]
    expected = ["[CLS]", "bad", "##e", "", "", "cab", "", "", "[SEP]"]
    ids = [LARGE.ids[token] if token else -1 for token in expected]
    assert found["teacher_tokens"].numpy()[0, :9].tolist() == ids


def test_a_mixed_row_chooses_for_every_word(batch):
    """Oracles: the words of the text in either vocabulary; half of them on average; the seed."""
    words, mix = [*map(words_of, TEXTS)], tf.function(ROWS.mix)
    mixed = [mix(batch, tf.constant([seed, 7])) for seed in range(100)]
    rows = [{name: values.numpy() for name, values in each.items()} for each in mixed]
    shares = []
    for each in rows:
        ids, masked = each["input_word_ids"].copy(), each["masked_lm_weights"] > 0
        for row in range(len(TEXTS)):
            positions, labels = (each[f"masked_lm_{x}"][row] for x in ("positions", "ids"))
            ids[row, positions[masked[row]]] = labels[masked[row]]
            length = each["input_mask"][row].sum()
            assert each["input_mask"][row].tolist() == [1] * length + [0] * (LENGTH - length)
            assert not ids[row, length:].any() or set(ids[row, length:]) == {LARGE.pad_id}
            found = ids[row, 1 : length - 1].tolist()
            for small, large in words[row]:
                chosen = small if found[: len(small)] == small else large
                assert found[: len(chosen)] == chosen
                found = found[len(chosen) :]
                if small != large:
                    shares.append(chosen is small)
            assert not found
            assert masked[row].sum() == min(PREDICTIONS, max(1, round(0.2 * length)))
    # Four standard errors.
    assert np.mean(shares) == pytest.approx(0.5, abs=2 / len(shares) ** 0.5)
    again = ROWS.mix(batch, tf.constant([3, 7]))["input_word_ids"].numpy()
    np.testing.assert_array_equal(again, rows[3]["input_word_ids"])
    assert len({each["input_word_ids"].tobytes() for each in rows}) > 95
    # Segment ids stay with their tokens: the second segment begins after the first five.
    types = rows[0]["input_type_ids"]
    assert (np.diff(types * rows[0]["input_mask"], axis=1) == 1).sum(1).tolist() == [1] * 4


def test_the_teachers_tables_grow_by_the_students_tokens():
    """Oracle: the pieces of some tokens, written down; a table has two more rows than tokens."""
    mapping = both_vocabularies(ROWS.teacher, STUDENT)
    first = TEACHER.vocab_size
    assert (mapping.old_size, mapping.new_size) == (first, first + CONFIG.vocab_size)
    assert sorted(mapping.starts_from) == [*range(first, mapping.new_size)]
    found = {
        token: [LARGE.tokens[i] for i in mapping.starts_from[first + index]]
        for index, token in enumerate(SMALL.tokens)
    }
    assert found["[SEP]"] == ["[SEP]"]
    assert (found["deaf"], found["a"], found["##d"]) == (["de", "##af"], ["a"], ["##d"])
    assert found["h"] == found["##b"] == ["[UNK]"]
    assert mapping.starts_from[first + len(SMALL)] == (LARGE.unk_id,)


def test_the_distance_is_that_of_projected_weights():
    """Oracle: the sum of |U^T W V - T|^2 over all weights, in NumPy."""
    grown = dataclasses.replace(TEACHER, vocab_size=TEACHER.vocab_size + CONFIG.vocab_size)
    projections = SharedProjections(CONFIG, grown)
    random = np.random.default_rng(0)
    models = BertPretrainer(CONFIG), BertPretrainer(grown)
    for model in models:
        for weight in model.weights:
            weight.assign(random.normal(size=weight.shape))
    matrices = {key: matrix.numpy() for key, matrix in projections._matrices.items()}
    h, v = matrices["hidden", "input"], matrices["hidden", "output"]
    f, g = matrices["inner", "input"], matrices["inner", "output"]
    assert all(m.shape in ((8, 12), (16, 20)) for m in matrices.values())
    np.testing.assert_allclose(v @ v.T, np.eye(8), atol=1e-6)
    total = 0.0
    for ours, theirs in zip(*(model.weights for model in models), strict=True):
        name, t = ours.path, theirs.numpy()
        if name.startswith("pretrainer/next_sentence"):
            continue
        parts = np.split(ours.numpy(), 3 if "qkv" in name else 1, axis=-1)
        if name.endswith(("word_embeddings", "masked_lm/output_bias")):
            t = t[TEACHER.vocab_size :]
        if name.endswith("kernel"):
            left = f if re.search(r"layer_\d/output_kernel", name) else h
            parts = [left.T @ part for part in parts]
        if not name.endswith("masked_lm/output_bias"):
            parts = [part @ (g if "intermediate" in name else v) for part in parts]
        total += np.sum((np.concatenate(parts, axis=-1) - t) ** 2)
    found = projections.distance(models[0].weights, models[1].weights)
    assert float(found) == pytest.approx(total, rel=1e-4)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> str:
    return save_run(tmp_path_factory.mktemp("pretrained"), BertPretrainer(TEACHER), LARGE)


def test_the_loss_is_that_of_both_models_and_their_distance(pretrained, batch):
    """Oracle: masked-LM losses in NumPy, each among the tokens of one vocabulary."""
    task = DualLearner(open_checkpoint(pretrained), 0.2)
    model = task.build_model(SESSION, STUDENT)
    objective = task.objective(STUDENT, 4)
    assert isinstance(objective, DualObjective)
    sums, counts = objective.sums(model, batch, False), objective.counts(batch)
    assert set(sums) == set(counts) == set(objective.measures)
    mixed = ROWS.mix(batch, tf.random.fold_in([0, 0], 0))
    logits = model.teacher(mixed)["mlm_logits"].numpy()
    first, total = TEACHER.vocab_size, 0.0
    for row in range(3):
        losses = []
        for place in range(PREDICTIONS):
            if mixed["masked_lm_weights"][row, place]:
                label, scores = int(mixed["masked_lm_ids"][row, place]), logits[row, place]
                scores = scores[:first] if label < first else scores[first:]
                label -= first * (label >= first)
                losses.append(np.log(np.exp(scores).sum()) - scores[label])
        total += np.mean(losses)
    assert float(sums["teacher_loss"]) == pytest.approx(total, rel=1e-5)
    assert float(counts["teacher_loss"]) == 3
    # As often as there are examples, so that the mean is that of any division of a batch.
    assert float(sums["distance"]) == pytest.approx(3e-3 * float(model.distance()), rel=1e-6)
    assert float(counts["distance"]) == 3
    log = tf.nn.log_softmax(model.student(batch)["mlm_logits"]).numpy()
    ids, weights = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy()
    masked_lm = -np.sum(np.take_along_axis(log, ids[..., None], -1)[..., 0] * weights)
    assert float(sums["masked_lm_loss"]) == pytest.approx(masked_lm, rel=1e-5)
    # The teacher starts as what it was, with the means of its own embeddings for the new tokens.
    saved = open_checkpoint(pretrained).tensors["encoder/embeddings/word_embeddings"].read()
    table = model.teacher.encoder.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(table[:first], saved)
    mean = saved[[LARGE.ids["de"], LARGE.ids["##af"]]].mean(0)
    np.testing.assert_allclose(table[first + SMALL.ids["deaf"]], mean, rtol=1e-6)
    grown = dataclasses.replace(TEACHER, vocab_size=TEACHER.vocab_size + CONFIG.vocab_size)
    both = training_flops(CONFIG, LENGTH, 4) + training_flops(grown, LENGTH, 4)
    assert task.training_flops(CONFIG, LENGTH, 4) == both


@pytest.fixture(scope="module")
def options(general_options, pretrained, tmp_path_factory) -> GeneralOptions:
    folder = tmp_path_factory.mktemp("records")
    arrays = records([TEXTS[i % 3] for i in range(12)])
    arrays["input_type_ids"][:] = 0
    arrays = {ORIGINAL_NAMES.get(name, name): values for name, values in arrays.items()}
    write_records(file := str(folder / "train.tfrecord"), serialize_examples(arrays))
    write_vocab(str(folder / "vocab.txt"), SMALL)
    CONFIG.to_json_file(str(folder / "config.json"))
    files = {"bert_config_file": f"{folder}/config.json", "vocab_file": f"{folder}/vocab.txt"}
    flags = dict(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS, learning_rate=1e-2)
    output = folder / "student"
    return general_options("mixed-vocabulary", pretrained, file, output, **files, **flags)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_run_resumes_exactly_and_starts_a_task(options, make_options, run_and_resume):
    """Oracles: the uninterrupted run; both models changed; what reads run folders."""
    results, printed = run_and_resume(distill, options)
    assert {"masked_lm_loss", "teacher_loss", "distance", "masked_lm_accuracy"} <= set(results)
    assert f"Teacher: {options.teacher}" in printed
    assert "Initializing all other weights randomly." in printed
    count = sum(weight.numpy().size for weight in BertPretrainer(CONFIG).weights)
    assert f"2 layers of 8, {count:,} parameters" in printed

    # What remains is the student; the teacher and the projections have trained, too.
    found = open_checkpoint(options.output_dir)
    assert found.spec == STUDENT
    assert set(found.tensors) == {weight.path for weight in BertPretrainer(CONFIG).weights}
    unused = {name.split("/")[1] for name in found.unused if name.startswith("distillation")}
    assert unused == {"teacher", "projections"}
    before = open_checkpoint(options.teacher).tensors
    after = saved_tensors(latest_checkpoint(options.output_dir))
    for name in ("encoder/layer_0/output_kernel", "pretrainer/masked_lm/output_bias"):
        old, new = before[name].read(), after[f"distillation/teacher/{name}"].read()
        assert not np.array_equal(new[: len(old)], old)

    # On a task, the teacher of which has another vocabulary, the student learns from labels.
    init = options.output_dir
    student = make_options("mixed-vocabulary", init_checkpoint=init, num_train_epochs=1.0)
    assert "eval_accuracy" in compress(student)
    assert open_checkpoint(student.output_dir).spec == STUDENT


def test_what_does_not_fit(options, pretrained):
    """Oracle: the message, which names what to change."""
    source = open_checkpoint(pretrained)
    for changes, message in (
        ({"num_hidden_layers": 1}, "whose num_hidden_layers are 1 and 2: use another"),
        ({"max_position_embeddings": 9}, "whose max_position_embeddings are 9 and 24: use"),
        ({"is_decoder": True}, "whose is_decoder are True and False: use"),
        ({"embedding_size": 4}, "whose embedding_size are 4 and None: use"),
        ({"classifier_activation": False}, "whose classifier_activation are False and True: use"),
        ({"num_hidden_groups": 1}, "whose num_hidden_groups are 1 and None: use"),
    ):
        config = dataclasses.replace(CONFIG, **changes)
        with pytest.raises(ValueError, match=message):
            DualLearner(source, 0.15).build_model(SESSION, ModelSpec(config, SMALL, True))
    for spec in (ModelSpec(CONFIG, None, True), ModelSpec(CONFIG, SMALL, None)):
        with pytest.raises(ValueError, match="records have no manifest .*: give --vocab_file"):
            DualLearner(source, 0.15).build_model(SESSION, spec)
    nameless = dataclasses.replace(source, spec=dataclasses.replace(source.spec, vocab=None))
    with pytest.raises(ValueError, match="has no vocabulary, which this recipe needs"):
        DualLearner(nameless, 0.15)
    with pytest.raises(ValueError, match="--recipe=mixed-vocabulary has no default student"):
        dataclasses.replace(options, bert_config_file=None)
    with pytest.raises(ValueError, match="do_lower_case"):
        distill(dataclasses.replace(options, do_lower_case=False))
