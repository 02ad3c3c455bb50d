"""Values that are out of range are refused, and the error shows them."""

from __future__ import annotations

import math

import pytest

from mini_bert.common.values import check_heads
from mini_bert.models.bert import BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.training.optim import Adam


@pytest.mark.parametrize("value", [math.inf, math.nan, True, 0, -1e-5, "1e-5", None])
@pytest.mark.parametrize("config", [MiniBertConfig, BertConfig])
def test_eps(config, value):
    """The ε of layer norms is a finite positive number."""
    with pytest.raises(ValueError, match=f"layer_norm_eps is {value!r}, expected a positive number"):
        config(layer_norm_eps=value)


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        (MiniBertConfig, "num_layers", 10**12),
        (MiniBertConfig, "vocab_size", 10**9),
        (MiniBertConfig, "hidden_size", 10**30),
        (BertConfig, "num_hidden_layers", 10**12),
        (BertConfig, "max_position_embeddings", 10**9),
    ],
)
def test_absurd_sizes(config, name, value):
    """A size that no model has is refused at once, before anything is built."""
    with pytest.raises(ValueError, match=f"{name} is {value}, expected at most"):
        config(**{name: value})


def test_divisors_of_a_large_width():
    """All divisors are listed, without trying every number up to the width."""
    with pytest.raises(ValueError, match=r"choose one of 1, 2, 4, 5, .*, 5000000, 10000000$"):
        check_heads(10**7, 3)
    with pytest.raises(ValueError, match=r"choose one of 1, 2, 3, 4, 6, 9, 12, 18, 36$"):
        check_heads(36, 5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, True, "0.1"])
@pytest.mark.parametrize("name", ["lr", "beta1", "beta2", "eps", "weight_decay"])
def test_adam(name, value):
    """Adam refuses values that would silently turn every weight into NaN; also a learning rate given to a step."""
    flat = MiniBERT(MiniBertConfig(vocab_size=7, hidden_size=4, num_layers=1, num_heads=1, intermediate_size=4)).flat
    with pytest.raises(ValueError, match=f"{name} is {value!r}, expected a"):
        Adam(flat, **{name: value})
    if name == "lr":
        with pytest.raises(ValueError, match=f"lr is {value!r}"):
            Adam(flat).step(lr=value)
