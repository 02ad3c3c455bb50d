"""Soft cross-entropy: how far a model's distribution is from another model's, at a temperature. For distillation.

    loss = τ²/N Σ_n KL(q_n ‖ p_n)          p = softmax(x/τ), q = softmax(t/τ)
    KL(q ‖ p) = Σ_v q_v (log q_v − log p_v)

x (N,V) are the logits of the student, t (N,V) those of the teacher, which get no gradient. A one-hot target says which
word is right; a teacher's distribution also says which others would have been nearly right. A temperature τ above 1
makes both distributions flatter, so that the small probabilities count (Hinton, Vinyals and Dean 2015).

Backward. Only log p depends on x. As in cross_entropy.py, the gradient is the predicted distribution minus the wanted
one, here divided by τ because of x/τ, so

    dx_n = τ² · (p_n − q_n) / (τ N) = τ (p_n − q_n) / N

For large τ, p − q shrinks like 1/τ. The factor τ² makes up for that and for the division by τ, so that the weight of
this loss beside others does not depend on the temperature.
"""

from typing import NamedTuple

import numpy as np

from mini_bert.layers.matrices import total


class SoftCrossEntropyCache(NamedTuple):
    p: np.ndarray  # (N,V) of the student
    q: np.ndarray  # (N,V) of the teacher
    temperature: float
    divisor: float


def soft_cross_entropy(logits, teacher, temperature: float = 1.0, count: float | None = None, out=None):
    """loss = τ² Σ KL(softmax(t/τ) ‖ softmax(x/τ)) / count        logits x, teacher t (N,V)

    count   N by default. For a part of a batch, pass the count of the whole batch, as for cross_entropy
    out     memory for q: pass `out=teacher` to reuse the teacher's logits
    """
    if logits.shape != teacher.shape:
        raise ValueError(f"the teacher's logits have shape {teacher.shape}, expected {logits.shape}, the student's")
    count = len(logits) if count is None else count
    if count <= 0:
        raise ValueError("no row was chosen, so the mean loss is undefined; choose at least one token")
    teacher = teacher.astype(logits.dtype, copy=False)
    log_p, log_q = _log_softmax(logits / temperature), _log_softmax(np.divide(teacher, temperature, out=out))
    q = np.exp(log_q)
    divergence = np.einsum("nv,nv->", q, np.subtract(log_q, log_p, out=log_q))
    return temperature**2 * divergence / count, SoftCrossEntropyCache(np.exp(log_p, out=log_p), q, temperature, count)


def soft_cross_entropy_backward(dloss: float, cache: SoftCrossEntropyCache, out=None):
    """dx = τ (p − q) · dloss / count

    out     memory for dx: pass `out=cache.p` to reuse that of the cache, which is then overwritten
    """
    p, q, temperature, divisor = cache
    dx = np.subtract(p, q, out=out)
    dx *= temperature * float(dloss) / divisor
    return dx


def _log_softmax(x):
    """x − log Σ exp(x), in the memory of x"""
    x -= x.max(-1, keepdims=True)
    x -= np.log(total(np.exp(x)))
    return x


if __name__ == "__main__":
    teacher = np.array([[4.0, 3.0, 0.0, -2.0]])
    student = np.array([[4.0, 0.0, 3.0, -2.0]])
    print("both find word 0 most likely, but disagree about the second guess")
    for temperature in (1.0, 2.0, 8.0):
        loss, cache = soft_cross_entropy(student, teacher, temperature)
        print(f"temperature {temperature:g}: teacher {cache.q[0].round(3)}, student {cache.p[0].round(3)}")
        print(f"    loss {loss:.3f}, gradient {soft_cross_entropy_backward(1.0, cache)[0].round(3)}")
