"""Where one number comes from: the terms of the sum that produced it, and the steps after the sum.

    y[t,o] = Σ_i x[t,i] W[i,o] + b[o]       terms x[t,i] × W[i,o] and b[o]; no further steps
    S[i,j] = q_i · k_j / √d                 terms q[i,c] × k[j,c]; step ÷ √d

Each function below returns an `Explain`: called with the index of a number, it gives the Explanation. Sums are computed
in float64, so they differ from the float32 result of the model in the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

SHOWN = 8  # terms


class Term(NamedTuple):
    label: str
    detail: str
    value: float


class Step(NamedTuple):
    label: str
    value: float


class Explanation(NamedTuple):
    terms: list[Term]  # the largest, by size
    others: int  # the number of terms that are not shown
    rest: float  # and their sum
    steps: list[Step]  # what follows the sum; the last one is the number itself
    sum_is: str = "sum"  # what the sum of the terms is

    @property
    def total(self) -> float:
        return math.fsum([*(term.value for term in self.terms), self.rest])

    @property
    def value(self) -> float:
        return self.steps[-1].value if self.steps else self.total


Explain = Callable[..., Explanation]  # (index of the number) -> Explanation


def summed(
    values: np.ndarray, label: Callable[[int], tuple[str, str]], steps: Sequence[Step] = (), sum_is: str = "sum"
) -> Explanation:
    """An explanation with the largest of these terms. label(i): the name of term i, and its factors as text"""
    values = np.asarray(values, float)
    order = np.argsort(-np.abs(values), kind="stable")
    shown = [Term(*label(int(i)), float(values[i])) for i in order[:SHOWN]]
    return Explanation(shown, max(0, values.size - SHOWN), float(values[order[SHOWN:]].sum()), list(steps), sum_is)


def number(value: Any) -> str:
    """A factor as text, with a real minus sign.

    >>> number(-0.12345), number(12.0)
    ('−0.123', '12.0')
    """
    size = abs(float(value))
    text = f"{size:.3f}" if size < 10 else f"{size:.1f}"
    return f"−{text}" if float(value) < 0 else text


def lookup(table: str, rows: Sequence[int], values: np.ndarray) -> Explain:
    """y[t,c] = E[ids[t],c]"""
    return lambda t, c: Explanation(
        [], 0, 0.0, [Step(f"row {rows[t]} of the table {table}, column {c}", float(values[t, c]))]
    )


def added(names: Sequence[str], parts: Sequence[np.ndarray]) -> Explain:
    """y = x₁ + x₂ + …"""
    return lambda t, c: summed(np.array([part[t, c] for part in parts]), lambda i: (f"{names[i]}[{t},{c}]", ""))


def product(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, of: str = "x", by: str = "W", plus: str = "b"
) -> Explain:
    """y[t,o] = Σ_i x[t,i] W[i,o] + b[o]        x (T,in), w (in,out)"""

    def explain(t: int, o: int) -> Explanation:
        column = np.asarray(w[:, o], float)
        values = x[t].astype(float) * column
        if b is not None:
            values = np.append(values, float(b[o]))

        def label(i: int) -> tuple[str, str]:
            if i == len(column):
                return f"{plus}[{o}]", "bias"
            return f"{of}[{t},{i}] × {by}[{i},{o}]", f"{number(x[t, i])} × {number(column[i])}"

        return summed(values, label)

    return explain


def per_head(explain: Explain, size: int) -> Explain:
    """The same for a result that is split into heads: column c of head a is column a·d + c."""
    return lambda a, t, c: explain(t, a * size + c)


def scores(q: np.ndarray, k: np.ndarray) -> Explain:
    """S[a,i,j] = q_i · k_j / √d        q, k (A,T,d)"""
    d = q.shape[-1]

    def explain(a: int, i: int, j: int) -> Explanation:
        one, other = q[a, i].astype(float), k[a, j].astype(float)
        values = one * other

        def label(c: int) -> tuple[str, str]:
            return f"q[{i},{c}] × k[{j},{c}]", f"{number(one[c])} × {number(other[c])}"

        return summed(values, label, [Step(f"÷ √{d}", float(values.sum() / math.sqrt(d)))], "q · k")

    return explain


def shares(logits: np.ndarray, names: Sequence[str]) -> Explain:
    """p[…,j] = exp(s_j) / Σ exp(s)        logits (…,n); names of the n"""

    def explain(*index: int) -> Explanation:
        *row, j = index
        values = logits[tuple(row)].astype(float)
        powers = np.exp(values - values.max())
        minus = f" − {number(values.max())}"
        return summed(
            powers,
            lambda i: (names[i], f"exp({number(values[i])}{minus})"),
            [Step("exp of this score", float(powers[j])), Step("÷ the sum", float(powers[j] / powers.sum()))],
            "sum of exp(score − largest)",
        )

    return explain


def averaged(weights: np.ndarray, v: np.ndarray, tokens: Sequence[str]) -> Explain:
    """C[t, a·d + c] = Σ_j P[a,t,j] v[a,j,c]        weights (A,T,T), v (A,T,d)"""
    d = v.shape[-1]

    def explain(t: int, column: int) -> Explanation:
        a, c = divmod(column, d)
        values = weights[a, t].astype(float) * v[a, :, c]

        def label(j: int) -> tuple[str, str]:
            return f"{tokens[j]}: P[{t},{j}] × v[{j},{c}]", f"{number(weights[a, t, j])} × {number(v[a, j, c])}"

        return summed(values, label)

    return explain


def normed(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, eps: float) -> Explain:
    """y[t,c] = γ[c] (x[t,c] − μ) / σ + β[c]"""

    def explain(t: int, c: int) -> Explanation:
        row = x[t].astype(float)
        mean = row.mean()
        sigma = math.sqrt(((row - mean) ** 2).mean() + eps)
        hat = (row[c] - mean) / sigma
        steps = [
            Step(f"x[{t},{c}]", float(row[c])),
            Step(f"− μ, the mean of the {row.size} numbers of this token, {number(mean)}", float(row[c] - mean)),
            Step(f"÷ σ, their standard deviation, {number(sigma)}", float(hat)),
            Step(f"× γ[{c}] = {number(gamma[c])}", float(hat * gamma[c])),
        ]
        if beta is not None:
            steps.append(Step(f"+ β[{c}] = {number(beta[c])}", float(hat * gamma[c] + beta[c])))
        return Explanation([], 0, 0.0, steps)

    return explain


def activated(h: np.ndarray, g: np.ndarray, formula: str) -> Explain:
    """g = f(h), each number on its own"""
    return lambda t, c: Explanation([], 0, 0.0, [Step(f"h[{t},{c}]", float(h[t, c])), Step(formula, float(g[t, c]))])
