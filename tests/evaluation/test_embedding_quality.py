"""Agreement of vectors with people's scores, isotropy and neighbours, compared with plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mini_bert.data.labelled.readers import Scored
from mini_bert.evaluation import metrics
from mini_bert.evaluation.embedding_quality import (
    Agreement,
    Isotropy,
    Neighbours,
    agreement,
    isotropy,
    neighbours,
    report_neighbours,
    report_pairs,
    word_table,
)
from mini_bert.inference.embed import embed
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s"]
SIZES = MiniBertConfig(vocab_size=17, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11)
PAIRS = [
    Scored("the cat sat", "the dog sat", 4.0, 2),
    Scored("the cat sat", "on the mat.", 1.5, 3),
    Scored("dogs", "cats", 3.0, 4),
    Scored("dogs", "the dog sat", 3.5, 5),
    Scored("mat", "on", 0.0, 6),
]


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(WORDS)


@pytest.fixture
def model():
    model = MiniBERT(SIZES, seed=3)
    model.flat.data[...] *= 2
    return model


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_agreement_by_hand(model, tokenizer, pooling):
    """Cosines are computed pair by pair and ranked; the mean is that of the seven different sentences; threads change
    nothing."""
    found = agreement(model, tokenizer, PAIRS, pooling)
    texts = sorted({text for pair in PAIRS for text in pair[:2]})
    assert len(texts) == 7
    vectors = dict(zip(texts, embed(model, tokenizer, texts, pooling).astype(float), strict=True))
    mean = sum(vectors.values()) / 7
    scores = [pair.score for pair in PAIRS]
    plain = [cosine(vectors[a], vectors[b]) for a, b, *_ in PAIRS]
    centred = [cosine(vectors[a] - mean, vectors[b] - mean) for a, b, *_ in PAIRS]
    assert found[:4] == pytest.approx(
        (
            metrics.spearman(plain, scores),
            np.corrcoef(plain, scores)[0, 1],
            metrics.spearman(centred, scores),
            np.corrcoef(centred, scores)[0, 1],
        ),
        rel=1e-5,
    )
    assert len({round(value, 6) for value in found[:4]}) == 4  # four different numbers: none can stand for another
    assert found.pairs == 5
    assert found.isotropy == pytest.approx(isotropy(np.array(list(vectors.values()))), rel=1e-5)
    told = []
    again = agreement(model, tokenizer, PAIRS, pooling, 2, 3, lambda *words: told.append(words))
    assert again[:4] == pytest.approx(found[:4], rel=1e-5) and told[-1] == (7, 7)


def test_agreement_of_little(model, tokenizer):
    """One pair, or equal scores, have no correlation; a sentence may be compared with itself."""
    one = agreement(model, tokenizer, PAIRS[:1])
    assert math.isnan(one.spearman) and one.pairs == 1
    same = agreement(model, tokenizer, [Scored("the cat", "the cat", 5.0, 1)])
    assert math.isnan(same.pearson) and math.isnan(same.isotropy.mean_cosine)
    with pytest.raises(ValueError, match="no pairs"):
        agreement(model, tokenizer, [])


def test_isotropy():
    """Both measures, the second at a mean square length of 1."""
    v = np.random.default_rng(0).normal(size=(19, 5)) + 0.5
    assert isotropy(v) == (metrics.mean_cosine(v), metrics.partition_ratio(v, rescale=True))
    assert isotropy(9 * v) == pytest.approx(isotropy(v))


@pytest.mark.parametrize("kind", ["mini", "published"])
def test_neighbours_by_hand(kind, tokenizer):
    """All tokens except special ones and ids without a word, ordered by the cosine of their embeddings."""
    model = MiniBERT(SIZES, seed=3) if kind == "mini" else Bert(BertConfig(17, 10, 1, 2, 7), seed=3)
    table = model.tokens.table.data.astype(float)
    ids, vectors = word_table(model, tokenizer)
    assert ids.tolist() == list(range(5, 13)) and vectors.tolist() == table[5:13].tolist()
    for word, own in (("cat", [7]), ("Dogs", [11, 12]), ("☃ dogs", [11, 12])):
        query = sum(table[i] for i in own) / len(own)
        wanted = sorted(((cosine(query, table[i]), WORDS[i]) for i in range(5, 13) if i not in own), reverse=True)
        found = neighbours(model, tokenizer, word, 4)
        assert [token for token, _ in found.nearest] == [token for _, token in wanted[:4]]
        assert [c for _, c in found.nearest] == pytest.approx([c for c, _ in wanted[:4]])
        assert found.word == word and found.pieces == [WORDS[i] for i in own]
        assert len(neighbours(model, tokenizer, word).nearest) == 8 - len(own)  # there are no more
    for nothing in ("☃", "", "[MASK]"):
        with pytest.raises(ValueError, match="is not a word in this model's vocabulary"):
            neighbours(model, tokenizer, nothing)


def test_weights_in_sixteen_bits(model, tokenizer):
    """A model with 16-bit weights has almost the same vectors, and therefore almost the same results."""
    exact, agreed = neighbours(model, tokenizer, "dogs"), agreement(model, tokenizer, PAIRS)
    model.keep_weights("bfloat16")
    narrow = dict(neighbours(model, tokenizer, "dogs").nearest)
    assert narrow == pytest.approx(dict(exact.nearest), abs=0.02) and narrow != dict(exact.nearest)
    assert agreement(model, tokenizer, PAIRS).isotropy == pytest.approx(agreed.isotropy, abs=0.05)


def test_reports():
    """Numbers are aligned under their titles; the pieces of a word are listed if there are several."""
    found = Agreement(0.1, 0.3, 0.2, 0.4, 1234, Isotropy(0.5, 0.6))
    header, row, *_ = report_pairs(["a.tsv"], [found]).splitlines()
    assert header.split()[3:] == ["number", "Spearman", "centred", "Pearson", "centred", "mean", "cosine", "isotropy"]
    assert row.split() == ["a.tsv", "1,234", "0.100", "0.200", "0.300", "0.400", "0.500", "0.600"]
    near = [
        Neighbours("cat", ["cat"], [("dog", 0.5), ("mat", 0.25)]),
        Neighbours("cats", ["cat", "##s"], [("dog", -0.5)]),
    ]
    lines = report_neighbours(near, Isotropy(0.25, 0.75)).splitlines()
    assert lines[:2] == ["nearest to cat: dog 0.50, mat 0.25", "nearest to cats (the mean of cat ##s): dog -0.50"]
    assert lines[3].endswith("the mean is 0.250") and "isotropy 0.750" in lines[4]
