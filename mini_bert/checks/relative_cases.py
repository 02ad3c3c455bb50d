"""The layers of Transformer-XL and XLNet, and both models, for `mini-bert gradcheck`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mini_bert.checks.case import Case, Function
from mini_bert.layers.adaptive_embedding import AdaptiveEmbedding
from mini_bert.layers.adaptive_softmax import AdaptiveSoftmax
from mini_bert.layers.base import Layer, Run
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.matrices import rows
from mini_bert.layers.relative_attention import (
    RelativeAttention,
    distance_waves,
    relative_shift,
    relative_shift_backward,
)
from mini_bert.layers.relative_block import PreNormRelativeBlock, RelativeBlock
from mini_bert.layers.two_stream_attention import RelativeSegments, TwoStreamAttention
from mini_bert.layers.two_stream_block import TwoStreamBlock
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, Model
from mini_bert.models.loss import Term
from mini_bert.models.transformer_xl import TransformerXL
from mini_bert.models.transformer_xl_config import TransformerXLConfig
from mini_bert.models.xlnet import XLNet, XLNetConfig

B, T, A, D, I, V = 2, 5, 3, 7, 13, 17
H = A * D  # 21
_X = ((B, T, H),)
_CHOSEN = {"chosen": np.array([6, 2, 2, 0])}  # unordered, one twice
_EVEN, _MEMORY = 10, np.random.default_rng(2).normal(size=(B, 3, 10))  # relative layers have an even width
_R = ((B, T, _EVEN),)
_ORDER = np.array([[0, 3, 0, 1, 2], [2, 0, 1, 0, 0]])[:, None]  # the order of prediction
_BOTH_WAYS = {"waves": distance_waves(T, T, _EVEN, later=True, dtype=np.float64)}
_REMEMBERED = {"waves": distance_waves(T, T + 3, _EVEN, later=False, dtype=np.float64), "memory": _MEMORY,
               "mask": np.tri(T, T + 3, 3, dtype=bool)}  # fmt: skip
_REVERSED = {"waves": np.stack([distance_waves(T, T, _EVEN, True, 2, sign, np.float64) for sign in (1, -1)])}
_STREAMS = {"mask": _ORDER[..., None] >= _ORDER[:, :, None], "query_mask": _ORDER[..., None] > _ORDER[:, :, None],
            "chosen": np.array([1, 3, 4, 5, 7]), "differs": (np.arange(T)[:, None] > 2) != (np.arange(T) > 2),
            **_BOTH_WAYS}  # fmt: skip
_TWO_STREAMS = ((B, T, _EVEN), (5, _EVEN))


class AdaptiveLoss(Layer):
    """The loss of an adaptive softmax, as a layer for the table."""

    def __init__(self, softmax: AdaptiveSoftmax, targets: np.ndarray):
        self.softmax, self.targets = softmax, targets

    def forward(self, x, run):
        return self.softmax.loss(x, self.targets, None, run)

    def backward(self, dy, cache, run):
        return self.softmax.loss_backward(dy, cache, run)


class SegmentScores(Layer):
    """The scores of segments, as a layer for the table."""

    def __init__(self) -> None:
        self.segments = RelativeSegments(A, D, std=0.5)

    def forward(self, q, run, differs):
        return self.segments.scores(q, differs), (q, differs)

    def backward(self, dy, cache, run):
        return self.segments.scores_backward(dy, *cache)


class TwoStreams(Layer):
    """Two streams, one output below the other, as a layer for the table."""

    def __init__(self, layer: Layer):
        self.layer = layer

    def forward(self, h, g, run, **keywords):
        (y, z), cache = self.layer.forward(h, g, run, **keywords)
        return z if y is None else np.concatenate([rows(y), z]), (cache, None if y is None else y.shape)

    def backward(self, dy, cache, run):
        inner, shape = cache
        count = 0 if shape is None else shape[0] * shape[1]
        dh = None if shape is None else dy[:count].reshape(shape)
        return self.layer.backward((dh, dy[count:]), inner, run)


def _shift(forward: Callable[..., Any], backward: Callable[..., Any], *chosen: Any) -> Callable[[], Layer]:
    """relative_shift to T + 3 keys"""
    return lambda: Function(
        lambda x, run: (forward(x, T + 3, *chosen), x.shape[-1]), lambda dy, J: backward(dy, J, *chosen)
    )


def _adaptive(divisor: int) -> AdaptiveSoftmax:
    return AdaptiveSoftmax(V, 7, 11, (3, 8), divisor, std=1.0, projection_std=1.0)


RELATIVE_CASES = [
    Case("feed-forward, dropout inside", lambda: FeedForward(H, I, "gelu", p=0.2), _X),
    Case("relative shift", _shift(relative_shift, relative_shift_backward), ((B, A, T, T + 3 + T),)),
    Case("relative shift, chosen rows", _shift(relative_shift, relative_shift_backward, np.array([[1, 4], [0, 0]]), T),
         ((B, A, 2, T + 3 + 1),)),
    Case("relative attention", lambda: RelativeAttention(_EVEN, A, D, std=0.5), _R, keywords=_BOTH_WAYS),
    Case("relative attention, memory", lambda: RelativeAttention(_EVEN, A, D, std=0.5), _R, keywords=_REMEMBERED),
    Case("relative attention, dropout, chosen, memory", lambda: RelativeAttention(_EVEN, A, D, p=0.2, std=0.5), _R,
         keywords=_REMEMBERED | _CHOSEN),
    Case("relative attention, two directions", lambda: RelativeAttention(_EVEN, A, D, std=0.5), _R, keywords=_REVERSED),
    Case("relative block, memory", lambda: RelativeBlock(_EVEN, A, D, I, p=0.2, attention_p=0.2), _R,
         keywords=_REMEMBERED),
    Case("relative block, chosen rows", lambda: RelativeBlock(_EVEN, A, D, I, p=0.2), _R,
         keywords=_REMEMBERED | _CHOSEN),
    Case("relative block, norm first", lambda: PreNormRelativeBlock(_EVEN, A, D, I, p=0.2), _R, keywords=_REMEMBERED),
    Case("relative block, norm first, chosen rows", lambda: PreNormRelativeBlock(_EVEN, A, D, I), _R,
         keywords=_REMEMBERED | _CHOSEN),
    Case("relative segments", SegmentScores, ((B, A, T, D),), keywords={"differs": _STREAMS["differs"]}),
    Case("two-stream attention", lambda: TwoStreams(TwoStreamAttention(_EVEN, A, D, 0.2, 0.5)), _TWO_STREAMS,
         keywords=_STREAMS),
    Case("two-stream block", lambda: TwoStreams(TwoStreamBlock(_EVEN, 2, I, "gelu", 0.2, 1e-5, 0.5)), _TWO_STREAMS,
         keywords=_STREAMS),
    Case("two-stream block, the last", lambda: TwoStreams(TwoStreamBlock(_EVEN, 2, I, "gelu", 0.2, 1e-5, 0.5)),
         _TWO_STREAMS, keywords=_STREAMS | {"last": True}),
    Case("adaptive embedding", lambda: AdaptiveEmbedding(V, 7, 11, (3, 8), 2, 1.0, 1.0), (),
         fixed=(np.array([[1, 5, 1], [16, 2, 8]]),)),
    Case("adaptive embedding, one table", lambda: AdaptiveEmbedding(V, 7, 11, (3, 8), 1, 1.0, 1.0), (),
         fixed=(np.array([[1, 5, 1], [16, 2, 8]]),)),
    Case("adaptive softmax", lambda: _adaptive(2), ((2, 3, 7),)),
    Case("adaptive softmax, one table", lambda: _adaptive(1), ((2, 3, 7),)),
    Case("adaptive softmax, loss", lambda: AdaptiveLoss(_adaptive(2), np.array([2, 16, 3, 7, 8, 0])), ((6, 7),)),
    Case("adaptive softmax, one table, loss", lambda: AdaptiveLoss(_adaptive(1), np.array([2, 9, 1])), ((3, 7),)),
]  # fmt: skip


_XL = TransformerXLConfig(
    vocab_size=V, cutoffs=(3, 8), d_model=6, d_embed=11, n_head=2, d_head=5, d_inner=13, div_val=2, n_layer=2,
    mem_len=4, dropout=0.1, dropatt=0.1, init_std=0.5, proj_init_std=0.5,
)  # fmt: skip
_XLNET = XLNetConfig(vocab_size=V, d_model=6, n_layer=2, n_head=3, d_inner=13, initializer_range=0.5)


def transformer_xl(**switched: Any) -> tuple[Model, Callable[[], tuple[Any, Any]]]:
    """A model and its loss of the next word, after a memory."""
    model, rng = TransformerXL(replace(_XL, **switched), dtype=np.float64), np.random.default_rng(0)
    ids, memory = rng.integers(0, V, (B, T)), [rng.normal(size=(B, 3, 6)) for _ in range(2)]
    inputs, terms = model.check_inputs(ids)._replace(memory=memory), [Term(NEXT_WORD, None, rng.integers(0, V, B * T))]
    return model, lambda: model.loss_of(inputs, terms, Run(0, train=True))


def xlnet(**switched: Any) -> tuple[Model, Callable[[], tuple[Any, Any]]]:
    """A model and its loss of words in an order of prediction, in two streams, after a memory."""
    model, rng = XLNet(replace(_XLNET, **switched), dtype=np.float64), np.random.default_rng(0)
    ids, memory = rng.integers(0, V, (B, T)), [rng.normal(size=(B, 3, 6)) for _ in range(2)]
    inputs = model.check_inputs(ids, token_types=rng.integers(0, 2, (B, T)))
    inputs = inputs._replace(memory=memory, order=_ORDER[:, 0])
    terms = [Term(MASKED_WORDS, _STREAMS["chosen"], rng.integers(0, V, 5))]
    return model, lambda: model.loss_of(inputs, terms, Run(0, train=True))
