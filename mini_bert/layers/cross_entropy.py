"""Cross-entropy: −log of the probability that the model gives to the correct word. The loss of BERT's training.

    loss = 1/N Σ_n −log p_n[target_n]  =  1/N Σ_n (log Σ_v exp(x_nv) − x_n[target_n])        p_n = softmax(x_n)

x (N,V) has a row of logits for each token that is predicted: about 15 % of the tokens in masked language modelling
(chosen.py). A model that gives all V words the same probability 1/V has the loss ln V: 9.01 for Mini-BERT's 8,192.

Backward. The derivative of log Σ exp is softmax, and that of the target's logit is 1, so

    dx_n = (p_n − onehot(target_n)) / N

which is the predicted distribution minus the correct one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from mini_bert.layers.matrices import total


class CrossEntropyCache(NamedTuple):
    exp: np.ndarray  # (N,V) exp(x − max x): the probabilities, before the division by their sum
    sums: np.ndarray  # (N,1) Σ exp
    targets: np.ndarray  # (N,)
    divisor: float

    @property
    def probs(self) -> np.ndarray:  # (N,V)
        return self.exp / self.sums

    def pieces(self) -> Iterable[CrossEntropyCache]:
        """The same in parts of some rows each: here all of them. Not all heads have all probabilities in memory."""
        return [self]

    @property
    def correct(self) -> int:
        """How often the target is the most likely class"""
        return int((self.exp.argmax(-1) == self.targets).sum())


def cross_entropy(logits, targets, count: float | None = None, out=None):
    """loss = Σ −log softmax(logits)[target] / count        logits (N,V), targets (N,)

    count   N by default. For a part of a batch, pass the count of the whole batch: the losses of all parts then add up
            to the mean.
    out     memory for the cache: pass `out=logits` to reuse theirs
    """
    N, V = logits.shape
    check_targets(targets, N, V)
    count = N if count is None else count
    if count <= 0:
        raise ValueError("no row was chosen, so the mean loss is undefined; choose at least one token")
    exp = np.subtract(logits, logits.max(-1, keepdims=True), out=out)  # (N,V)
    picked = exp[np.arange(N), targets]  # (N,)
    np.exp(exp, out=exp)
    sums = total(exp)  # (N,1)
    losses = np.log(sums[:, 0]) - picked
    return losses.sum() / count, CrossEntropyCache(exp, sums, targets, count)


def check_targets(targets, N: int, V: int) -> None:
    if targets.shape != (N,):
        raise ValueError(f"targets have shape {targets.shape}, expected ({N},): there are {N} rows of logits")
    if N and (targets.min() < 0 or targets.max() >= V):
        raise ValueError(f"targets lie in [{targets.min()}, {targets.max()}], expected ids from 0 to {V - 1}")


def cross_entropy_backward(dloss: float, cache: CrossEntropyCache, out=None):
    """dlogits = (p − onehot(target)) · dloss / count

    out     memory for dlogits: pass `out=cache.exp` to reuse that of the cache, which is then overwritten
    """
    exp, sums, targets, divisor = cache
    share = float(dloss) / divisor
    dlogits = np.multiply(exp, share / sums, out=out)  # p · share, in one pass
    dlogits[np.arange(len(targets)), targets] -= share
    return dlogits


if __name__ == "__main__":
    logits = np.array([[1.0, 0.5, 3.0, 0.2], [0.0, 0.0, 0.0, 0.0]])
    loss, cache = cross_entropy(logits, np.array([2, 2]))
    print("the correct word is number 2; the probabilities are\n", cache.probs.round(3), sep="")
    print("loss per row:", -np.log(cache.probs[:, 2]).round(3), f" mean {loss:.3f}  (ln 4 = {np.log(4):.3f})")
    print("gradient, (predicted − correct) / 2 rows:\n", cross_entropy_backward(1.0, cache).round(3), sep="")
