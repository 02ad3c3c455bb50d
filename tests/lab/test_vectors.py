"""The vectors room agrees with `embed`, `word_vectors` and the probes of the library."""

import json

import numpy as np
import pytest

from mini_bert.data.synthetic.dataset import parsed
from mini_bert.inference.embed import cosines, embed
from mini_bert.lab.bench import Bench
from mini_bert.lab.probe_training import ABOUT, WEIGHTS, classifier, fingerprint
from mini_bert.lab.vectors import neighbours, plane, probe, sentence_vector, word_vectors
from mini_bert.probing import word_vectors as library
from mini_bert.probing.softmax_regression import fit, standardise

LINES = ["The zebras slept.", "A dog was here.", "She was born in 1921.", "They left."]


def test_vectors_are_those_of_the_library(bench):
    """Sentences as by `embed`, words as by probing/word_vectors.py, in all layers."""
    for line in LINES:
        np.testing.assert_allclose(
            sentence_vector(bench, bench.read(line))[-1], embed(bench.model, bench.tokenizer, [line])[0], atol=1e-5
        )
    words = ["The", "zebras", "slept", "."]
    found = word_vectors(bench, bench.read("The zebras slept."))
    for layer, x in library.word_vectors(bench.model, bench.tokenizer, [words]).items():
        np.testing.assert_allclose(found[layer], x, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_plane_keeps_the_variance_and_the_cosines(bench, layer):
    """Distances on the plane never exceed those of the vectors, and cosines are those of the vectors themselves."""
    answer = plane(bench, {"text": "\n".join(LINES), "of": "words", "layer": layer})
    x = np.concatenate([word_vectors(bench, bench.read(line))[layer] for line in LINES]).astype(float)
    points = np.array([[one["x"], one["y"]] for one in answer["points"]])
    assert [one["text"] for one in answer["points"][:5]] == ["The", "zebras", "slept", ".", "A"]
    assert [one["group"] for one in answer["points"][:5]] == [0, 0, 0, 0, 1]
    apart = np.linalg.norm(x[:, None] - x, axis=-1)
    assert (np.linalg.norm(points[:, None] - points, axis=-1) <= apart + 1e-3).all()
    assert sum(answer["shares"]) == pytest.approx(points.var(0).sum() / x.var(0).sum(), rel=1e-3)
    similar = cosines(x)
    for own, one in enumerate(answer["points"]):
        others = np.delete(similar[own], own)
        assert [cosine for _, cosine in one["near"]] == pytest.approx(sorted(others, reverse=True)[:8], abs=1e-3)
        assert all(similar[own, int(other)] == pytest.approx(cosine, abs=1e-3) for other, cosine in one["near"])


def test_neighbours_are_rows_of_the_table(bench):
    """A loop over the vocabulary finds the same tokens, without the token itself and special ones."""
    answer = neighbours(bench, {"text": "She opened the door.", "position": 4})
    table = bench.model.tokens.table.data.astype(float)
    own = bench.tokenizer.vocab["door"]
    similar = {
        i: row @ table[own] / np.linalg.norm(row) / np.linalg.norm(table[own])
        for i, row in enumerate(table[: bench.tokenizer.vocab_size])
        if i != own and i not in bench.tokenizer.special_ids
    }
    best = sorted(similar, key=lambda i: -similar[i])[:8]
    assert answer["of"] == "door" and [one["text"] for one in answer["near"]] == [
        bench.tokenizer.tokens[i] for i in best
    ]
    assert [one["cosine"] for one in answer["near"]] == pytest.approx([similar[i] for i in best], abs=1e-3)


# ---------------------------------------------------------------------- the probe


def test_the_shipped_probe_belongs_to_the_bundled_model(bench):
    """If not: python -m mini_bert.lab.probe_training"""
    about = json.loads(ABOUT.read_text(encoding="utf-8"))
    assert fingerprint(bench.model) == about["model"] and WEIGHTS.stat().st_size < 100_000
    assert len(about["accuracy"]) == len(about["random"]) == bench.model.depth + 1


def test_the_shipped_probe_is_as_accurate_as_it_says(bench):
    """On new sentences of the grammar, each layer is as accurate as on those of the script, up to chance."""
    about = json.loads(ABOUT.read_text(encoding="utf-8"))
    right = np.zeros(bench.model.depth + 1)
    count = 0
    for sentence in parsed(40, seed=7, split="dev"):
        answer = probe(bench, {"text": " ".join(sentence.words)})
        if len(answer["words"]) != len(sentence.words):  # n't and 's are split differently here
            continue
        count += len(sentence.words)
        for layer, one in enumerate(answer["layers"]):
            right[layer] += sum(tags[0][0] == tag for tags, tag in zip(one["tags"], sentence.tags, strict=True))
    assert count > 200
    np.testing.assert_allclose(right / count, about["accuracy"], atol=0.04)


def test_context_tells_a_noun_from_a_verb(bench):
    """The embeddings give both words "judge" the same vector but for the position; the last layer tells them apart."""
    answer = probe(bench, {"text": "The old judge should judge the young painters."})
    assert answer["words"][2] == answer["words"][4] == "judge"
    last = answer["layers"][-1]["tags"]
    assert (last[2][0][0], last[4][0][0]) == ("NOUN", "VERB")


def test_standardising_can_be_part_of_the_weights():
    """The same scores as from a classifier of standardised vectors."""
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(83, 7)) * [1, 5, 0.1, 2, 1, 1, 0] + 3).astype(np.float32)
    targets = rng.integers(0, 3, 83)
    w, b = classifier(x, targets, 3)
    standard = x.copy()
    standardise(standard)
    expected = fit(standard, targets, 3, 10.0)
    np.testing.assert_allclose(x @ w + b, standard @ expected.w + expected.b, atol=2e-3)


def test_another_model_has_no_probe_and_says_so(bench):
    other = Bench("runs/other", bench.model.untrained(0), bench.tokenizer)
    answer = probe(other, {"text": "A cat sat."})
    assert answer["layers"] == [] and "runs/other" in answer["why"] and len(answer["tokens"]) == 6


@pytest.mark.parametrize(
    ("action", "request_", "said"),
    [
        (plane, {"text": "A cat.\nA dog."}, "from 3 to 200"),
        (plane, {"text": ""}, "from 3 to 200"),
        (plane, {"text": "a\n" * 25}, "25 sentences"),
        (plane, {"text": "a cat\n" + "a " * 90 + "\nb"}, "line 2: the sentence has 92 tokens"),
        (plane, {"text": "a b c d e f g h i j k l m n o\n" * 15, "of": "words"}, "225 words"),
        (plane, {"text": "a\nb\nc", "layer": 4}, "from 0 to 3"),
        (plane, {"text": "a\nb\nc", "of": "letters"}, "sentences, words"),
        (neighbours, {"text": "a", "position": 3}, "from 0 to 2"),
        (probe, {"text": " "}, "no word"),
        (probe, {"text": "a", "layer": 1}, "unknown field"),
    ],
)
def test_a_wrong_request_gets_a_sentence(bench, action, request_, said):
    with pytest.raises(ValueError, match=said):
        action(bench, request_)
