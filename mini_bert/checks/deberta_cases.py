"""The layers of DeBERTa for `mini-bert gradcheck`: every gradient against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.checks.case import Case, Function, plain
from mini_bert.layers.base import bind
from mini_bert.layers.convolution import Convolution
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_embedding import DisentangledEmbedding
from mini_bert.layers.disentangled_encoder import ConvolvedBlock, DisentangledBlock, DisentangledEncoder
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.relative_positions import (
    add_distance_scores,
    add_distance_scores_backward,
    distances,
    windows,
    windows_backward,
)
from mini_bert.layers.talking_heads import HeadMix, TalkingHeadAttention
from mini_bert.models.deberta_v2 import ReplacedHead

B, T, A, D, I = 2, 5, 3, 7, 13
H = A * D  # 21
_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
_PADDED = {"mask": _MASK[:, None, None, :]}
_CHOSEN = {"chosen": np.array([6, 2, 2, 0])}  # unordered, one twice
_X = ((B, T, H),)


def _distance_scores(x, r, run):
    """S_tc = x_t · r_{T−1−t+c} as a pair of functions that return what they compute"""
    scores = np.zeros((*x.shape[:3], x.shape[2]), x.dtype)
    add_distance_scores(scores, x, r)
    return scores, (x, r)


def _distance_scores_backward(dscores, cache):
    x, r = cache
    dx = np.zeros_like(x)
    return dx, add_distance_scores_backward(dscores, x, r, dx)


_PLACES = np.array([[4, 2, 2], [0, 1, 0]])  # of three queries in each of two sequences of five tokens; one twice
_NEAR, _FAR = distances(T, span=T), distances(T, span=3)  # 9 rows for 9 distances, or 6 rows
_POSITIONS = ((B, T, H), (9, H))


def _disentangled(**options: Any) -> DisentangledAttention:
    return DisentangledAttention(H, A, **options)


def _disentangled_block(p: float = 0.0) -> DisentangledBlock:
    return DisentangledBlock(_disentangled(p=p, position_p=p), I, "gelu", p, 1e-7, None)


def _convolved_block(p: float = 0.0, groups: int = 1) -> ConvolvedBlock:
    return ConvolvedBlock(_disentangled(p=p, position_p=p), I, "gelu", p, 1e-7, None, 3, groups, "tanh")


def _disentangled_embedding() -> DisentangledEmbedding:
    generator = Embedding(11, 7)
    bind(generator, seed=1)  # a constant here: its gradient is stopped
    return DisentangledEmbedding(generator.table)


DEBERTA_CASES = [
    Case("disentangled embedding", _disentangled_embedding, (), fixed=(np.array([[1, 5, 1], [10, 1, 0]]),)),
    Case("scores by distance", lambda: Function(_distance_scores, _distance_scores_backward),
         ((B, A, T, D), (A, 2 * T - 1, D))),
    Case("scores by distance, windows", plain(lambda x: (windows(x, _PLACES), _PLACES), windows_backward),
         ((B, A, 3, 2 * T - 1),)),
    Case("convolution", lambda: Convolution(7), ((2, 5, 7),)),
    Case("convolution, groups", lambda: Convolution(6, size=5, groups=3), ((2, 3, 6),)),
    Case("head mix", lambda: HeadMix(A), ((B, A, 2, T),)),
    Case("disentangled attention", _disentangled, _POSITIONS, keywords={"distances": _NEAR}),
    Case("disentangled attention, content to position", lambda: _disentangled(terms=("c2p",), key_bias=False),
         _POSITIONS, keywords={"distances": _NEAR} | _PADDED),
    Case("disentangled attention, position to content", lambda: _disentangled(terms=("p2c",)), _POSITIONS,
         keywords={"distances": _NEAR} | _PADDED),
    Case("disentangled attention, shared keys", lambda: _disentangled(share=True), ((B, T, H), (6, H)),
         keywords={"distances": _FAR} | _PADDED),
    Case("disentangled attention, dropout, chosen rows", lambda: _disentangled(p=0.2, position_p=0.2),
         ((B, T, H), (6, H)), keywords={"distances": _FAR} | _CHOSEN | _PADDED),
    Case("talking heads", lambda: TalkingHeadAttention(H, A, p=0.2), _POSITIONS,
         keywords={"distances": _NEAR} | _PADDED),
    Case("disentangled block", _disentangled_block, _POSITIONS, keywords={"distances": _NEAR}),
    Case("disentangled block, dropout, chosen rows", lambda: _disentangled_block(0.2), _POSITIONS,
         keywords={"distances": _NEAR} | _CHOSEN | _PADDED),
    Case("convolved block, dropout", lambda: _convolved_block(0.2, groups=3), _POSITIONS,
         keywords={"distances": _NEAR} | _PADDED),
    Case("convolved block, chosen rows", _convolved_block, _POSITIONS,
         keywords={"distances": _NEAR} | _CHOSEN | _PADDED),
    Case("disentangled encoder",
         lambda: DisentangledEncoder([_convolved_block(0.1), Recompute(_disentangled_block(0.1))], H, span=3, eps=1e-7),
         _X, keywords=_CHOSEN | _PADDED),
    Case("head for replaced words, with [CLS]", lambda: ReplacedHead(7, "gelu", 1e-7, 0.5), ((2, 3, 7),)),
]  # fmt: skip
