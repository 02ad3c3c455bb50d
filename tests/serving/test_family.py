"""Every architecture can be served: a text gets the same answer alone and in a batch with others."""

import numpy as np
import pytest

from mini_bert.inference.embed import embed
from mini_bert.inference.fill_mask import fill_mask, read_gaps
from mini_bert.models.base import MASKED_WORDS
from mini_bert.serving.served import Served
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from tests.export.tiny_models import MODELS, build
from tests.serving.conftest import WORDS

TEXTS = ["the cat sat on a mat .", "a dog ran", "ada lives in london and the cats ran far and far .", "rain"]
GAPS = ["the [MASK] sat on a mat .", "a [MASK] and a [MASK] ran far", "[MASK] is wet"]


NAMES = [name for name in MODELS if name != "xlnet-both-ways"]  # which reads half of each batch backwards, in training


def served(name: str) -> Served:
    model = build(name)
    special = list(SPECIAL_TOKENS)
    padding = getattr(model.config, "padding_id", None) or 0  # RoBERTa's positions depend on it
    special[0], special[padding] = special[padding], special[0]
    tokenizer = WordPieceTokenizer([*special, *dict.fromkeys(WORDS)])
    filler = model if MASKED_WORDS in model.output_heads else None
    return Served(name, model, None, tokenizer, filler=filler)


@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_a_batch(name):
    one = served(name)
    alone = [embed(one.model, one.tokenizer, [text])[0] for text in TEXTS]
    np.testing.assert_allclose(one.vectors(one.rows(TEXTS)), alone, atol=1e-5)
    whole = one.token_vectors(one.rows(TEXTS))
    for text, vectors in zip(TEXTS, whole, strict=True):
        np.testing.assert_allclose(vectors, one.token_vectors(one.rows([text]))[0], atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if MASKED_WORDS in MODELS[name]().output_heads])
def test_gaps_of_a_batch(name):
    one = served(name)
    together = one.gaps([read_gaps(one.model, one.tokenizer, text) for text in GAPS])
    for text, probs in zip(GAPS, together, strict=True):
        for gap, row in zip(fill_mask(one.model, one.tokenizer, text, 3).gaps, probs, strict=True):
            assert row[[guess.id for guess in gap]] == pytest.approx([guess.probability for guess in gap], abs=1e-5)
