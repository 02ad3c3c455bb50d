"""Seven ways to break a model, each a small change to a model that has just been built.

    settings = FAULTS["no_norm"].apply(model, settings)

The library has no flags for this: layers of one model get another class, with the mistake, in a process of its own
(breaking_process.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.block import BlockCache
from mini_bert.layers.chosen import choose_rows
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.linear import Linear
from mini_bert.layers.matrices import rows, sum_rows, times
from mini_bert.models.mini import MiniBERT, MiniTransformerLayer
from mini_bert.training.settings import TrainingConfig


class NoResidual(MiniTransformerLayer):
    """x' = LN(Attention(x)),  y = LN(FeedForward(x'))        the two sums are missing"""

    def after_attention(self, x, a, attention, run, chosen=None):
        found = None if chosen is None else choose_rows(x, chosen)[1]
        x, attention_norm = self.attention_norm.forward(a, run)
        f, feed_forward = self.feed_forward.forward(x, run)
        y, output_norm = self.output_norm.forward(f, run)
        feed_forward = feed_forward._replace(expand=None)
        return y, BlockCache(attention, found, None, attention_norm, feed_forward, None, output_norm)

    def after_attention_backward(self, dy, cache, run):
        df = self.output_norm.backward(dy, cache.output_norm, run)
        x = self.attention_norm.rescale(cache.attention_norm.x_hat)
        dx = self.feed_forward.backward(df, cache.feed_forward._replace(expand=x), run)
        return np.zeros_like(cache.attention.x), self.attention_norm.backward(dx, cache.attention_norm, run)


class NoNorm(LayerNorm):
    """y = x"""

    def forward(self, x, run):
        return x.copy(), LayerNormCache(x.copy(), np.ones_like(x[..., :1]))

    def backward(self, dy, cache, run):
        return dy.copy()

    def rescale(self, x_hat):
        return x_hat.copy()


class WrongSign(Linear):
    """dW −= xᵀ dy        instead of +="""

    def backward(self, dy, x, run):
        self.w.add_product(rows(x).T, -rows(dy), run)
        if self.b is not None:
            self.b.add(sum_rows(dy))
        return times(dy, self.w.data.T)


class InvertedMask(MiniBERT):
    """Attends to padding instead of words."""

    def encoder_inputs(self, inputs):
        return {"mask": np.zeros(1, bool) if inputs.mask is None else ~inputs.mask}


def no_scale(model: Any, settings: TrainingConfig) -> TrainingConfig:
    for block in model.encoder.blocks:
        block.attention.scale = 1.0
    return settings


def no_residual(model: Any, settings: TrainingConfig) -> TrainingConfig:
    for block in model.encoder.blocks:
        block.__class__ = NoResidual
    return settings


def no_norm(model: Any, settings: TrainingConfig) -> TrainingConfig:
    norms = [norm for block in model.encoder.blocks for norm in (block.attention_norm, block.output_norm)]
    for norm in (*norms, model.final_norm):
        norm.__class__ = NoNorm
    return settings


def no_warmup(model: Any, settings: TrainingConfig) -> TrainingConfig:
    return replace(settings, warmup=0.0)


def high_rate(model: Any, settings: TrainingConfig) -> TrainingConfig:
    return replace(settings, learning_rate=100 * settings.learning_rate)


def wrong_sign(model: Any, settings: TrainingConfig) -> TrainingConfig:
    model.encoder.blocks[0].feed_forward.contract.__class__ = WrongSign
    return settings


def inverted_mask(model: Any, settings: TrainingConfig) -> TrainingConfig:
    model.__class__ = InvertedMask
    return settings


def larger_weights(model: Any) -> None:
    for block in model.encoder.blocks:
        for layer in (block.feed_forward.expand, block.feed_forward.contract):
            layer.w.data[...] *= 3


class Fault(NamedTuple):
    title: str
    right: str  # the line as it should be
    wrong: str
    why: str
    apply: Callable[[Any, TrainingConfig], TrainingConfig]
    setting: str = ""  # what is special about both models of this pair
    prepare: Callable[[Any], None] = lambda model: None  # both


FAULTS: dict[str, Fault] = {
    "no_scale": Fault(
        "No √d",
        "S = q kᵀ / √d",
        "S = q kᵀ",
        "A dot product of d numbers has a standard deviation of about √d. Without the division, scores are "
        "so far apart that softmax gives nearly all weight to one token, and hardly any gradient flows to "
        "the others. With d = 24 as here, scores are 4.9 times as large. The broken model learns which words "
        "are frequent, but its heads hardly learn where to look: its loss stays near the dashed line long "
        "after the healthy one has left it. With d = 64 the factor is 8.",
        no_scale,
    ),
    "no_residual": Fault(
        "No residual connections",
        "x′ = LN(x + Attention(x))",
        "x′ = LN(Attention(x))",
        "Without the sum, each block has to carry everything that later blocks need through attention and "
        "the network, which start as random matrices: after a few blocks the word and its position are "
        "mixed up. And the gradient has no way past a block, so the lower ones learn slowly.",
        no_residual,
    ),
    "no_norm": Fault(
        "No layer norm",
        "y = γ (x − μ) / σ + β",
        "y = x",
        "Both models start with weights in the feed-forward networks that are three times as large as usual. "
        "With norms this makes no difference, because each result is scaled to variance 1. Without them, each "
        "block multiplies what it gets: the stream, the scores of words and the gradients grow from block to "
        "block, and the loss is in the hundreds after a few steps. With weights of the usual size this small "
        "model gets by without norms; a deep one does not.",
        no_norm,
        "Both models start with feed-forward weights three times as large as usual.",
        larger_weights,
    ),
    "no_warmup": Fault(
        "No warm-up",
        "lr rises from 0 in the first steps",
        "lr starts at its peak",
        "Adam divides by an average of the last gradients, and at first it has seen only a few: its first "
        "steps are large, and all in directions that are right for a random model only. Here the norms come "
        "after the sums, where this does the most harm: the heads lose their way in the first steps, and are "
        "still looking for it at the end. At half this rate, the model would recover.",
        no_warmup,
    ),
    "high_rate": Fault(
        "Learning rate × 100",
        "learning rate 0.005",
        "learning rate 0.5",
        "Adam moves every weight by about the learning rate in each step, and weights start at about 0.1. "
        "At 0.5, one step replaces the model by noise, and so does the next one. The loss stays near that "
        "of a uniform guess, or jumps above it.",
        high_rate,
    ),
    "wrong_sign": Fault(
        "A sign error in one gradient",
        "dW₂ += xᵀ dy",
        "dW₂ −= xᵀ dy",
        "You see no difference, and that is the point: one matrix, W₂ of block 0, walks uphill while all others "
        "walk downhill, and these make up for it. A loss that falls does not prove a gradient. Compare it with "
        "a finite difference, as below, in Backward mode or with `mini-bert gradcheck`: the relative error of "
        "2 gives it away at once.",
        wrong_sign,
    ),
    "inverted_mask": Fault(
        "An inverted mask",
        "scores = where(mask, scores, −∞)",
        "scores = where(~mask, scores, −∞)",
        "Words attend to padding only, and padding knows nothing about the sentence. So attention cannot "
        "bring anything from one word to another: the model learns which words are frequent at which "
        "position, and nothing more. No error, no NaN: such a mistake is found only by comparing with what "
        "context should give.",
        inverted_mask,
    ),
}
