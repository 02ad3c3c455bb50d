"""The configuration of a Mini-BERT: its sizes, frozen and checked on construction. `mini-bert config` explains them.

L layers · H hidden width · A heads · d = H/A · I feed-forward width · T tokens · V vocabulary
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from mini_bert.common.values import check_eps, check_heads, check_probability, check_size

if TYPE_CHECKING:
    from mini_bert.models.sizes import Sizes

OF_A_TASK = ("architectures", "id2label", "label2id", "problem_type", "fine_tuning")  # added by fine-tuning
OF_EXPORT = ("torch_dtype", "eight_bit", "transformers.js_config", "sentence_pooling")  # added by export
INITS = ("plain", "depth_scaled")  # initial W_o and W2: like all other projections, or scaled by 1/√(2L)


@dataclass(frozen=True)
class MiniBertConfig:
    """The sizes of a Mini-BERT; the defaults are *the* Mini-BERT of 4,498,880 parameters."""

    vocab_size: int = 8192  # V
    hidden_size: int = 192  # H
    num_layers: int = 3  # L
    num_heads: int = 4  # A
    intermediate_size: int = 768  # I
    max_seq_length: int = 64  # T
    dropout: float = 0.0
    tie_head: bool = False
    layer_norm_eps: float = 1e-5
    init: str = "plain"

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_seq_length",
        ):
            check_size(name, getattr(self, name))
        check_heads(self.hidden_size, self.num_heads)
        check_probability("dropout", self.dropout)
        if not isinstance(self.tie_head, bool):
            raise ValueError(f"tie_head is {self.tie_head!r}, expected True or False")
        check_eps("layer_norm_eps", self.layer_norm_eps)
        if self.init not in INITS:
            raise ValueError(f"init is {self.init!r}, expected one of {', '.join(map(repr, INITS))}")

    @property
    def head_size(self) -> int:  # d
        return self.hidden_size // self.num_heads

    # The sizes under the names that every config has.

    @property
    def width(self) -> int:
        return self.hidden_size

    @property
    def depth(self) -> int:
        return self.num_layers

    @property
    def heads(self) -> int:
        return self.num_heads

    @property
    def length_field(self) -> str:
        return "max_seq_length"

    @property
    def max_length(self) -> int:
        return self.max_seq_length

    @property
    def name(self) -> str:
        """ "Larger-BERT" if layers, width and heads are those of Larger-BERT, with any vocabulary; else "Mini-BERT" """
        return "Larger-BERT" if (self.depth, self.width, self.heads) == (6, 384, 8) else "Mini-BERT"

    def sizes(self) -> Sizes:
        from mini_bert.models.sizes import Sizes, block_parameters

        V, H, L, T, inner = self.vocab_size, self.width, self.depth, self.max_length, self.intermediate_size
        parameters = (V + T) * H + L * block_parameters(H, inner) + 2 * H + V + (0 if self.tie_head else H * V)
        drops = self.dropout > 0
        return Sizes(self.name, V, H, L, self.heads, inner, T, parameters, self.tie_head, drops, drops,
                     embedding_norm=False, inner_kept=1, inner_temporary=1.25, head_kept=2)  # fmt: skip

    def with_padding(self, pad_id: int) -> MiniBertConfig:
        return self  # nothing depends on the id of padding

    def with_dropout(self, p: float) -> MiniBertConfig:
        return replace(self, dropout=p)

    def with_vocabulary(self, size: int) -> MiniBertConfig:
        """The same with another number of words"""
        return replace(self, vocab_size=size)

    def with_tied_head(self) -> MiniBertConfig:
        return replace(self, tie_head=True)

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": "mini_bert", **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MiniBertConfig:
        """Build from the content of a `config.json`. An unknown field is an error."""
        model_type = values.get("model_type")
        if model_type != "mini_bert":
            raise ValueError(
                f"config.json has model_type {model_type!r}, expected 'mini_bert'; "
                "mini_bert.load_model reads folders of every kind"
            )
        known = {field.name for field in fields(cls)}
        others = ("model_type", *OF_A_TASK, *OF_EXPORT)
        given = {name: value for name, value in values.items() if name not in others}
        unknown = sorted(set(given) - known)
        if unknown:
            more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
            raise ValueError(
                f"unknown field(s) {', '.join(unknown[:5])}{more}; a MiniBertConfig has {', '.join(sorted(known))}. "
                "Correct or remove them; beside weights, config.json must be the one that was saved with them"
            )
        return cls(**given)


MINI_BERT_CONFIG = MiniBertConfig()

LARGER_BERT_CONFIG = MiniBertConfig(
    vocab_size=50_000,
    hidden_size=384,
    num_layers=6,
    num_heads=8,
    intermediate_size=1536,
    max_seq_length=128,
    dropout=0.1,
    init="depth_scaled",
)

_REASONS = {
    "vocab_size": "V: the number of word pieces; the token table and the head grow with it",
    "hidden_size": "H: the length of every token's vector, and of the residual stream",
    "num_layers": "L: the number of blocks, each of attention and a feed-forward network",
    "num_heads": "A: attention patterns per block, each in d = H/A = 48 dimensions",
    "intermediate_size": "I = 4H: the customary width of the feed-forward network",
    "max_seq_length": "T: rows in the position table; attention costs T² per head",
    "dropout": "fraction of activations dropped in training; a small model with much text needs none",
    "tie_head": "true: the head shares the token table (V·H fewer parameters)",
    "layer_norm_eps": "keeps the division in layer norm away from zero",
    "init": "depth_scaled: blocks start with smaller outputs, by a factor of 1/√(2L) (docs/larger.md)",
}


def main() -> None:
    """Print Mini-BERT's configuration with the reason for every number, and Larger-BERT's beside it."""
    from mini_bert.common.invocation import command

    print("Mini-BERT's configuration (Larger-BERT's beside it)\n")
    print(f"{'field':18} {'mini':>8} {'larger':>14}  why")
    for field in fields(MiniBertConfig):
        mini, larger = (json.dumps(getattr(config, field.name)) for config in (MINI_BERT_CONFIG, LARGER_BERT_CONFIG))
        print(f"{field.name:18} {mini:>8} {larger:>14}  {_REASONS[field.name]}")
    print(f"\n`{command('info')}` shows the architecture and the parameters that follow from these numbers.")
