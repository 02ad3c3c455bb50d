"""Cross-entropy: how surprised the model is by the truth; the loss of BERT's training.

A row of logits is the model's opinion on one chosen token. Softmax makes probabilities of it, and the loss
is −log of the probability that the true word got, averaged over the chosen rows:

    loss = 1/N Σ_n −log p_n[target_n]  =  1/N Σ_n (log Σ_v exp(x_nv) − x_n[target_n])

A model that knows nothing gives every one of V words 1/V and has loss ln V: 9.01 for Mini-BERT's 8,192.

Only *chosen* rows count, about 15 % of the tokens in masked language modelling: see chosen.py.

Backward. The derivative of log Σ exp is softmax, that of the picked logit is 1, so

    dx_n = (p_n − onehot(target_n)) / N

what the model said, minus what it should have said.
"""

from typing import NamedTuple

import numpy as np

from mini_bert.layers.matrices import total


class CrossEntropyCache(NamedTuple):
    exp: np.ndarray  # (N,V) of the logits, less the largest of each row: probabilities but for the division
    sums: np.ndarray  # (N,1) to divide by
    targets: np.ndarray  # (N,)
    divisor: float

    @property
    def probs(self) -> np.ndarray:  # (N,V)
        return self.exp / self.sums


def cross_entropy(logits, targets, count: float | None = None, out=None):
    """loss = Σ −log softmax(logits)[target] / count -> (loss, cache)        logits (N,V), targets (N,)

    count is N unless given: parts of one batch, each divided by the whole batch's count, add up to its mean.
    out: memory for the cache; who has no more use for the logits gives theirs.
    """
    N, V = logits.shape
    if targets.shape != (N,):
        raise ValueError(f"targets have shape {targets.shape}, but there are {N} rows of logits: expected ({N},)")
    if N and (targets.min() < 0 or targets.max() >= V):
        raise ValueError(f"targets lie in [{targets.min()}, {targets.max()}], expected ids from 0 to {V - 1}")
    count = N if count is None else count
    if count <= 0:
        raise ValueError("no row was chosen: the mean loss of nothing is undefined; choose at least one token")
    exp = np.subtract(logits, logits.max(-1, keepdims=True), out=out)  # (N,V)
    picked = exp[np.arange(N), targets]  # (N,)
    np.exp(exp, out=exp)
    sums = total(exp)  # (N,1)
    surprise = np.log(sums[:, 0]) - picked
    return surprise.sum() / count, CrossEntropyCache(exp, sums, targets, count)


def cross_entropy_backward(dloss: float, cache: CrossEntropyCache, out=None):
    """dlogits = (p − onehot(target)) · dloss / count;        out: memory for it; cache.exp will do, and is then gone"""
    exp, sums, targets, divisor = cache
    share = float(dloss) / divisor
    dlogits = np.multiply(exp, share / sums, out=out)  # p · share, in one pass over many numbers
    dlogits[np.arange(len(targets)), targets] -= share
    return dlogits


if __name__ == "__main__":
    logits = np.array([[1.0, 0.5, 3.0, 0.2], [0.0, 0.0, 0.0, 0.0]])
    loss, cache = cross_entropy(logits, np.array([2, 2]))
    print("the truth is word 2; the probabilities are\n", cache.probs.round(3), sep="")
    print("loss per row:", -np.log(cache.probs[:, 2]).round(3), f" mean {loss:.3f}  (ln 4 = {np.log(4):.3f})")
    print(
        "gradient, said minus should have said, over 2 rows:\n",
        cross_entropy_backward(1.0, cache).round(3),
        sep="",
    )
