"""Mini-BERT in idiomatic PyTorch, as a reference for benchmarks and tests. Needs torch.

Uses PyTorch's scaled dot-product attention; after the blocks, only the chosen rows go through the final norm and head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT

PARTS = ("attention.qkv", "attention.output", "feed_forward.expand", "feed_forward.contract")
NORMS = ("attention_norm", "output_norm")


def dropout(c: MiniBertConfig) -> nn.Module:
    return nn.Dropout(c.dropout) if c.dropout else nn.Identity()


class Block(nn.Module):
    def __init__(self, c: MiniBertConfig):
        super().__init__()
        H, I = c.hidden_size, c.intermediate_size
        self.shape = (3, c.num_heads, c.head_size)
        self.qkv, self.output = nn.Linear(H, 3 * H, bias=False), nn.Linear(H, H, bias=False)
        # The order matters: clipping sums norms in this order; another one changes the last bits after twenty steps.
        self.attention_norm, self.output_norm = (nn.LayerNorm(H, c.layer_norm_eps) for _ in NORMS)
        self.expand, self.contract = nn.Linear(H, I), nn.Linear(I, H)
        self.p, self.drop = c.dropout, dropout(c)

    def forward(self, x: Tensor) -> Tensor:
        B, T, H = x.shape
        q, k, v = self.qkv(x).view(B, T, *self.shape).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)
        x = self.attention_norm(x + self.drop(self.output(attended.transpose(1, 2).reshape(B, T, H))))
        return self.output_norm(x + self.drop(self.contract(F.relu(self.expand(x)))))


class TorchMiniBert(nn.Module):
    """Copies the weights of `model`. forward: ids (B,T), chosen rows (N,) -> logits (N,V)"""

    def __init__(self, model: MiniBERT):
        super().__init__()
        c = model.config
        self.tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.positions = nn.Embedding(c.max_seq_length, c.hidden_size)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.num_layers))
        self.final_norm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
        self.head, self.drop = nn.Linear(c.hidden_size, c.vocab_size), dropout(c)
        self.to(getattr(torch, str(model.dtype)))
        self.load_state_dict(weights(model))

    def forward(self, ids: Tensor, rows: Tensor) -> Tensor:
        x = self.drop(self.tokens(ids) + self.positions.weight[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x.flatten(0, 1)[rows]))


class Loss(nn.Module):
    """The sum of −log p over the targets; can be compiled together with the network."""

    def __init__(self, network: TorchMiniBert):
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.network(ids, rows), targets, reduction="sum")


def weights(model: MiniBERT) -> dict[str, Tensor]:
    """Our weights under PyTorch's names, matrices as (out, in)."""
    ours = {name: torch.tensor(param.data) for name, param in model.named_params().items()}
    found = {"tokens.weight": ours["tokens.table"], "positions.weight": ours["positions.table"]}
    linears, norms = {"head": "head"}, {"final_norm": "final_norm"}
    for i in range(model.config.num_layers):
        linears |= {f"blocks.{i}.{part.split('.')[1]}": f"encoder.blocks.{i}.{part}" for part in PARTS}
        norms |= {f"blocks.{i}.{norm}": f"encoder.blocks.{i}.{norm}" for norm in NORMS}
    for theirs, name in linears.items():
        found[f"{theirs}.weight"] = ours[f"{name}.w"].T
        if f"{name}.b" in ours:
            found[f"{theirs}.bias"] = ours[f"{name}.b"]
    for theirs, name in norms.items():
        found |= {f"{theirs}.weight": ours[f"{name}.gamma"], f"{theirs}.bias": ours[f"{name}.beta"]}
    return found
