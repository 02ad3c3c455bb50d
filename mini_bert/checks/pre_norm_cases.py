"""The layers of GPT-2 and ModernBERT for `mini-bert gradcheck`: every gradient against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.checks.case import Case
from mini_bert.layers.base import Unchanged
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.masks import both, causal, local
from mini_bert.layers.past import PastAttention
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.rotary import RotaryAttention

B, T, A, D, I = 2, 5, 3, 7, 13
H = A * D  # 21
_PADDED = {"mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None, :]}
_CAUSAL = {"mask": causal(T)}
_LOCAL = {"mask": both(local(T, 1), _PADDED["mask"])}
_CHOSEN = {"chosen": np.array([6, 2, 2, 0])}  # unordered, one twice
_X = ((B, T, H),)
_EVEN = ((B, T, 22),)  # rotary positions need heads of even width


def _pre_norm(p: float = 0.0) -> PreNormBlock:
    return PreNormBlock(LayerNorm(H), PastAttention(H, A, p=p), LayerNorm(H), FeedForward(H, I, "gelu_new"), p, p)


def _modern(p: float = 0.0, first: bool = False) -> PreNormBlock:
    """As in ModernBERT: no biases, rotary positions, a gated network."""
    attention = RotaryAttention(22, 1, 100.0, bias=False, p=p)
    norm = Unchanged() if first else LayerNorm(22, bias=False)
    return PreNormBlock(norm, attention, LayerNorm(22, bias=False), GatedFeedForward(22, I, "gelu", False, p), p)


def _past(tokens: int) -> dict[str, Any]:
    """Keys and values of earlier tokens."""
    keys, values = np.random.default_rng(7).normal(size=(2, B, A, tokens, D)).astype(np.float32)
    return {"past": (keys, values), "mask": causal(T, tokens + T)}


def _lean(attention: RotaryAttention) -> RotaryAttention:
    attention.method, attention.tile = "lean", 3  # 5 tokens in two tiles
    return attention


PRE_NORM_CASES = [
    Case("rotary attention", lambda: RotaryAttention(22, 1, 100.0), _EVEN, keywords=_PADDED),
    Case("rotary attention, chosen, local", lambda: RotaryAttention(22, 1, 100.0, p=0.2), _EVEN,
         keywords=_CHOSEN | _LOCAL),
    Case("rotary attention, lean", lambda: _lean(RotaryAttention(22, 1, 100.0)), _EVEN, keywords=_LOCAL),
    Case("attention with a past", lambda: PastAttention(H, A), _X, keywords=_past(3)),
    Case("attention with a past, chosen", lambda: PastAttention(H, A, p=0.2), _X, keywords=_CHOSEN | _past(3)),
    Case("gated feed-forward", lambda: GatedFeedForward(H, I, bias=False), _X),
    Case("gated feed-forward, dropout", lambda: GatedFeedForward(H, I, "silu", p=0.2), _X),
    Case("pre-norm block", _pre_norm, _X, keywords=_CAUSAL),
    Case("pre-norm block, dropout, chosen", lambda: _pre_norm(0.2), _X, keywords=_CHOSEN | _CAUSAL),
    Case("modern block", _modern, _EVEN, keywords=_LOCAL),
    Case("modern block, dropout, chosen", lambda: _modern(0.2), _EVEN, keywords=_CHOSEN | _PADDED),
    Case("modern block, first", lambda: _modern(0.2, first=True), _EVEN, keywords=_PADDED),
]  # fmt: skip
