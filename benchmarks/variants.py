"""What `mini-bert train` has no options for, to measure what it is worth (docs/recipes.md).

    python benchmarks/variants.py train --model pre-norm --corpus text.txt --out runs/pre-norm
    python benchmarks/variants.py eval runs/pre-norm --corpus other.txt

The commands are those of `mini-bert`. They know these models, too, BERT with one modern change after another:

    post-norm       BERT of Mini-BERT's width, with tied tables
    pre-norm        norms before the sublayers, one at the end
    rotary          … and rotary positions in place of a table
    gated           … and gated feed-forward networks with as many weights
    no-bias         … and no biases, in projections and norms
    zero            … and projections into the residual stream start at 0
    2-wide, 6-thin  the last with another depth, and about as many weights
    post-norm-noise, pre-norm-noise     the first two without the start that attends to neighbours
                    (docs/decisions/0003), which there is none of with rotary positions: what "rotary" is compared with

These are presets of `train` with six layers in place of three: bert-6, deberta-6, deberta-v2-6, modernbert-6. Beside
them there are these objectives,

    hidden_words    no word that is to be predicted can be seen: 90 % [MASK], 10 % another word
    one_sentence    a sequence is one sentence, and not 64 tokens of running text

and these orders of the text, which is shuffled otherwise (`--order` also when a run is resumed):

    --order text        from the first document to the last, in every epoch
    --order backwards   from the last sequence to the first

A run whose model is a variant can only be read by these commands: they are for measurements, not for use.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mini_bert.cli.main import main
from mini_bert.common.json_values import as_json
from mini_bert.data import batches
from mini_bert.data.order import Order
from mini_bert.layers.base import Layer, Unchanged
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.initialisers import zeros
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.rotary import RotaryAttention
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert import BertConfig
from mini_bert.models.bert_like import SMALL, BertLike, block
from mini_bert.models.registry import MODELS, preset
from mini_bert.models.saving import Saved
from mini_bert.objectives.masked_words import Batch, MaskedWords
from mini_bert.objectives.registry import OBJECTIVES

THETA = 10_000.0  # of rotary positions
STEPS = ("pre_norm", "rotary", "gated", "no_bias", "zero")  # each variant has all changes before its own
DEEPER = ("bert", "deberta", "deberta-v2", "modernbert")


@dataclass(frozen=True)
class VariantConfig(BertConfig):
    model_type: ClassVar[str] = "variant"

    pre_norm: bool = False
    rotary: bool = False
    gated: bool = False
    no_bias: bool = False
    zero: bool = False
    noise: bool = False  # all weights start with noise


def variants() -> dict[str, VariantConfig]:
    first = VariantConfig(**SMALL)
    found, changed = {"post-norm": first}, first
    for step in STEPS:
        changed = replace(changed, **{step: True})
        if step == "gated":
            changed = replace(changed, intermediate_size=512)  # 3 · 192 · 512 weights, as many as 2 · 192 · 768
        found[step.replace("_", "-")] = changed
    for name in ("post-norm", "pre-norm"):
        found[f"{name}-noise"] = replace(found[name], noise=True)
    found["2-wide"] = replace(changed, num_hidden_layers=2, hidden_size=216, intermediate_size=576)
    found["6-thin"] = replace(changed, num_hidden_layers=6, hidden_size=152, intermediate_size=408)
    return found


def deeper(name: str) -> dict[str, Any]:
    """The config of a preset with twice as many layers"""
    values = preset(name).to_dict()
    doubled = {"num_hidden_layers": 2 * values["num_hidden_layers"]}
    return values | doubled | ({"layer_types": 2 * values["layer_types"]} if "layer_types" in values else {})


class NoPositions(Layer):
    """In place of a table: attention itself knows distances."""

    def forward(self, x, run, positions=None):
        return x, None

    def backward(self, dy, cache, run):
        return dy


class Variant(BertLike):
    model_type, config_class, family = "variant", VariantConfig, "Variant"
    in_transformers = None
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    names = Saved.names

    def __init__(
        self, config: VariantConfig, output_heads: Any = (MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config, width = config, config.width
        self.add_embeddings(width)
        if config.rotary:
            self.positions = NoPositions()
        if config.no_bias:
            self.norm = LayerNorm(width, config.layer_norm_eps, False)
        if config.pre_norm:
            self.encoder = Encoder([pre_norm_block(config, index) for index in range(config.depth)])
            self.final_norm = LayerNorm(width, config.layer_norm_eps, not config.no_bias)
        else:
            self.encoder = Encoder([block(config) for _ in range(config.depth)])
        self.masked_words = self.word_head() if MASKED_WORDS in output_heads else None
        self._own_memory(seed, dtype)

    def start_attention(self):
        if not (self.config.rotary or self.config.noise):
            super().start_attention()

    @classmethod
    def heads_in(cls, values, tensors):
        return [MASKED_WORDS] if any(name.startswith("masked_words.") for name in tensors) else []

    def reconcile(self, tensors, table, source):
        return Saved.reconcile(self, tensors, table, source)

    def file_tensors(self, task=""):
        return Saved.file_tensors(self, task)


def pre_norm_block(config: VariantConfig, index: int) -> PreNormBlock:
    width, inner, std, bias = config.width, config.intermediate_size, config.initializer_range, not config.no_bias
    attention: Any = (
        RotaryAttention(width, config.heads, THETA, bias, std=std)
        if config.rotary
        else EfficientAttention(width, config.heads, bias, std=std)
    )
    network: Any = (
        GatedFeedForward(width, inner, config.hidden_act, bias, std=std)
        if config.gated
        else FeedForward(width, inner, config.hidden_act, std)
    )
    if config.zero:
        attention.output.w.init = network.contract.w.init = zeros
    first, second = (LayerNorm(width, config.layer_norm_eps, bias) for _ in range(2))
    return PreNormBlock(first if index else Unchanged(), attention, second, network)


class HiddenWords(MaskedWords):
    name, visible = "hidden_words", 0.0

    def batch(self, rows, keys):
        masked, targets, positions = self._masking(rows.ids, keys, to_mask=0.9, to_random=1.0)
        return Batch(masked, positions, targets, rows.mask, rows.types, rows.labels)


class OneSentence(MaskedWords):
    name, sequences = "one_sentence", {"mode": "sentences"}


class Unshuffled(Order):
    """Sequences in the order of the text, or from the last to the first. Held-out text is still shuffled."""

    step = 1

    def __init__(self, sequences, batch_size, seed=0, fixed=False, lengths=None):
        super().__init__(sequences, batch_size, seed, fixed, lengths)
        if not fixed:
            self._shuffled = lambda epoch: np.arange(sequences)[:: self.step]


def with_files(words: list[str], folder: Path) -> list[str]:
    """The words of a command, in which the name of a variant is now the path of its config.json."""
    known = {name: {"model_type": "variant", **config.to_dict()} for name, config in variants().items()}
    known |= {f"{name}-6": deeper(name) for name in DEEPER}
    for place, word in enumerate(words):
        if word in known and place and words[place - 1] == "--model":
            path = folder / f"{word}.json"
            path.write_text(as_json(known[word]), encoding="utf-8")
            words = [*words[:place], str(path), *words[place + 1 :]]
    return words


def with_order(words: list[str]) -> list[str]:
    """The words of a command without `--order`, which is carried out."""
    if "--order" not in words:
        return words
    place = words.index("--order")
    Unshuffled.step = {"text": 1, "backwards": -1}[words[place + 1]]
    batches.Order = Unshuffled  # type: ignore[misc]
    return words[:place] + words[place + 2 :]


if __name__ == "__main__":
    sys.modules.setdefault("variants", sys.modules["__main__"])
    MODELS["variant"] = ("variants", "Variant")
    OBJECTIVES |= {kind.name: kind for kind in (HiddenWords, OneSentence)}
    with tempfile.TemporaryDirectory() as folder:
        main(with_files(with_order(sys.argv[1:]), Path(folder)))
