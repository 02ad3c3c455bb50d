"""Every metric on a case so small that the answer can be worked out by hand.

    python evaluation/metrics.py --test         in this folder, or   mini-bert metrics --test   anywhere

The answers below were written down from the formulas, not taken from the code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.data.labelled.readers import Scored
from mini_bert.evaluation import metrics
from mini_bert.evaluation.embedding_quality import agreement, neighbours
from mini_bert.evaluation.evaluate import Measured, measure
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

TOLERANCE = 1e-6
LISTED = (
    *("accuracy", "confusion_matrix", "per_class", "precision_recall_f1", "matthews", "pearson", "spearman"),
    *("entities", "entity_scores", "exact_match", "answer_f1", "answer_scores", "calibration", "brier"),
    *("mean_cosine", "partition_ratio", "nearest"),
)


class Case(NamedTuple):
    metric: str
    case: str
    found: Any  # a number, or numbers
    expected: Any
    why: str


TRUTH = ["cat", "cat", "cat", "dog", "dog", "owl"]
GUESS = ["cat", "cat", "dog", "dog", "cat", "cat"]
TAGS = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "I-ORG", "O"]]
GUESSED = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "O"]]
CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
CONE = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
LINE = np.array([[1.0, 0.0], [3.0, 0.0]])
NEAR = np.array([[0.0, 2.0], [3.0, 3.0], [0.0, -1.0]])
CERTAINTY = [0.95, 0.85, 0.85, 0.55], [True, True, False, True]
WORDS = ("red", "crimson", "green", "blue", "##ish")


def blank() -> tuple[MiniBERT, WordPieceTokenizer]:
    """A model without any opinion: every weight is 0, so all of its 10 words are equally likely everywhere"""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
    model = MiniBERT(MiniBertConfig(len(tokenizer), 4, 1, 2, 3, 8))
    model.flat.data[...] = 0
    return model, tokenizer


def biased() -> tuple[MiniBERT, WordPieceTokenizer]:
    """A model that says "red" with probability 1/2 whatever stands around, and shares the rest out evenly"""
    model, tokenizer = blank()
    head: Any = model.head
    head.b.data[...] = math.log(1 / 18)
    head.b.data[tokenizer.vocab["red"]] = math.log(1 / 2)
    return model, tokenizer


def coloured() -> tuple[MiniBERT, WordPieceTokenizer]:
    """A model whose token vectors were set by hand: crimson at 45° to red, green at 90°, blue opposite"""
    model, tokenizer = blank()
    for word, vector in (("red", [1, 0]), ("crimson", [2, 2]), ("green", [0, 3]), ("blue", [-1, 0])):
        model.token_embeddings[tokenizer.vocab[word], :2] = vector
    return model, tokenizer


def _hidden_words() -> Measured:
    """Two gaps, where "red" and "green" stood, and a model that says "red" with probability 1/2 and the rest evenly"""
    from mini_bert.data.generator import Batch

    model, tokenizer = biased()
    ids = np.array([[tokenizer.cls_id, tokenizer.mask_id, tokenizer.mask_id, tokenizer.sep_id]])
    targets = np.array([tokenizer.vocab["red"], tokenizer.vocab["green"]])
    return measure(model, [Batch(ids, np.array([1, 2]), targets)])


def _agreement() -> float:
    """Texts of one word, through blocks that add nothing: three norms, which leave directions as the first does"""
    model, tokenizer = coloured()
    for name, param in model.named_params().items():
        if name.endswith("gamma"):
            param.data[...] = 1
    pairs = [("red", "crimson", 2.0), ("red", "green", 4.0), ("red", "blue", 1.0)]
    return agreement(model, tokenizer, [Scored(a, b, score, 1) for a, b, score in pairs]).spearman


def cases() -> list[Case]:
    """All of them, computed now"""
    m, near = metrics, neighbours(*coloured(), "red", 4).nearest
    gaps, found = "red, green; p(red) 1/2, 9 others 1/18", _hidden_words()
    table = [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    one, two = pseudo_perplexity(*biased(), "red green"), pseudo_perplexity(*blank(), "red green blue")
    sure, even = np.array([[0.8, 0.2], [0.4, 0.6]]), math.sqrt(1 / 2)
    values: list[tuple[str, str, Any, Any, str]] = [
        ("accuracy", "6 guesses", m.accuracy(TRUTH, GUESS), 1 / 2, "3/6"),
        ("confusion_matrix", "rows are truth", m.confusion_matrix(TRUTH, GUESS), table, "counted"),
        ("per_class", "cat, P R F1 n", m.per_class(TRUTH, GUESS)["cat"], [2 / 4, 2 / 3, 4 / 7, 3], "F1: 2·2/(4+3)"),
        ("per_class", "owl, P R F1 n", m.per_class(TRUTH, GUESS)["owl"], [0, 0, 0, 1], "never guessed"),
        ("precision_recall_f1", "macro F1", m.precision_recall_f1(TRUTH, GUESS).f1, 5 / 14, "(4/7 + 1/2 + 0)/3"),
        ("precision_recall_f1", "micro F1", m.precision_recall_f1(TRUTH, GUESS, "micro").f1, 1 / 2, "the accuracy"),
        ("matthews", "6 guesses", m.matthews(TRUTH, GUESS), 2 / math.sqrt(352), "(18 − 16)/√(16·22)"),
        ("pearson", "1 2 3 4 | 2 4 5 9", m.pearson([1, 2, 3, 4], [2, 4, 5, 9]), 11 / math.sqrt(130), "11/√(5·26)"),
        ("spearman", "1 2 2 3 | 1 3 2 4", m.spearman([1, 2, 2, 3], [1, 3, 2, 4]), math.sqrt(0.9), "4.5/√(4.5·5)"),
        ("entities", "B-PER I-PER O B-LOC", len(m.entities(TAGS[0])), 2, "words 0 to 1, word 3"),
        ("entities", "O I-ORG O", len(m.entities(TAGS[1])), 1, "an I- after O begins one"),
        ("entity_scores", "micro F1", m.entity_scores(TAGS, GUESSED).micro.f1, 2 / 3, "2·2/(3+3)"),
        ("entity_scores", "macro F1", m.entity_scores(TAGS, GUESSED).macro.f1, 5 / 9, "(0 + 2/3 + 1)/3"),
        ("exact_match", "The  Cat! | cat", m.exact_match("The  Cat!", ["dog", "cat"]), 1, "the same, normalized"),
        (
            "answer_f1",
            "the black cat | the cat",
            m.answer_f1("the black cat", ["a dog", "the cat"]),
            2 / 3,
            "2·1/(2+1)",
        ),
        ("answer_scores", "one of two guessed", m.answer_scores({"a": "x"}, {"a": ["X"], "b": ["y"]})[0], 1 / 2, "1/2"),
        ("calibration", ".95 ✓ .85 ✓ .85 ✗ .55 ✓", m.calibration(*CERTAINTY).error, 0.3, "(.05 + 2·.35 + .45)/4"),
        ("calibration", "the same, worst bin", m.calibration(*CERTAINTY).worst, 0.45, "1 − .55"),
        ("brier", ".8 .2 | .4 .6, first is true", m.brier(sure, [0, 0]), 0.4, "(.08 + .72)/2"),
        ("mean_cosine", "→ ↑ ↗", m.mean_cosine(CONE), 2 * even / 3, "(0 + 2·√½)/3"),
        ("mean_cosine", "→ ← ↑ ↓", m.mean_cosine(CROSS), -1 / 3, "(2·(−1) + 4·0)/6"),
        ("partition_ratio", "→ ← ↑ ↓", m.partition_ratio(CROSS), 1, "the same from everywhere"),
        ("partition_ratio", "→, and thrice as long", m.partition_ratio(LINE), math.exp(-4), "(e⁻¹ + e⁻³)/(e + e³)"),
        ("nearest", "→ among ↑ ↗ ↓, two", m.nearest(CROSS[0], NEAR, 2), [(1, even), (0, 0)], "cos 45°, cos 90°"),
        ("loss", gaps, found.result.loss, math.log(6), "(ln 2 + ln 18)/2"),
        ("perplexity", gaps, found.result.perplexity, 6, "√(2·18)"),
        ("top-1, top-5", gaps, found.result[2:4], [1 / 2, 1 / 2], "a tie counts against it"),
        ("calibration", gaps, found.calibration.error, 0, "says 1/2, is right in 1/2"),
        ("brier", gaps, found.brier, 13 / 18, "(5/18 + 21/18)/2"),
        ("pseudo_perplexity", gaps, one.perplexity, 6, "√(2·18)"),
        ("pseudo_perplexity", "three words, no opinion", two.perplexity, 10, "V, as all are alike"),
        ("neighbours", "red to tokens at 45° 90° 90° 180°", [c for _, c in near], [even, 0, 0, -1], "cosines"),
        ("agreement", "cosines 3rd 2nd 1st, scores 2 4 1", _agreement(), 1 / 2, "1 − 6·(1+1)/(3·8)"),
    ]
    return [Case(*row) for row in values]


def metrics_command(test: bool = False) -> int:
    """List the metrics with their formulas; or each on its known case -> exit code: 1 if one differs"""
    if not test:
        for name in LISTED:
            print(f"{name:20} {(getattr(metrics, name).__doc__ or '').splitlines()[0]}")
        print(f"\nEach on a small case whose answer is known: --test. Of a model, on text: {command('eval')}")
        return 0
    wrong, all_cases = 0, cases()
    print(f"{'':8}{'metric':20} {'found':>22} {'expected':>22}   case: why")
    for metric, case, *values, why in all_cases:
        found, expected = (np.asarray(value, float) for value in values)
        same = found.shape == expected.shape and bool(np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE))
        wrong += not same
        sign = "[OK]" if same else "[WRONG]"
        print(f"{sign:8}{metric:20} {_shown(found):>22} {_shown(expected):>22}   {case}: {why}")
    print(f"\n{wrong} of {len(all_cases)} differ." if wrong else f"\nAll {len(all_cases)} as expected.")
    return 1 if wrong else 0


def _shown(numbers: np.ndarray) -> str:
    """A few numbers in a few characters; of a matrix, rows parted by a bar"""
    if numbers.ndim == 2:
        return " | ".join(_shown(row) for row in numbers)
    return " ".join(f"{number:.5g}" for number in numbers.ravel())
