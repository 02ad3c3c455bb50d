"""Learning a Unigram vocabulary: each step against its definition, written out over all segmentations."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.text import tokenizer_train
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.tokenizer_files import BUNDLED
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_em import LONGEST, Pieces, Substrings, _digamma
from mini_bert.text.unigram_learning import Splitter, choose, finished, frequent_alphabet, learn

PRETRAIN = Path(__file__).parents[2].parent / "shared" / "data" / "pretrain"
WORDS = {"▁the": 5, "▁then": 2, "▁at": 3, "▁hat": 2, "the": 1, "▁banana": 7, "▁ban": 3, "ana": 2, "▁a": 4, "n": 1}


def nothing(*_):
    pass


def segmentations(word, pieces):
    if not word:
        return [()]
    return [
        (word[:end], *rest)
        for end in range(1, len(word) + 1)
        if word[:end] in pieces
        for rest in segmentations(word[end:], pieces)
    ]


def seeds(words=WORDS, most=40, rarest=2):
    return Substrings(words, rarest).seeds(most)


def occurrences(words):
    """All substrings of up to LONGEST characters, and how often they occur"""
    found = defaultdict(int)
    for word, count in words.items():
        for first in range(len(word)):
            for last in range(first + 1, min(len(word), first + LONGEST) + 1):
                found[word[first:last]] += count
    return found


def test_substrings_are_counted():
    """The first pieces are all characters, and the substrings that cover most of the text."""
    found = occurrences(WORDS)
    pieces = seeds(most=10**6)
    texts = pieces.texts()
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert found[text] >= 2 or len(text) == 1
    for text, count in found.items():
        longer = [other for other in found if len(other) == len(text) + 1 and other.startswith(text)]
        replaced = any(found[other] == count for other in longer)
        assert (text in texts) == (len(text) == 1 or (count >= 2 and not replaced))
    expected = dict(zip(texts, pieces.expected, strict=True))
    assert expected["ana"] == 3 * found["ana"] and expected["▁"] == found["▁"]
    few = seeds(most=len(set("".join(WORDS))) + 3).texts()
    covers = sorted((len(text) * found[text] for text in texts if len(text) > 1), reverse=True)
    assert sorted((len(text) * found[text] for text in few if len(text) > 1), reverse=True) == covers[:3]


def test_expected_counts():
    """Forward-backward over all words at once gives the counts over all segmentations of each word."""
    generator = random.Random(0)
    words = {}
    for _ in range(60):
        letters = "".join(generator.choices("abc", k=generator.randint(1, 9)))
        words["▁" * generator.randint(0, 1) + letters] = generator.randint(1, 9)
    pieces = seeds(words)
    pieces.scores = np.log(np.random.default_rng(0).dirichlet(np.ones(len(pieces))))
    score = dict(zip(pieces.texts(), pieces.scores, strict=True))
    expected = defaultdict(float)
    for word, count in words.items():
        ways = segmentations(word, score)
        weights = [math.exp(sum(score[piece] for piece in way)) for way in ways]
        for way, weight in zip(ways, weights, strict=True):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    np.testing.assert_allclose(pieces._expectation(), [expected[text] for text in pieces.texts()], rtol=1e-10)


def test_expected_counts_of_words_whose_probability_is_no_float():
    """A long word of rare characters among frequent short ones: its probability is far below the smallest float, yet
    its pieces are counted, as with decimal numbers of any exponent."""
    rare = "".join(chr(0x4E00 + place) for place in range(80))
    words = {"▁the": 300_000, rare + rare[:9]: 1, "▁" + rare[:7]: 2}
    pieces = seeds(words)
    p = {text: Decimal(score).exp() for text, score in zip(pieces.texts(), pieces.scores.tolist(), strict=True)}
    expected = defaultdict(Decimal)
    for word, count in words.items():
        edges = [(i, j) for j in range(len(word) + 1) for i in range(j) if word[i:j] in p]
        alpha = [Decimal(1)] + [Decimal(0)] * len(word)
        beta = [Decimal(0)] * len(word) + [Decimal(1)]
        for i, j in edges:
            alpha[j] += alpha[i] * p[word[i:j]]
        for i, j in sorted(edges, reverse=True):
            beta[i] += p[word[i:j]] * beta[j]
        for i, j in edges:
            expected[word[i:j]] += count * alpha[i] * p[word[i:j]] * beta[j] / alpha[-1]
        if len(word) > 80:
            assert float(alpha[-1]) == 0.0
    found = pieces._expectation()
    np.testing.assert_allclose(found, [float(expected[text]) for text in pieces.texts()], rtol=1e-9)


def test_the_likelihood_rises():
    """With the shares of the expected counts as new probabilities, as in plain EM, round after round."""
    pieces = seeds()

    def likelihood():
        score = dict(zip(pieces.texts(), pieces.scores, strict=True))
        return sum(
            count * math.log(sum(math.exp(sum(score[p] for p in way)) for way in segmentations(word, score)))
            for word, count in WORDS.items()
        )

    pieces.scores = np.log(pieces.expected / pieces.expected.sum())
    values = [likelihood()]
    for _ in range(8):
        pieces.expected = np.maximum(pieces._expectation(), 1e-12)
        pieces.scores = np.log(pieces.expected / pieces.expected.sum())
        values.append(likelihood())
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
    assert values[-1] > values[0] + 1


def test_new_scores_are_digammas_of_the_counts():
    """ψ(c) - ψ(Σc), for pieces expected at least half a time."""
    pieces = seeds()
    texts, counts = pieces.texts(), pieces._expectation()
    pieces.estimate()
    kept = [(text, count) for text, count in zip(texts, counts, strict=True) if count >= 0.5 or len(text) == 1]
    assert pieces.texts() == [text for text, _ in kept]
    values = np.maximum([count for _, count in kept], 0.5)
    np.testing.assert_allclose(pieces.scores, _digamma(values) - _digamma(values.sum()))


def test_digamma():
    """ψ(1) = -γ, ψ(½) = -γ - 2 log 2, and ψ is the derivative of log Γ."""
    gamma = 0.5772156649015329
    np.testing.assert_allclose(_digamma([1.0, 0.5]), [-gamma, -gamma - 2 * math.log(2)], rtol=1e-9)
    for x in (0.1, 2.5, 7.0, 1234.5):
        slope = (math.lgamma(x + 1e-5) - math.lgamma(x - 1e-5)) / 2e-5
        np.testing.assert_allclose(_digamma(x), slope, rtol=1e-6)


def test_what_a_piece_would_be_spelt_with():
    """The best segmentation of each piece into other pieces, over all of them; and the smallest losses go first."""
    pieces = seeds()
    pieces.estimate()
    texts = pieces.texts()
    score = dict(zip(texts, pieces.scores, strict=True))
    best = [
        max((sum(score[p] for p in way) for way in segmentations(text, score) if len(way) > 1), default=-math.inf)
        for text in texts
    ]
    np.testing.assert_allclose(pieces._without(), best)
    loss = {
        text: count * (score[text] - other)
        for text, count, other in zip(texts, pieces.expected, best, strict=True)
        if len(text) > 1
    }
    least = sorted(loss, key=loss.get)[:4]
    pieces.prune(len(pieces) - 4)
    assert set(texts) - set(pieces.texts()) == set(least)
    before = dict(zip(pieces.texts(), pieces._expectation(), strict=True))
    assert sum(len(text) * count for text, count in before.items()) == pytest.approx(
        sum(len(word) * count for word, count in WORDS.items())
    )


def test_the_last_digits_do_not_decide(monkeypatch):
    """Processors differ in the last digits of exp and log. Pieces that are equal by symmetry are then still equal, and
    the same ones are kept."""
    shapes = {"▁xy": 9, "▁xyx": 7, "▁yxyx": 5, "xyy": 4, "yyx": 3}
    pairs = ["ab", "cd", "ef", "gh", "ij", "kl"]
    words = {shape.translate(str.maketrans("xy", pair)): count for pair in pairs for shape, count in shapes.items()}
    first = choose(words, 35, 1000, nothing)
    exact = Pieces._expectation
    for seed in range(5):
        noise = np.random.default_rng(seed)
        monkeypatch.setattr(
            Pieces,
            "_expectation",
            lambda pieces, noise=noise: exact(pieces) * (1 + 1e-15 * noise.normal(size=len(pieces))),
        )
        assert choose(words, 35, 1000, nothing) == first


def test_words_of_one_character():
    """Nothing to merge: the characters are the vocabulary."""
    pieces, scores = choose({"a": 3, "b": 1, "▁": 2}, 20, 1000, nothing)
    assert sorted(pieces) == ["a", "b", "▁"] and len(scores) == 3


def test_long_words_do_not_underflow():
    """100 rare characters in a row: a product of 100 probabilities."""
    word = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=100))
    pieces = Substrings({word: 10**6, "ab": 1, "x" * 100: 3}, 2).seeds(30)
    expected = pieces._expectation()
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(expected @ pieces.lengths, 100 * 10**6 + 2 + 300)


# ---- the whole


TEXTS = [
    "the cat sat on the mat",
    "then the cat sat at the table",
    "At that, the CAT sat: 2,000 times",
    "Zoë's naïve cat",
]


def test_learning_is_repeatable(tmp_path):
    """The same text gives the same pieces and scores, for any number of processes."""
    once = learn(iter(TEXTS * 50), vocab_size=36, processes=1, progress=False)
    assert once == learn(iter(TEXTS * 50), vocab_size=36, processes=2, progress=False)
    tokenizer = UnigramTokenizer(**once)
    assert tokenizer.fingerprint == UnigramTokenizer.train(iter(TEXTS * 50), 36, progress=False).fingerprint
    assert len(tokenizer) == 36 and tokenizer.tokens[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.decode(tokenizer.encode("The CAT  sat"), skip_special_tokens=True) == "the cat sat"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


def test_pieces_have_letters_or_other_characters():
    """Text is normalised, cut at spaces, and between letters and the rest."""
    lower, cased = Splitter(True), Splitter(False)
    assert lower.words("Zoë's ``2,000'' ﬁne") == ["▁zoe", "'", "s", '▁"2,000"', "▁fine"]
    assert cased.words("Zoë's 日本x1 का") == ["▁Zoë", "'", "s", "▁日本x", "1", "▁का"]
    assert lower.words("a\nb\t c") == ["▁a", "▁b", "▁c"] and lower.words(" ") == []
    tokenizer = UnigramTokenizer.train(iter(TEXTS * 20), 70, progress=False)
    for token in tokenizer.tokens[5:]:
        assert len({character.isalpha() for character in token.removeprefix("▁")}) <= 1


def test_rare_characters_are_unknown():
    """Words are cut at them; ▁ and the most frequent characters always are pieces."""
    words, characters = frequent_alphabet({"▁abc": 3, "▁abxab": 1, "c": 1}, 3)
    assert words == {"▁abc": 3, "▁ab": 1, "ab": 1, "c": 1} and characters == ["▁", "a", "b", "c"]
    arguments = learn(iter(TEXTS * 20), vocab_size=40, limit_alphabet=6, progress=False)
    tokenizer = UnigramTokenizer(**arguments)
    assert sum(len(token) == 1 for token in tokenizer.tokens) == 7
    assert tokenizer.unk_id in tokenizer.ids(["zoo"])[0] and tokenizer.unk_id not in tokenizer.ids(["the cat"])[0]


def test_a_character_that_was_pruned_gets_the_lowest_score():
    pieces = seeds()
    pieces.estimate()
    texts, scores = finished(pieces, ["▁", "a", "z"], 12)
    assert len(texts) == 12 and scores == sorted(scores, reverse=True)
    assert scores[texts.index("z")] == min(pieces.scores.round(5))


def test_sizes_that_do_not_fit():
    for options, message in (
        ({"vocab_size": 5}, "vocab_size is 5, expected more than the 5 special tokens"),
        (
            {"vocab_size": 12},
            r"5 special tokens and \d+ single characters already need \d+; raise vocab_size, or lower",
        ),
        ({"limit_alphabet": 0}, "limit_alphabet is 0, expected at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            learn(iter(TEXTS), progress=False, **options)
    with pytest.raises(ValueError, match="there is no word in the text"):
        learn(iter(["", " "]), progress=False)


def test_the_command(tmp_path, capsys):
    """It learns pieces, saves files that load, and prints tokens per word and <unk> on held-out documents."""
    documents = [f"Document {number} is about the number {number}, of course" for number in range(120)]
    documents[50] += " ж"
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=45, out=tmp_path / "out", kind="unigram")
    told = capsys.readouterr().out
    assert "Read 1 file, 120 documents, " in told and "Learnt 45 pieces from 1,071 words" in told
    tokenizer = load_tokenizer(tmp_path / "out")
    row = tokenizer.ids([documents[50]])[0]
    assert f"On held-out text, 10 words: {len(row) / 10:.4f} tokens per word, {1 / len(row):.4%} of the tokens" in told
    assert "Most frequent: " in told and "Longest: " in told
    others = documents[:50] + documents[51:]
    assert tokenizer.fingerprint == UnigramTokenizer.train(iter(others), 45, progress=False).fingerprint
    with pytest.raises(ValueError, match=r"--like gpt2 has another kind of tokenizer than --kind unigram; leave out"):
        tokenizer_train(["builtin"], out=tmp_path / "other", kind="unigram", like="gpt2")


def test_better_than_characters_and_close_to_the_best():
    """On text of its own kind, frequent words become one piece."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(80)]
    texts = [" ".join(generator.choices(words, [1 / (1 + i) for i in range(80)], k=30)) for _ in range(100)]
    tokenizer = UnigramTokenizer.train(iter(texts), vocab_size=100, progress=False)
    tokens = sum(map(len, tokenizer.ids(texts)))
    assert tokens < 1.15 * 3000


@pytest.mark.slow
@pytest.mark.skipif(not PRETRAIN.is_dir(), reason="needs ../shared/data/pretrain")
def test_the_bundled_tokenizer_can_be_learnt_again(tmp_path):
    """The command in vocabularies/README.md gives the bundled files, byte for byte."""
    files = [str(PRETRAIN / "wiki.txt.xz"), str(PRETRAIN / "books.txt.xz")]
    tokenizer_train(files, vocab_size=8192, limit_alphabet=300, out=tmp_path, kind="unigram")
    assert len(list(tmp_path.iterdir())) == 2
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUNDLED / "unigram-8k" / path.name).read_bytes()
