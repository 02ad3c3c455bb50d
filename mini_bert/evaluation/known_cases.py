"""Every metric on a case small enough to work out by hand (`mini-bert metrics --test`).

The expected values were derived from the formulas, not copied from the code's output.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.data.generator import Batch
from mini_bert.data.labelled.readers import Scored
from mini_bert.evaluation import metrics
from mini_bert.evaluation.embedding_quality import agreement, neighbours
from mini_bert.evaluation.evaluate import Measured, measure
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
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
    computed: Any  # a number, or numbers
    expected: Any
    why: str

    @property
    def passed(self) -> bool:
        computed, expected = np.asarray(self.computed, float), np.asarray(self.expected, float)
        return computed.shape == expected.shape and np.allclose(computed, expected, rtol=TOLERANCE, atol=TOLERANCE)


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
    """A model whose weights are all 0, so its 10 words are equally likely everywhere."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
    model = MiniBERT(MiniBertConfig(len(tokenizer), 4, 1, 2, 3, 8))
    model.flat.data[...] = 0
    return model, tokenizer


def biased() -> tuple[MiniBERT, WordPieceTokenizer]:
    """A model that predicts "red" with probability 1/2 in any context, and the other 9 words with 1/18 each."""
    model, tokenizer = blank()
    head: Any = model.head
    head.b.data[...] = math.log(1 / 18)
    head.b.data[tokenizer.vocab["red"]] = math.log(1 / 2)
    return model, tokenizer


def coloured() -> tuple[MiniBERT, WordPieceTokenizer]:
    """A model with hand-made token vectors: crimson at 45° to red, green at 90°, blue opposite."""
    model, tokenizer = blank()
    for word, vector in (("red", [1, 0]), ("crimson", [2, 2]), ("green", [0, 3]), ("blue", [-1, 0])):
        model.token_embeddings[tokenizer.vocab[word], :2] = vector
    return model, tokenizer


def _masked_words() -> Measured:
    """The biased model on two masks, where "red" and "green" were."""
    model, tokenizer = biased()
    ids = np.array([tokenizer.assemble([tokenizer.mask_id] * 2).ids])
    targets = np.array([tokenizer.vocab["red"], tokenizer.vocab["green"]])
    return measure(model, [Batch(ids, np.array([1, 2]), targets)])


def _agreement() -> float:
    """One-word texts through blocks that add nothing: only the layer norms act, and they keep the order of cosines."""
    model, tokenizer = coloured()
    for name, param in model.named_params().items():
        if name.endswith("gamma"):
            param.data[...] = 1
    pairs = [("red", "crimson", 2.0), ("red", "green", 4.0), ("red", "blue", 1.0)]
    return agreement(model, tokenizer, [Scored(a, b, score, 1) for a, b, score in pairs]).spearman


def cases() -> list[Case]:
    """Compute all of them."""
    m, near = metrics, neighbours(*coloured(), "red", 4).nearest
    gaps, found = "red, green; p(red) 1/2, 9 others 1/18", _masked_words()
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
        ("entities", "O I-ORG O", len(m.entities(TAGS[1])), 1, "an I- after O starts one"),
        ("entity_scores", "micro F1", m.entity_scores(TAGS, GUESSED).micro.f1, 2 / 3, "2·2/(3+3)"),
        ("entity_scores", "macro F1", m.entity_scores(TAGS, GUESSED).macro.f1, 5 / 9, "(0 + 2/3 + 1)/3"),
        ("exact_match", "The  Cat! | cat", m.exact_match("The  Cat!", ["dog", "cat"]), 1, "the same, normalized"),
        ("answer_f1", "black cat | the cat", m.answer_f1("black cat", ["a dog", "the cat"]), 2 / 3, "2·1/(2+1)"),
        ("answer_scores", "one of two guessed", m.answer_scores({"a": "x"}, {"a": ["X"], "b": ["y"]})[0], 1 / 2, "1/2"),
        ("calibration", ".95 ✓ .85 ✓ .85 ✗ .55 ✓", m.calibration(*CERTAINTY).error, 0.3, "(.05 + 2·.35 + .45)/4"),
        ("calibration", "the same, worst bin", m.calibration(*CERTAINTY).worst, 0.45, "1 − .55"),
        ("brier", ".8 .2 | .4 .6, first is true", m.brier(sure, [0, 0]), 0.4, "(.08 + .72)/2"),
        ("mean_cosine", "→ ↑ ↗", m.mean_cosine(CONE), 2 * even / 3, "(0 + 2·√½)/3"),
        ("mean_cosine", "→ ← ↑ ↓", m.mean_cosine(CROSS), -1 / 3, "(2·(−1) + 4·0)/6"),
        ("partition_ratio", "→ ← ↑ ↓", m.partition_ratio(CROSS), 1, "Z is equal in all directions"),
        (
            "partition_ratio",
            "→, and 3 times as long",
            m.partition_ratio(LINE),
            math.exp(-4),
            "(e⁻¹ + e⁻³)/(e + e³)",
        ),
        ("nearest", "→ among ↑ ↗ ↓, two", m.nearest(CROSS[0], NEAR, 2), [(1, even), (0, 0)], "cos 45°, cos 90°"),
        ("loss", gaps, found.result.loss, math.log(6), "(ln 2 + ln 18)/2"),
        ("perplexity", gaps, found.result.perplexity, 6, "√(2·18)"),
        ("top-1, top-5", gaps, found.result[2:4], [1 / 2, 1 / 2], "a tie counts against it"),
        ("calibration", gaps, found.calibration.error, 0, "confidence 1/2, accuracy 1/2"),
        ("brier", gaps, found.brier, 13 / 18, "(5/18 + 21/18)/2"),
        ("pseudo_perplexity", gaps, one.perplexity, 6, "√(2·18)"),
        ("pseudo_perplexity", "three words, all equally likely", two.perplexity, 10, "the vocabulary size"),
        ("neighbours", "red; others at 45° 90° 90° 180°", [c for _, c in near], [even, 0, 0, -1], "cosines"),
        ("agreement", "cosines 3rd 2nd 1st, scores 2 4 1", _agreement(), 1 / 2, "1 − 6·(1+1)/(3·8)"),
    ]
    return [Case(*row) for row in values]


def formulas() -> str:
    """Every metric with the first line of its docstring."""
    lines = [f"{name:20} {(getattr(metrics, name).__doc__ or '').partition(chr(10))[0]}".rstrip() for name in LISTED]
    if sys.flags.optimize > 1:
        lines.append("\nThe formulas are missing, because `python -OO` leaves out docstrings.")
    lines.append(f"\n--test computes each on a case with a known answer. To measure a model: {command('eval')}")
    return "\n".join(lines)


def report(computed: Sequence[Case]) -> str:
    """A table with a line per case, and the number of those that differ."""
    lines = [f"{'':8}{'metric':20} {'computed':>22} {'expected':>22}   case: why"]
    for case in computed:
        sign = "[OK]" if case.passed else "[WRONG]"
        values = f"{_shown(case.computed):>22} {_shown(case.expected):>22}"
        lines.append(f"{sign:8}{case.metric:20} {values}   {case.case}: {case.why}")
    wrong = sum(not case.passed for case in computed)
    lines.append(f"\n{wrong} of {len(computed)} differ." if wrong else f"\nAll {len(computed)} as expected.")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    """A few numbers in a few characters; the rows of a matrix are separated by a bar."""
    numbers = np.asarray(value, float)
    if numbers.ndim == 2:
        return " | ".join(_shown(row) for row in numbers)
    return " ".join(f"{number:.5g}" for number in numbers.ravel())
