"""What `transformers` needs to be a reference for DeBERTa in float64, and the one head that it does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from transformers.models.deberta import modeling_deberta as v1
from transformers.models.deberta_v2 import modeling_deberta_v2 as v2


def _norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.variance_epsilon)


def _scale(query: torch.Tensor, terms: int) -> torch.Tensor:
    return torch.sqrt(torch.tensor(query.size(-1) * terms, dtype=torch.float64))


def compute_in_float64(setattr: Any = setattr) -> None:
    """The library computes v1's norms and the scale of the scores in float32, whatever the model; here it must not.

    setattr: pass `monkeypatch.setattr` to undo this after a test
    """
    setattr(v1.DebertaLayerNorm, "forward", _norm)
    for module in (v1, v2):
        setattr(module, "scaled_size_sqrt", _scale)


class ReplacedHead(torch.nn.Module):
    """The head of published DeBERTa v3 for replaced words, which `transformers` skips, from its description:
    a norm of the token's vector plus that of [CLS], a dense layer with GELU, one logit."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.LayerNorm = torch.nn.LayerNorm(width, eps)
        self.dense = torch.nn.Linear(width, width)
        self.classifier = torch.nn.Linear(width, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.classifier(F.gelu(self.dense(self.LayerNorm(hidden + hidden[:, :1]))))
