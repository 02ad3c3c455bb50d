"""Task heads: from the vectors of the tokens to an answer.

    SentenceHead    the class of a text                    pool -> [dense, f] -> dropout -> one score per class
    PairHead        the relation of two texts              pool each -> compare -> dropout -> one score per class
    TokenHead       the tag of a word                      its first piece -> dropout -> one score per tag
    SpanHead        the place of an answer                 two scores per token: start and end of the answer
    VectorHead      a vector for a text                    pool, no weights; texts are compared by cosine

For published BERT these are the heads of BertForSequenceClassification (pooling [CLS], with `dense`, its "pooler"),
BertForTokenClassification and BertForQuestionAnswering. Other architectures were published with variants, which they
name in `sentence_head`, `drops_spans` and `task_transform` (models/saving.py): the activation f after the dense layer
(BERT, ALBERT and RoBERTa: tanh; ELECTRA: gelu; DistilBERT: relu), dropout in further places, no bias (GPT-2), and a
layer that transforms the vectors before the scores, in every head (ModernBERT).

B batch, T tokens, H width, C classes, N selected tokens. `asked` marks the tokens that a head reads, `summary` is the
position of the summary token ([CLS]) in each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer, Unchanged
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.linear import Linear
from mini_bert.layers.pooling import POOLING
from mini_bert.layers.similarity import beside, beside_backward

STD = 0.02  # of the weights of a new head, which starts with nearly equal scores


class VectorHead(Layer):
    """y = [pool_1(x) … pool_k(x)]        x (B,T,H), asked (B,T) -> y (B,kH)        dx = Σ_k dx_k"""

    def __init__(self, pooling: Sequence[str] = ("mean",)):
        unknown = [name for name in pooling if name not in POOLING]
        if unknown or not pooling:
            raise ValueError(f"pooling is {', '.join(pooling) or 'empty'}, expected some of {', '.join(POOLING)}")
        self.pooling = tuple(pooling)

    def forward(self, x, run, asked=None, summary=0):
        parts, caches = zip(*(POOLING[name].forward(x, asked, summary) for name in self.pooling), strict=True)
        return np.concatenate(parts, -1), caches

    def backward(self, dy, caches, run):
        parts = np.split(dy, len(self.pooling), -1)
        gradients = [
            POOLING[name].backward(part, cache) for name, part, cache in zip(self.pooling, parts, caches, strict=True)
        ]
        return sum(gradients[1:], gradients[0])


class SentenceCache(NamedTuple):
    pooled: Any
    pooled_dropped: Any
    dense: Any
    activated: Any
    transformed: Any
    dropped: Any
    linear: Any


class SentenceHead(Layer):
    """y = dropout(h) W + b,   h = pool(x), or f(pool(x) W_d + b_d) with `dense`        x (B,T,H) -> y (B,C)

    dh = dy Wᵀ ⊙ m,   dpool = dh, or (dh ⊙ f′) W_dᵀ,   then the backward of the pooling

    drops_input: there is also dropout before the dense layer; transform: a layer in place of the dense one
    """

    def __init__(
        self,
        width: int,
        classes: int,
        pooling: Sequence[str] = ("mean",),
        dense: bool = False,
        p: float = 0.1,
        std: float = STD,
        activation_name: str = "tanh",
        drops_input: bool = False,
        bias: bool = True,
        transform: Layer | None = None,
    ):
        self.p = p
        self.input_p = p if drops_input and dense else 0.0
        self.pool = VectorHead(pooling)
        size = width * len(pooling)
        self.dense = Linear(size, size, std=std) if dense else None
        self.activation = activation(activation_name)
        self.transform = transform or Unchanged()
        self.linear = Linear(size, classes, bias, std)

    def forward(self, x, run, asked=None, summary=0):
        h, pooled = self.pool.forward(x, run, asked, summary)
        h, pooled_dropped = dropout(h, self.input_p, run.fork(0))
        dense = activated = None
        if self.dense:
            h, dense = self.dense.forward(h, run)
            h, activated = self.activation.forward(h)
        h, transformed = self.transform.forward(h, run)
        h, dropped = dropout(h, self.p, run)
        y, linear = self.linear.forward(h, run)
        return y, SentenceCache(pooled, pooled_dropped, dense, activated, transformed, dropped, linear)

    def backward(self, dy, cache, run):
        dh = self.linear.backward(dy, cache.linear, run)
        dh = dropout_backward(dh, cache.dropped)
        dh = self.transform.backward(dh, cache.transformed, run)
        if self.dense:
            dh = self.activation.backward(dh, cache.activated)
            dh = self.dense.backward(dh, cache.dense, run)
        dh = dropout_backward(dh, cache.pooled_dropped)
        return self.pool.backward(dh, cache.pooled, run)


class PairHead(Layer):
    """y = dropout([u, v, |u − v|, u ∘ v]) W + b,   u = pool(x of the first text), v = pool(x of the second)

    x (B,T,H), asked (2,B,T): the words of the first texts and of the second texts -> y (B,C). The encoder reads both
    texts together. If it was pretrained on pairs, its [CLS] represents their relation; Mini-BERT was not, and learns
    much faster from the pooled words of each text.
    """

    def __init__(self, width: int, classes: int, pooling: Sequence[str] = ("mean",), p: float = 0.1, std: float = STD):
        self.p = p
        self.pool = VectorHead(pooling)
        self.linear = Linear(4 * width * len(pooling), classes, std=std)

    def forward(self, x, run, asked, summary=0):
        (u, pooled_u), (v, pooled_v) = (self.pool.forward(x, run, words, summary) for words in asked)
        h, compared = beside(u, v)
        h, dropped = dropout(h, self.p, run)
        y, linear = self.linear.forward(h, run)
        return y, (pooled_u, pooled_v, compared, dropped, linear)

    def backward(self, dy, cache, run):
        pooled_u, pooled_v, compared, dropped, linear = cache
        dh = dropout_backward(self.linear.backward(dy, linear, run), dropped)
        du, dv = beside_backward(dh, compared)
        return self.pool.backward(du, pooled_u, run) + self.pool.backward(dv, pooled_v, run)


class TokenHead(Layer):
    """y = dropout(transform(x)) W + b        x (N,H), the selected tokens -> y (N,C)"""

    def __init__(self, width: int, classes: int, p: float = 0.1, std: float = STD, transform: Layer | None = None):
        self.p = p
        self.transform = transform or Unchanged()
        self.linear = Linear(width, classes, std=std)

    def forward(self, x, run, at=None):
        """at: the sequence and the position of each token (layers/dropout.py)"""
        x, transformed = self.transform.forward(x, run)
        x, dropped = dropout(x, self.p, run, at)
        y, linear = self.linear.forward(x, run)
        return y, (transformed, dropped, linear)

    def backward(self, dy, cache, run):
        transformed, dropped, linear = cache
        dx = dropout_backward(self.linear.backward(dy, linear, run), dropped)
        return self.transform.backward(dx, transformed, run)


class SpanHead(TokenHead):
    """[s_t e_t] = dropout(transform(x_t)) W + b        x (B,T,H) -> y (B,2,T): a token's score as start and as end"""

    def __init__(self, width: int, p: float = 0.0, std: float = STD, transform: Layer | None = None):
        super().__init__(width, 2, p, std, transform)  # p is 0 in most published models

    def forward(self, x, run):
        y, cache = super().forward(x, run)  # (B,T,2)
        return y.transpose(0, 2, 1).copy(), cache

    def backward(self, dy, cache, run):
        return super().backward(np.ascontiguousarray(dy.transpose(0, 2, 1)), cache, run)


class SpanCache(NamedTuple):
    entropy: CrossEntropyCache
    shape: tuple[int, ...]


def span_loss(logits, targets, allowed, count: float | None = None):
    """loss = ½ (H(start) + H(end)), H: cross-entropy over the allowed tokens. Returns the loss and its cache.

    logits (B,2,T), targets (B,2): the true first and last token, allowed (B,T). A token that cannot be an answer (the
    question, padding) gets the lowest possible score, so its probability and gradient are 0.
    """
    B, _, T = logits.shape
    masked = np.where(allowed[:, None], logits, np.finfo(logits.dtype).min).reshape(2 * B, T)
    loss, entropy = cross_entropy(masked, targets.reshape(2 * B), 2 * (B if count is None else count), out=masked)
    return loss, SpanCache(entropy, logits.shape)


def span_loss_backward(dloss: float, cache: SpanCache):
    """dlogits = ½ (p − onehot(target)) dloss / count        0 for tokens that are not allowed"""
    return cross_entropy_backward(dloss, cache.entropy).reshape(cache.shape)


if __name__ == "__main__":
    from mini_bert.layers.base import Run, bind

    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    asked = np.array([[False, True, True, False], [False, True, False, False]])
    for head, more in ((SentenceHead(6, 3), {"asked": asked}), (SpanHead(6), {}), (TokenHead(6, 5), {})):
        bind(head, seed=0)
        y, cache = head.forward(x if not isinstance(head, TokenHead) else x[asked], Run(), **more)
        dx = head.backward(np.ones_like(y), cache, Run())
        print(f"{type(head).__name__:13} x {x.shape} -> y {y.shape}, dx {dx.shape}, {list(head.named_params())}")
