"""What is said about a model whose layers share weights, or see less than the whole text."""

import numpy as np

from mini_bert.inside.attention_maps import AttentionMaps
from mini_bert.inside.attention_notes import narrow_layers, shared_blocks
from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.bert import Bert, BertConfig

SIZES = {"vocab_size": 11, "hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}


def albert(layers, groups, inner):
    config = AlbertConfig(
        **SIZES, embedding_size=5, num_hidden_layers=layers, num_hidden_groups=groups, inner_group_num=inner
    )
    return Albert(config, ())


def test_shared_blocks():
    assert shared_blocks(albert(3, 1, 1))[0].startswith(
        "All 3 layers are the same block, used again: head 0 has the same"
    )
    assert shared_blocks(albert(4, 2, 1))[0].startswith("Layers 0 and 1 are one block, layers 2 and 3 are one block, ")
    assert shared_blocks(albert(3, 1, 2))[0].startswith("Layers 0, 2 and 4 are one block, layers 1, 3 and 5 are one ")
    assert not shared_blocks(Bert(BertConfig(**SIZES, num_hidden_layers=2)))


def test_local_layers():
    """Only layers that see less than others are local: in a causal model all see the same."""
    T = 9
    away = np.arange(T) - np.arange(T)[:, None]
    whole, near, causal = np.ones((T, T), bool), np.abs(away) <= 2, away <= 0

    def noted(*visible):
        maps = AttentionMaps([""] * T, away[0], away[0], np.ones((len(visible), 1, T, T)), [""] * T, np.stack(visible))
        return narrow_layers(maps)

    assert noted(whole, whole) == noted(causal, causal) == []
    assert noted(near, whole, near) == ["Layers 0 and 2 are local: there, a token sees only 2 tokens on each side."]
    assert noted(whole, np.abs(away) <= 1) == ["Layer 1 is local: there, a token sees only 1 token on each side."]
