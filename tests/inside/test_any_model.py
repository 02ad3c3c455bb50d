"""Attention, saliency, activations and probes use only the model interface."""

from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from mini_bert.data.synthetic.dataset import parsed
from mini_bert.inside.attention_analysis import analyse
from mini_bert.inside.attention_page import attention_page
from mini_bert.inside.layer_statistics import text_statistics
from mini_bert.inside.report import report, report_json
from mini_bert.inside.saliency import gradient_times_input, word_log_probability
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.probing.probe import probe
from mini_bert.text.wordpiece import WordPieceTokenizer


class Sizes(NamedTuple):
    """A configuration with only the fields of the interface"""

    width: int = 10
    depth: int = 2
    heads: int = 5
    max_length: int = 64
    vocab_size: int = 8192


class BagOfWords(Model):
    """An architecture outside the library: no positions, no final norm"""

    model_type, config_class, family, head_help = "bag", Sizes, "Bag", {MASKED_WORDS: "no head for masked words"}
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}

    def __init__(self, config, output_heads=(MASKED_WORDS,), seed=0, dtype=np.float64):
        self.config = config
        self.tokens = Embedding(config.vocab_size, config.width, std=1.0)
        self.encoder = Encoder([TransformerBlock(config.width, config.heads, 7) for _ in range(config.depth)])
        if MASKED_WORDS in output_heads:
            self.masked_words = Linear(config.width, config.vocab_size)
        self._own_memory(seed, dtype)

    def embed(self, inputs, run):
        return self.tokens.forward(inputs.ids, run)

    def embed_backward(self, dx, inputs, cache, run):
        self.tokens.backward(dx, inputs.ids, run)
        return dx


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.load("8k")


def test_an_unknown_architecture(tokenizer):
    """Every analysis works on it; saliency sums to the derivative along the embeddings."""
    model = BagOfWords(Sizes())
    analysis = analyse(model, tokenizer, "the cat sat on the mat", every_word=True)
    assert analysis.maps.weights.shape == (2, 5, 8, 8) and len(analysis.saliency) == 6
    assert "Gradient × input" in report(analysis) and report_json(analysis) and attention_page(analysis)
    statistics, tokens = text_statistics(model, tokenizer, ["the cat sat", "a dog"])
    assert tokens == 9 and [place.name for place in statistics][-1] == "layer 1 output"
    (results,) = probe(model, tokenizer, "pos", parsed(20, split="train"), parsed(20, split="train"))
    assert list(results.trained) == [0, 1, 2] and results.trained[0].accuracy[0] > 0.3

    ids, scalar = np.array([tokenizer.encode("the cat sat")]), word_log_probability([7])
    _, scores = gradient_times_input(model, ids, scalar, chosen=np.array([2]))
    ends = []
    for step in (1e-5, -1e-5):
        scaled = BagOfWords(Sizes())
        scaled.tokens.table.data *= 1 + step
        ends.append(gradient_times_input(scaled, ids, scalar, chosen=np.array([2]))[0][0])
    assert scores.sum() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
