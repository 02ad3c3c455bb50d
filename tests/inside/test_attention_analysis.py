"""Attention analysis: statistics of hand-made heads, saliency compared with finite differences, relations, the page."""

import doctest
import json
import math
import os
import re
import shutil
import subprocess
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest

from mini_bert.cli.inside import attention as attention_command
from mini_bert.data.labelled.readers import Labelled, Parsed
from mini_bert.finetuning.model import FineTuned, with_task
from mini_bert.finetuning.model import save as save_tuned
from mini_bert.finetuning.predict import predictions
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inside import attention_analysis, attention_page, attention_relations, saliency
from mini_bert.inside import attention_maps as maps_module
from mini_bert.inside.attention_analysis import analyse
from mini_bert.inside.attention_maps import AttentionMaps, attention_maps, head_statistics, most_attended
from mini_bert.inside.attention_page import packed
from mini_bert.inside.attention_relations import (
    DIRECTIONS,
    OFFSETS,
    Relations,
    count_correct,
    predicted_parents,
    relation_scores,
    word_attention,
)
from mini_bert.inside.report import checked_path, relation_table, report, report_json
from mini_bert.inside.saliency import (
    class_log_probability,
    class_saliency,
    find_word,
    gradient_times_input,
    word_log_probability,
    word_saliency,
)
from mini_bert.layers.base import Layer, bind
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.linear import Linear
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = ["the", "old", "cat", "##s", "sat", "on", "mat", ".", "it", "slept", "<", ">", "script", "/", "(", ")", "1"]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
V = len(TOKENIZER)
MINI = MiniBertConfig(vocab_size=V, hidden_size=14, num_layers=3, num_heads=2, intermediate_size=19, max_seq_length=11)
BERT = BertConfig(
    vocab_size=V, hidden_size=14, num_hidden_layers=3, num_attention_heads=2, intermediate_size=19,
    max_position_embeddings=11, tie_word_embeddings=False,
)  # fmt: skip


@pytest.fixture(params=["mini", "bert"])
def model(request):
    return MiniBERT(MINI, seed=5, dtype=np.float64) if request.param == "mini" else Bert(BERT, seed=5, dtype=np.float64)


@pytest.fixture
def mini():
    return MiniBERT(MINI, seed=5, dtype=np.float64)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "tiny"
    MiniBERT(MINI, seed=5).save_pretrained(path)
    TOKENIZER.save(path)
    return str(path)


# --- one text ----------------------------------------------------------------------------------------------


def test_a_look_is_what_the_model_computed(model):
    """The weights of all layers equal those in the cache; rows sum to 1."""
    maps = attention_maps(model, TOKENIZER, "The old cat sat.")
    assert maps.tokens == ["[CLS]", "the", "old", "cat", "sat", ".", "[SEP]"]
    assert maps.weights.shape == (3, 2, 7, 7)
    np.testing.assert_allclose(maps.weights.sum(-1), 1)
    _, cache = model.encode(maps.ids[None])
    for layer, weights in enumerate(cache.attention_weights()):
        np.testing.assert_array_equal(maps.weights[layer], weights[0])


def test_pairs_long_texts_and_no_text(model, caplog):
    """A pair has two [SEP] and token types; a long text is truncated with a message; a text without words is
    refused."""
    pair = attention_maps(model, TOKENIZER, "the cat", "it sat")
    assert pair.tokens == ["[CLS]", "the", "cat", "[SEP]", "it", "sat", "[SEP]"]
    assert pair.types.tolist() == [0, 0, 0, 0, 1, 1, 1]
    long = attention_maps(model, TOKENIZER, "the cat sat on the mat . it slept on it .")
    assert len(long.tokens) == 11 and long.tokens[-1] == "[SEP]" and "14 tokens" in caplog.text
    with pytest.raises(ValueError, match="the text '  ' has no words"):
        attention_maps(model, TOKENIZER, "  ")


def hand_made(tokens, *heads):
    """One layer; each head is a map (T,T)"""
    T, roles = len(tokens), ["cls", *[""] * (len(tokens) - 2), "sep"]
    return AttentionMaps(tokens, np.arange(T), np.zeros(T, int), np.array(heads, float)[None], roles)


def test_numbers_of_hand_made_heads():
    """Four heads with known statistics: previous token, uniform, [SEP], itself."""
    tokens = ["[CLS]", "a", "b", "c", "[SEP]"]
    previous = np.eye(5, k=-1)
    previous[0, 0] = 1
    uniform = np.full((5, 5), 0.2)
    sep = np.zeros((5, 5))
    sep[:, 4] = 1
    found = head_statistics(hand_made(tokens, previous, uniform, sep, np.eye(5)))
    assert [(one.layer, one.head) for one in found] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [one.entropy for one in found] == pytest.approx([0, math.log(5), 0, 0])
    # Rows of a, b, c only. Distances of the uniform head: (1+0+1+2+3)/5, (2+1+0+1+2)/5, (3+2+1+0+1)/5
    assert [one.distance for one in found] == pytest.approx([1, (7 + 6 + 7) / 15, (3 + 2 + 1) / 3, 0])
    assert [one.cls for one in found] == pytest.approx([1 / 3, 0.2, 0, 0])  # the token before a is [CLS]
    assert [one.sep for one in found] == pytest.approx([0, 0.2, 1, 0])
    assert [one.previous for one in found] == pytest.approx([1, 0.2, 0, 0])
    assert [one.next for one in found] == pytest.approx([0, 0.2, 1 / 3, 0])  # the token after c is [SEP]
    assert [one.itself for one in found] == pytest.approx([0, 0.2, 0, 1])
    assert [one.pattern for one in found] == ["previous", "", "[SEP]", "self"]


def test_numbers_of_several_texts_are_means_over_all_words():
    """Texts of one and three words: each word has the same weight, not each text."""
    one = hand_made(["[CLS]", "a", "[SEP]"], np.eye(3))
    three = hand_made(["[CLS]", "a", "b", "c", "[SEP]"], np.full((5, 5), 0.2))
    (both,) = head_statistics([one, three])
    assert both.itself == pytest.approx((1 + 3 * 0.2) / 4)
    assert both.entropy == pytest.approx(3 * math.log(5) / 4)
    with pytest.raises(ValueError, match="all tokens are special"):
        head_statistics(hand_made(["[CLS]", "[SEP]"], np.eye(2)))


def test_what_is_looked_at_most():
    """Means over the rows of words, largest first."""
    weights = np.array([[1, 0, 0, 0], [0.5, 0, 0.3, 0.2], [0.1, 0, 0.1, 0.8], [0, 1, 0, 0]])
    found = most_attended(["cls", "", "", "sep"], weights, 2)
    assert found == [(3, pytest.approx(0.5)), (0, pytest.approx(0.3))]


# --- saliency ----------------------------------------------------------------------------------------------


def slopes(model, ids, value):
    """How value() changes when the vector of each token grows, by central differences. Every id must occur once."""
    found = []
    for i in ids:
        row = model.tokens.table.data[i].copy()
        ends = []
        for step in (1e-5, -1e-5):
            model.tokens.table.data[i] = row * (1 + step)
            ends.append(value())
        model.tokens.table.data[i] = row
        found.append((ends[0] - ends[1]) / 2e-5)
    return found


def test_saliency_of_a_hidden_word_is_the_slope(model):
    """Gradient × input equals finite differences of log p along each word's vector, and the model is unchanged."""
    ids = np.array(TOKENIZER.encode("the old cat sat on it ."))
    model.flat.grad[...] = 7.0
    found = word_saliency(model, TOKENIZER, ids, [3])[0]
    assert (model.flat.grad == 7.0).all()
    assert found.tokens[3] == "[MASK]" and found.of == "log p(cat) at token 3, masked"
    hidden = np.where(np.arange(ids.size) == 3, TOKENIZER.mask_id, ids)

    def value():
        return -float(model.loss(hidden[None], [3], [ids[3]])[0])

    assert found.value == pytest.approx(value(), rel=1e-12)
    np.testing.assert_allclose(found.scores, slopes(model, hidden, value), rtol=1e-6, atol=1e-9)


def test_saliency_with_a_tied_head_does_not_count_the_head():
    """A word's vector is also a row of a tied head; only its path through the blocks counts."""
    tied = Bert(BertConfig(**{**vars(BERT), "tie_word_embeddings": True}), seed=5, dtype=np.float64)
    free = Bert(BERT, seed=5, dtype=np.float64)
    for name, param in free.named_params().items():
        source = tied.named_params()
        param.data[...] = source[name].data if name in source else tied.tokens.table.data.T
    ids = TOKENIZER.encode("the old cat sat")
    one, other = (word_saliency(model, TOKENIZER, ids, [2])[0] for model in (tied, free))
    assert one.value == pytest.approx(other.value, rel=1e-12)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-10)


def test_many_words_at_once_are_each_by_itself(model, monkeypatch):
    """Several words give the same results as one at a time, and progress is reported."""
    ids = TOKENIZER.encode("the old cat sat on it")
    alone = [word_saliency(model, TOKENIZER, ids, [place])[0] for place in (1, 4, 2)]
    monkeypatch.setattr(saliency, "TOKENS", 2 * len(ids))
    told = []
    together = word_saliency(model, TOKENIZER, ids, [1, 4, 2], after_each=told.append)
    assert told == [2, 3] and [one.position for one in together] == [1, 4, 2]
    for one, other in zip(alone, together, strict=True):
        assert one.of == other.of and one.value == pytest.approx(other.value)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-9, atol=1e-12)


def test_a_gap_is_asked_for_its_first_guess(model):
    """With [MASK] in the text, the explained word is the first guess of fill-mask, with its probability."""
    text = "the old [MASK] sat on it"
    best = fill_mask(model, TOKENIZER, text).gaps[0][0]
    found = word_saliency(model, TOKENIZER, TOKENIZER.encode(text), [3])[0]
    assert found.of == f"log p({best.word}) at token 3, the top prediction"
    assert found.value == pytest.approx(math.log(best.probability))
    with pytest.raises(ValueError, match="there is no token 8; the text has tokens 0 to 7"):
        word_saliency(model, TOKENIZER, TOKENIZER.encode(text), [8])


class MeanHead(Layer):
    """A classifier on the mean of all hidden vectors"""

    def __init__(self):
        self.out = Linear(14, 3)

    def forward(self, x, run):
        y, cache = self.out.forward(x.mean(1), run)
        return y, (x.shape, cache)

    def backward(self, dy, cache, run):
        shape, inner = cache
        return np.broadcast_to(self.out.backward(dy, inner, run)[:, None] / shape[1], shape).copy()


def test_saliency_of_a_class_is_the_slope(model):
    """For any classification head: log p of a class, compared with finite differences; padding has none."""
    head = MeanHead()
    bind(head, dtype=np.float64, seed=1)
    ids = np.array([TOKENIZER.encode("the cat sat")])
    scalar = class_log_probability([2], head)
    values, scores = gradient_times_input(model, ids, scalar)

    def value():
        y, _ = model.encode(ids)
        logits = head.forward(y, model.run)[0][0]
        return float(logits[2] - np.log(np.exp(logits).sum()))

    assert values[0] == pytest.approx(value())
    np.testing.assert_allclose(scores[0], slopes(model, ids[0], value), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("pooling", "pairs"), [(("mean",), None), (("cls",), None), (("mean",), True)])
def test_saliency_of_a_fine_tuned_label_is_the_slope(model, pooling, pairs):
    """For a model's own task head, probabilities match `predict`, and slopes match finite differences."""
    task = Classify(["bad", "fair", "good"], pooling, dense=not pairs, pairs=pairs)
    tuned = FineTuned(with_task(model, task, seed=3), task, TOKENIZER, 9)
    tuned.model.flat.grad[...] = 7.0
    found = class_saliency(tuned, "the old", "cat sat", "fair")
    assert (tuned.model.flat.grad == 7.0).all() and tuned.model.task.linear.w.grad.shape == (4 * 14 if pairs else 14, 3)
    said = predictions(tuned, [Labelled("the old", "cat sat", "", 1)])[0]
    by_label = {re.search(r"\((.*)\)", one.of).group(1): math.exp(one.value) for one in found}
    assert by_label == pytest.approx(said["probabilities"]) and found[0].of.startswith("log p(fair)")
    assert [one.of for one in found if one.of.endswith(", the predicted label")] == [
        f"log p({said['label']}), the predicted label"
    ]
    assert found[0].tokens == ["[CLS]", "the", "old", "[SEP]", "cat", "sat", "[SEP]"] and found[0].position is None

    def value():
        said = predictions(tuned, [Labelled("the old", "cat sat", "", 1)])[0]
        return math.log(said["probabilities"]["fair"])

    slope = slopes(tuned.model, [TOKENIZER.vocab[word] for word in ("[CLS]", "the", "old", "cat", "sat")], value)
    np.testing.assert_allclose(found[0].scores[[0, 1, 2, 4, 5]], slope, rtol=1e-5, atol=1e-9)
    with pytest.raises(ValueError, match="there is no label 'poor'; this model has bad, fair, good"):
        class_saliency(tuned, "the old", label="poor")
    if pairs:
        with pytest.raises(ValueError, match="this model compares two texts, but only one was given; give the other"):
            class_saliency(tuned, "the old")


def test_a_very_unlikely_word_has_a_finite_number():
    """log p of a probability too small for float32 is finite."""
    model = MiniBERT(MINI, seed=5)
    model.named_params()["head.b"].data[7] = -500
    ids = np.array([TOKENIZER.encode("the cat sat")])
    values, scores = gradient_times_input(model, ids, word_log_probability([7]), chosen=np.array([2]))
    assert -520 < values[0] < -480 and np.isfinite(scores).all()


def test_weights_in_sixteen_bits():
    """Saliency works the same for a model with 16-bit weights."""
    model = MiniBERT(MINI, seed=5)
    ids = TOKENIZER.encode("the cat sat")
    exact = word_saliency(model, TOKENIZER, ids, [2])[0]
    rounded = word_saliency(model.keep_weights("bfloat16"), TOKENIZER, ids, [2])[0]
    assert rounded.value == pytest.approx(exact.value, abs=0.05)
    np.testing.assert_allclose(rounded.scores, exact.scores, atol=0.05)


# --- relations ---------------------------------------------------------------------------------------------

TREE = Parsed(
    words=["the", "old", "cat", "slept"],
    tags=["DET", "ADJ", "NOUN", "VERB"],
    heads=[3, 3, 4, 0],
    relations=["det", "amod", "nsubj", "root"],
    line=1,
)


def test_pieces_become_words():
    """Attention to a word is the sum over its pieces; attention from a word is their mean. Word 1 has two pieces."""
    weights = np.array(
        [
            [9, 9, 9, 9, 9],  # [CLS]
            [9, 0.1, 0.2, 0.3, 9],  # word 0
            [9, 0.4, 0.1, 0.3, 9],  # word 1, first piece
            [9, 0.6, 0.1, 0.1, 9],  # word 1, second piece
            [9, 9, 9, 9, 9],  # [SEP]
        ]
    )
    np.testing.assert_allclose(word_attention(weights, [1, 2], 1), [[0.1, 0.5], [0.5, 0.3]])
    stacked = np.stack([weights, weights / 2])[None]
    np.testing.assert_allclose(word_attention(stacked, [1, 2], 1)[0, 1], [[0.05, 0.25], [0.25, 0.15]])


def test_a_head_that_follows_the_tree():
    """Attention head 0 attends from each word to its syntactic head, head 1 from there to the dependents, head 2 to the
    next word."""
    N = 4
    follows, leads, following = np.zeros((3, N, N))
    for word, head in enumerate(TREE.heads):
        if head:
            follows[word, head - 1] = 1
            leads[head - 1, word] = 0.5
    follows[3, 3] = leads[0, 0] = 1  # looking at oneself is no guess
    following[np.arange(3), np.arange(1, 4)] = 1
    found = Relations({}, {}, {}, 1, 0)
    count_correct(TREE, predicted_parents(np.stack([follows, leads, following])[None]), found)
    assert found.counts == {"det": 1, "amod": 1, "nsubj": 1, "all": 3}
    to_head, to_dependent = found.accuracy("all")[:, 0]
    assert to_head[0] == 1 and to_dependent[1] == 1
    assert to_head[2] == pytest.approx(2 / 3)  # the next word is the head of old and of cat
    best = {score.relation: score for score in found.best()}
    assert best["det"][2:5] == ("child → parent", 0, 0) and best["det"].accuracy == 1
    assert (best["det"].offset, best["amod"].offset, best["nsubj"].offset) == (2, 1, 1)
    assert best["all"].baseline == pytest.approx(2 / 3) and best["all"].gain == pytest.approx(1 / 3)
    assert found.best()[0].relation == "all"  # the only one with a gain
    with pytest.raises(ValueError, match="no relation 'obj' in this treebank; it has all, amod, det, nsubj"):
        found.accuracy("obj")


SENTENCES = [
    TREE,
    Parsed(["cats", "sat", "."], ["NOUN", "VERB", "PUNCT"], [2, 0, 2], ["nsubj", "root", "punct"], 7),
    Parsed(["cats"], ["NOUN"], [0], ["root"], 12),
    Parsed(["it", "zebra", "cats", "\u200b"], ["X"] * 4, [0, 1, 2, 3], ["root", "dep", "dep", "dep"], 14),
    Parsed(["cat"] * 12, ["NOUN"] * 12, [0, *range(1, 12)], ["root"] + ["flat"] * 11, 20),  # 14 tokens
]


def by_hand(model, sentence):
    """Clark's method for one sentence, with loops: returns {(direction, layer, head): the prediction for each word}"""
    pieces = [TOKENIZER.ids([word])[0] or [TOKENIZER.unk_id] for word in sentence.words]
    ids = [TOKENIZER.cls_id, *(i for row in pieces for i in row), TOKENIZER.sep_id]
    _, cache = model.encode(np.array([ids]))
    starts = [1 + sum(map(len, pieces[:word])) for word in range(len(pieces))]
    found = {}
    for layer, weights in enumerate(cache.attention_weights()):
        for head, grid in enumerate(weights[0]):
            paid = np.zeros((len(pieces), len(pieces)))
            for a, row in enumerate(pieces):
                for b, column in enumerate(pieces):
                    for i in range(len(row)):
                        for j in range(len(column)):
                            paid[a, b] += grid[starts[a] + i, starts[b] + j] / len(row)
            for word in range(len(pieces)):
                others = [other for other in range(len(pieces)) if other != word]
                out = max(others, key=lambda other: paid[word, other])
                back = max(others, key=lambda other: paid[other, word])
                found.setdefault((0, layer, head), []).append(out)
                found.setdefault((1, layer, head), []).append(back)
    return found


def test_relations_as_counted_by_hand(model, monkeypatch):
    """Padded batches give the same counts as loops over one sentence at a time; sentences that do not fit are
    left out."""
    monkeypatch.setattr(attention_relations, "TOKENS", 16)
    told = []
    found = relation_scores(model, TOKENIZER, SENTENCES, told.append)
    assert told[-1] == len(SENTENCES) and (found.sentences, found.left_out) == (4, 1)
    assert found.counts == {"det": 1, "amod": 1, "nsubj": 2, "all": 7, "punct": 1, "dep": 3}
    expected = {name: np.zeros((2, 3, 2), int) for name in found.counts}
    for sentence in (SENTENCES[0], SENTENCES[1], SENTENCES[3]):
        for place, guessed in by_hand(model, sentence).items():
            for word, relation in enumerate(sentence.relations):
                if relation != "root" and guessed[word] == sentence.heads[word] - 1:
                    expected[relation][place] += 1
                    if relation != "punct":
                        expected["all"][place] += 1
    for name, counts in expected.items():
        np.testing.assert_array_equal(found.by_head[name], counts)
    assert found.by_offset["dep"][OFFSETS.index(-1)] == 3 and found.by_offset["dep"].sum() == 3


def test_relations_with_a_gain_are_shown_and_the_others_counted():
    """Of four relations, two are predicted better than by the best offset and the best untrained head."""
    right = {"all": 50, "obj": 60, "det": 70, "case": 80, "amod": 90}

    def relations(more: dict[str, int]) -> Relations:
        return Relations(
            dict.fromkeys(right, 100),
            {name: np.full((2, 1, 1), count + more.get(name, 0)) for name, count in right.items()},
            {name: np.full(len(OFFSETS), 65) for name in right},
            100,
            0,
        )

    trained, untrained = relations({}), relations({"obj": -40, "det": -7, "case": -30, "amod": 1})
    text = relation_table(trained, "a treebank", untrained=untrained)
    shown = [(line.split()[0], line.split()[-1]) for line in text.splitlines() if "→" in line]
    assert shown == [("all", "-15.0"), ("case", "+15.0"), ("det", "+5.0")]
    assert " ".join(text.split()).endswith("2 relations without a gain are not shown.")
    told = " ".join(relation_table(trained, "a treebank", most=1, untrained=untrained).split())
    assert "1 more relation with a gain; --json lists all." in told and "det" not in told


def test_nothing_to_score(model):
    """Without sentences, or without any that fits, the error says so."""
    with pytest.raises(ValueError, match="no sentences to score heads on"):
        relation_scores(model, TOKENIZER, [])
    with pytest.raises(ValueError, match="none of the 2 sentences has a dependency and fits into the model's 11"):
        relation_scores(model, TOKENIZER, [SENTENCES[2], SENTENCES[4]])


def test_the_table_of_relations(mini):
    """`all` is first. Relations that are too rare, or that no head predicts better than a baseline, are not shown."""
    found = relation_scores(mini, TOKENIZER, SENTENCES)
    text = relation_table(found, "a treebank", least=2, untrained=found)
    lines = text.splitlines()
    assert lines[0].endswith("4 sentences, a treebank; 1 too long for the model")
    assert lines[1].split()[-4:] == ["offset", "accuracy", "untrained", "gain"]
    assert lines[2].startswith("all ") and len([line for line in lines if "→" in line]) == 1
    told = " ".join(text.split())
    assert "start with heads that attend to neighbours" in told and told.endswith("without a gain are not shown.")
    score = next(score for score in found.best() if score.relation == "all")
    assert float(lines[2].split()[-1]) == pytest.approx(100 * min(0, score.gain), abs=0.06)  # itself as the control
    alone = relation_table(found, "a treebank").splitlines()[2]
    assert float(alone.split()[-1]) == pytest.approx(100 * score.gain, abs=0.06)
    assert relation_table(found, "x", least=99).endswith("no relation occurs 99 times or more")


# --- all of it ---------------------------------------------------------------------------------------------


def test_the_command_prints_and_draws(folder, tmp_path, capsys):
    """A table of heads, one head word by word, saliency, the warning, and the relations of a file."""
    treebank = tmp_path / "tiny.conllu"
    rows = [
        f"{number}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_"
        for number, (word, tag, head, relation) in enumerate(zip(*TREE[:4], strict=True), 1)
    ]
    treebank.write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    page = tmp_path / "page.html"
    attention_command("The old cat sat.", folder, layer=1, head=0, out=str(page), treebank=str(treebank))
    out = capsys.readouterr().out
    assert "[CLS] the old cat sat . [SEP]\n" in out
    assert re.search(r"^1\.0 .*%", out, re.M) and not re.search(r"^0\.0 ", out, re.M)
    assert "Layer 1, head 0: the tokens that each token attends to most" in out
    assert "Gradient × input for log p(sat) at token 4, masked" in out
    assert "It does not explain an answer" in " ".join(out.split()) and "1 sentence, tiny.conllu" in out
    assert out.endswith(f"{page}\n") and "@@" not in page.read_text(encoding="utf-8")


def test_the_output_begins_with_what_heads_do(folder, capsys):
    """First sentences about the heads with a simple pattern; grammar only if asked for."""
    attention_command("the cat sat", folder)
    tokens, words, table = capsys.readouterr().out.split("\n\n")[:3]
    assert tokens == "[CLS] the cat sat [SEP]"
    assert re.match(r"Head 0\.0 attends mostly to the previous token: \d+% of a word's weight\.\n", words)
    assert re.search(r"\nThe other \d heads share their weight among several places\.$", words)
    assert re.match(r"head +mostly +entropy", table) and re.search(r"^0\.0 +previous ", table, re.M)
    attention_command("the cat sat", folder, layer=1, head=1)
    out = capsys.readouterr().out
    assert re.search(r"^Head 1\.1 (attends mostly to|has no simple pattern)", out, re.M) and "relation" not in out


def test_the_default_treebank_is_named_as_synthetic(folder, capsys, monkeypatch):
    """Without a file, the sentences are synthetic, and both text and JSON output say so."""
    monkeypatch.setattr(attention_analysis, "SYNTHETIC_SENTENCES", 12)
    attention_command("the cat sat", folder, relations=True)
    assert "synthetic English (mini_bert/data/synthetic)" in capsys.readouterr().out
    attention_command("the cat sat", folder, as_json=True, relations=True)
    found = json.loads(capsys.readouterr().out)
    assert found["treebank"] == "synthetic English (mini_bert/data/synthetic)"
    assert found["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"] and len(found["heads"]) == 6
    weights = np.array(found["heads"][3]["weights"])
    assert weights.shape == (5, 5) and np.allclose(weights.sum(1), 1, atol=1e-4)
    assert {"entropy", "distance", "cls", "sep", "previous", "next", "itself"} <= set(found["heads"][0])
    assert found["saliency"][0]["of"] == "log p(sat) at token 3, masked" and len(found["saliency"][0]["scores"]) == 5
    assert {"relation", "accuracy", "baseline", "gain", "untrained"} <= set(found["relations"][0])
    assert found["relations"][0]["direction"] in DIRECTIONS


def test_a_fine_tuned_model_explains_its_label(tmp_path, capsys):
    """For a folder written by `finetune classify`: saliency of its prediction, or of --label; on a page, of every
    label."""
    task = Classify(["bad", "good"])
    save_tuned(tmp_path / "tuned", with_task(MiniBERT(MINI, seed=5), task), task, TOKENIZER, 7)
    folder, page = str(tmp_path / "tuned"), tmp_path / "page.html"
    attention_command("the old cat sat on the mat", folder, relations=False, label="bad", out=str(page))
    out = capsys.readouterr().out
    assert "[CLS] the old cat sat on [SEP]\n" in out  # as long as it was trained for
    assert "Gradient × input for log p(bad)" in out
    data = json.loads(re.search('id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S).group(1))
    assert {one["of"].removesuffix(", the predicted label") for one in data["saliency"]} == {
        "log p(bad)",
        "log p(good)",
    }
    attention_command("the cat", folder, relations=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["saliency"][0]["of"].endswith(", the predicted label")
    with pytest.raises(ValueError, match="no head for masked words"):
        attention_command("the cat", folder, relations=False, word="cat")


@pytest.mark.parametrize("kind", ["mini", "bert"])
@pytest.mark.parametrize("vectors", [False, True])
def test_a_model_of_similarity_is_looked_at(kind, vectors, tmp_path, capsys, caplog):
    """It has a head for scores (in a published BERT, with the name of a classifier), and no label to explain."""
    task = Similarity(0, 5, vectors=vectors)
    encoder = MiniBERT(MINI, seed=5) if kind == "mini" else Bert(BERT, seed=5)
    save_tuned(tmp_path / "tuned", with_task(encoder, task), task, TOKENIZER, 11)
    attention_command("the old cat sat", str(tmp_path / "tuned"), second="it sat", relations=False)
    assert "[CLS] the old cat sat [SEP] it sat [SEP]\n" in capsys.readouterr().out
    assert "no saliency: " in caplog.text
    with pytest.raises(ValueError, match="--label needs a model that is fine-tuned to classify"):
        attention_command("the old cat sat", str(tmp_path / "tuned"), relations=False, label="score")


def test_wrong_wishes_are_told_before_the_work(folder, tmp_path):
    """Errors come before the work, and name the value and the alternatives."""
    for options, message in (
        ({"text": None}, "there is no text; give one"),
        ({"text": None, "treebank": "x", "out": "a.png"}, "no text to draw into a.png"),
        ({"label": "good"}, "--label needs a model that is fine-tuned to classify, which .*tiny is not"),
        ({"layer": 3}, "there is no layer 3; this model has 3, numbered from 0 to 2"),
        ({"head": 2}, "there is no head 2; this model has 2"),
        ({"word": "dog"}, "'dog' is not a token of the text; give the number of a token: 0:.CLS. 1:the"),
        ({"word": "the"}, "'the' occurs 2 times in the text"),
        ({"out": str(tmp_path / "none" / "a.html")}, "there is no folder"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            attention_command(**{"text": "the cat the", "model": folder, "relations": False, **options})


def test_a_word_by_name_or_number(mini):
    """Case does not matter; a number is first looked for as a word in the text, then used as a position."""
    numbers = WordPieceTokenizer([*SPECIAL_TOKENS, "cat", "1"])
    assert find_word(numbers, numbers.encode("cat 1"), "Cat") == 1
    assert find_word(numbers, numbers.encode("cat 1"), "1") == 2
    with pytest.raises(ValueError, match="'0' is not a token"):
        find_word(numbers, numbers.encode("cat dog"), "0")
    found = analyse(mini, TOKENIZER, "the old cat sat", word="old", relations=False)
    assert found.saliency[0].position == 2 and found.saliency[0].tokens[2] == "[MASK]"


@pytest.mark.parametrize("name", ["", "new/", "page.html/"])
def test_a_folder_is_no_picture(name, tmp_path):
    """A picture for the folder `plots` does not become plots.png."""
    with pytest.raises(IsADirectoryError, match=r"is a folder, expected a file, such as .*picture\.png"):
        checked_path(os.path.join(tmp_path, name))


def test_the_formats_of_this_command_are_named(tmp_path):
    """Besides pictures it writes pages."""
    with pytest.raises(ValueError, match=r"ends in '\.txt', .*; try \.html, \.png, \.svg or \.pdf$"):
        checked_path(tmp_path / "cat.txt")


def test_a_model_without_a_word_head_has_maps_but_no_saliency(caplog):
    """Sentence encoders are published without a masked-word head."""
    bert = Bert(BERT, output_heads=(), seed=5)
    found = analyse(bert, TOKENIZER, "the cat sat", relations=False)
    assert found.saliency == [] and "no head for masked words" in caplog.text
    assert "Gradient" not in report(found) and json.loads(report_json(found))["saliency"] == []
    assert "Attention heads" in attention_page.attention_page(found)
    with pytest.raises(ValueError, match="no head for masked words"):
        analyse(bert, TOKENIZER, "the cat sat", word="cat", relations=False)


def test_checkpointed_blocks_are_refused(mini):
    """Recompute stores no attention weights; the error says what to do."""
    mini.encoder.blocks = [Recompute(block) for block in mini.encoder.blocks]
    with pytest.raises(ValueError, match="without gradient checkpointing"):
        attention_maps(mini, TOKENIZER, "the cat")


# --- the page ----------------------------------------------------------------------------------------------

VOID = {"meta", "br", "hr", "input", "img", "link"}


class Structure(HTMLParser):
    """Checks that tags are opened and closed in order, and collects the contents of scripts"""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.scripts, self.ids = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts.append(text)


EVIL = "</script><script>alert(1)</script> & <b>"


@pytest.fixture
def page(mini, monkeypatch):
    monkeypatch.setattr(attention_page, "MIN_COUNT", 1)
    found = analyse(mini, TOKENIZER, f"the cat {EVIL}"[:24], relations=False, every_word=True, layer=2)
    found = found._replace(model=EVIL, relations=relation_scores(mini, TOKENIZER, SENTENCES), treebank=EVIL)
    return found, attention_page.attention_page(found)


def test_the_page_is_well_formed_and_holds_its_data(page):
    """Every element is closed in order, ids are unique, labels refer to elements, and the weights can be read back."""
    found, text = page
    structure = Structure()
    structure.feed(text)
    structure.close()
    assert structure.open == [] and len(structure.ids) == len(set(structure.ids))
    referred = {a[name] for _, a in structure.seen for name in ("aria-labelledby", "aria-describedby") if name in a}
    assert referred and referred <= set(structure.ids)
    data = json.loads(structure.scripts[0])
    assert data["tokens"] == found.maps.tokens and data["chosen"] == [2, 0]
    assert data["roles"] == found.maps.roles and not re.search(
        r'"\[(CLS|SEP|PAD)\]"[^)]*includes', structure.scripts[1]
    )
    weights = np.frombuffer(b64decode(data["weights"]), "<u2").reshape(3, 2, len(data["tokens"]), -1) / 65535
    np.testing.assert_allclose(weights, found.maps.weights, atol=1e-5)
    assert len(data["saliency"]) == len(data["tokens"]) - 2 and len(data["statistics"]) == 6
    assert {len(row) for row in data["relations"]["rows"]} == {len(data["relations"]["columns"])} == {8}
    asked = set(re.findall(r'\$\("#([\w-]+)', structure.scripts[1]))
    assert asked <= set(structure.ids)


def test_the_page_needs_nothing_and_runs_nothing_of_the_text(page):
    """No address, source or link; markup in the text stays text; a content security policy forbids fetching."""
    _, text = page
    for word in ("http://", "https://", "src=", "href=", "@import", "url(", "//cdn", "fetch(", "XMLHttp", "innerHTML"):
        assert word not in text, word
    assert text.count("<script") == 2 and text.count("</script>") == 2
    assert "alert(1)</script>" not in text and r"\u003c/script\u003e" in text
    assert "default-src 'none'" in text and "@@" not in text
    title = re.search("<title>(.*)</title>", text).group(1)
    assert title.startswith("Attention: [CLS] the cat &lt;")


def test_weights_are_packed_in_two_bytes():
    """0 and 1 are exact, others to 1/65535; the lower byte comes first."""
    assert b64decode(packed(np.array([0.0, 1.0, 0.5]))) == bytes([0, 0, 255, 255, 0, 128])


@pytest.mark.slow
def test_the_page_draws_itself_in_a_browser(page, tmp_path):
    """In Chromium, from disk: a button and a table row for each head, a chip for each token, and no error."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium here")
    path = tmp_path / "page.html"
    path.write_text(page[1], encoding="utf-8")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    dom = dom.partition("</style>")[2].partition("<script")[0]  # what the script made of the page
    T = len(page[0].maps.tokens)
    assert dom.count("aria-pressed=") == 6 and dom.count('aria-pressed="true"') == 1
    assert dom.count('class="chip') == T and len(re.findall("<path ", dom)) > T
    assert dom.count("<bdi>") > T and "<b>" not in dom


@pytest.mark.parametrize("module", [maps_module, saliency])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0
