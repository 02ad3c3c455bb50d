"""Where one number comes from: the terms of the sum that produced it, and the steps after the sum.

    y[t,o] = Σ_i x[t,i] W[i,o] + b[o]       terms x[t,i] × W[i,o] and b[o]; no further steps
    S[i,j] = q_i · k_j / √d                 terms q[i,c] × k[j,c]; step ÷ √d; other architectures add products

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


class Product(NamedTuple):
    """One of the dot products that make a score."""

    formula: str  # such as "q · k"
    label: str  # of a term, with {i}, {j}, {c}
    vectors: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]  # (head, query, key) -> the two vectors


def scores(products: Sequence[Product], scale: float) -> Explain:
    """S[a,i,j] = scale · Σ of dot products, of which BERT has one, q_i · k_j"""

    def explain(a: int, i: int, j: int) -> Explanation:
        pairs = [tuple(vector.astype(float) for vector in product.vectors(a, i, j)) for product in products]
        values = np.concatenate([one * other for one, other in pairs])

        def label(term: int) -> tuple[str, str]:
            which, c = divmod(term, len(pairs[0][0]))
            one, other = pairs[which]
            return products[which].label.format(i=i, j=j, c=c), f"{number(one[c])} × {number(other[c])}"

        step = Step(scaling(scale), float(values.sum() * scale))
        return summed(values, label, [step], " + ".join(product.formula for product in products))

    return explain


def scaling(scale: float) -> str:
    """A factor as a division by a root, where it is one.

    >>> scaling(1 / math.sqrt(48)), scaling(0.3)
    ('÷ √48', '× 0.300')
    """
    size = 1 / scale**2
    return f"÷ √{round(size)}" if size > 1 and abs(size - round(size)) < 1e-3 else f"× {number(scale)}"


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, letter: str) -> Explain:
    """a' = a cos − b sin,   b' = b cos + a sin        x (A,T,d), coordinate c with c + d/2; cos, sin (T,d/2)"""
    half = x.shape[-1] // 2

    def explain(a: int, t: int, c: int) -> Explanation:
        other, wave = (c + half, c) if c < half else (c - half, c - half)
        factors = (cos[t, wave], -sin[t, wave] if c < half else sin[t, wave])
        values = np.array([x[a, t, c], x[a, t, other]], float) * factors
        names = (f"{letter}[{t},{c}] × cos", f"{letter}[{t},{other}] × {'−' if c < half else ''}sin")
        return summed(values, lambda i: (names[i], f"{number(x[a, t, (c, other)[i]])} × {number(factors[i])}"))

    return explain


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Explain:
    """y_t = Σ_n x_{t+n} W_n + b        x (T,H), w (size,groups,part,part)"""
    size, _, part, _ = w.shape
    r, T = size // 2, len(x)

    def explain(t: int, o: int) -> Explanation:
        group, column = divmod(o, part)
        places = [(n, t + n) for n in range(-r, r + 1) if 0 <= t + n < T]
        terms = [(p, group * part + i, x[p, group * part + i], w[n + r, group, i, column])
                 for n, p in places for i in range(part)]  # fmt: skip
        values = np.array([*(float(one) * float(other) for _, _, one, other in terms), float(b[o])])

        def label(i: int) -> tuple[str, str]:
            if i == len(terms):
                return f"b[{o}]", "bias"
            p, c, one, other = terms[i]
            return f"x[{p},{c}] × W[{p - t:+d},{c},{o}]", f"{number(one)} × {number(other)}"

        return summed(values, label)

    return explain


def shares(logits: np.ndarray, names: Sequence[str], first: int = 0) -> Explain:
    """p[…,j] = exp(s_j) / Σ exp(s)        logits (…,n), −∞ where masked; names of the n; j counts from `first`"""

    def explain(*index: int) -> Explanation:
        *row, j = (*index[:-1], index[-1] + first)
        values = logits[tuple(row)].astype(float)
        powers = np.exp(values - values.max())
        minus = f" − {number(values.max())}"
        return summed(
            powers,
            lambda i: (names[i], f"exp({number(values[i])}{minus})" if math.isfinite(values[i]) else "masked"),
            [Step("exp of this score", float(powers[j])), Step("÷ the sum", float(powers[j] / powers.sum()))],
            "sum of exp(score − largest)",
        )

    return explain


def averaged(weights: np.ndarray, v: np.ndarray, tokens: Sequence[str]) -> Explain:
    """C[t, a·d + c] = Σ_j P[a,t,j] v[a,j,c]        weights (A,T,K), v (A,K,d), names of the K keys"""
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


def activated(h: np.ndarray, g: np.ndarray, formula: str, letter: str = "h") -> Explain:
    """g = f(h), each number on its own"""
    return lambda t, c: Explanation(
        [], 0, 0.0, [Step(f"{letter}[{t},{c}]", float(h[t, c])), Step(formula, float(g[t, c]))]
    )


def gated(f: np.ndarray, g: np.ndarray) -> Explain:
    """z = f(u) ⊙ g, each number on its own"""
    return lambda t, c: Explanation(
        [],
        0,
        0.0,
        [Step(f"f(u)[{t},{c}]", float(f[t, c])), Step(f"× g[{t},{c}] = {number(g[t, c])}", float(f[t, c] * g[t, c]))],
    )
