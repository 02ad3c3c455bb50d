"""DeBERTa v1 and v2/v3 agree with `transformers`: outputs and every gradient to 1e-9 in float64."""

from __future__ import annotations

import pytest

from tests.models.family import Peer, compare

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("error::UserWarning")]

SIZES = {"vocab_size": 31, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17,
         "max_position_embeddings": 11}  # fmt: skip
OTHER = {"vocab_size": 37, "hidden_size": 14, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 11,
         "max_position_embeddings": 13, "type_vocab_size": 3}  # fmt: skip
BOTH = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
ALONE = {"position_biased_input": False}
WORDS, BASE = {"masked_words": "logits"}, {"hidden": "last_hidden_state"}
UNTIED = {"tie_word_embeddings": False}
OWN = {"legacy": False}

V1 = [
    Peer("DebertaForMaskedLM", SIZES | BOTH | ALONE, WORDS),  # as published
    Peer("DebertaForMaskedLM", SIZES | BOTH | ALONE | OWN, WORDS),
    Peer("DebertaForMaskedLM", SIZES | BOTH | ALONE, WORDS, padded=False, shape=(4, 11)),
    Peer("DebertaForMaskedLM", OTHER | BOTH | UNTIED | {"hidden_act": "relu"}, WORDS, types=3),
    Peer("DebertaForMaskedLM", OTHER | BOTH | {"max_relative_positions": 4}, WORDS, types=3, shape=(2, 13)),
    Peer("DebertaForMaskedLM", SIZES | BOTH | ALONE | {"embedding_size": 8}, WORDS),
    Peer("DebertaForMaskedLM", SIZES | BOTH | {"embedding_size": 19, "type_vocab_size": 2}, WORDS, types=2),
    Peer("DebertaForMaskedLM", SIZES | BOTH | ALONE | {"talking_head": True}, WORDS),
    Peer("DebertaForMaskedLM", OTHER | {"relative_attention": True, "pos_att_type": "c2p"}, WORDS),
    Peer("DebertaForMaskedLM", OTHER | {"relative_attention": True, "pos_att_type": ["p2c"]}, WORDS, left=True),
    Peer("DebertaForMaskedLM", OTHER | {"relative_attention": True}, WORDS),
    Peer("DebertaForMaskedLM", SIZES | {"pos_att_type": "c2p|p2c"}, WORDS),
    Peer("DebertaForMaskedLM", SIZES | {"talking_head": True, "layer_norm_eps": 1e-3}, WORDS),
    Peer("DebertaModel", SIZES | BOTH | ALONE | {"max_relative_positions": 3}, BASE, padded=False, shape=(1, 9)),
    Peer("DebertaModel", OTHER | BOTH | {"hidden_act": "gelu_new", "max_relative_positions": 1}, BASE, types=3),
]

SHARED = {"share_att_key": True}
NORMED = {"norm_rel_ebd": "layer_norm"}
CONVOLVED = {"conv_kernel_size": 3}
BUCKETS = {"position_buckets": 8, "max_position_embeddings": 32}

V2 = [
    Peer(
        "DebertaV2ForMaskedLM",
        SIZES | BOTH | ALONE | SHARED | NORMED | BUCKETS | CONVOLVED | {"conv_act": "gelu"},
        WORDS,
        shape=(2, 23),
    ),  # v2 as published
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | ALONE | SHARED | NORMED | BUCKETS | OWN, WORDS, shape=(3, 29)),  # v3
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | ALONE, WORDS),
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | ALONE, WORDS, padded=False, shape=(4, 11)),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | UNTIED | {"hidden_act": "relu"}, WORDS, types=3),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | {"max_relative_positions": 4}, WORDS, types=3, shape=(2, 13)),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | SHARED | {"max_relative_positions": 4}, WORDS, shape=(2, 13)),
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | ALONE | NORMED | {"embedding_size": 8}, WORDS),
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | {"embedding_size": 19, "type_vocab_size": 2}, WORDS, types=2),
    Peer("DebertaV2ForMaskedLM", OTHER | {"relative_attention": True, "pos_att_type": "c2p"}, WORDS),
    Peer("DebertaV2ForMaskedLM", OTHER | SHARED | {"relative_attention": True, "pos_att_type": "c2p"}, WORDS),
    Peer("DebertaV2ForMaskedLM", OTHER | SHARED | {"relative_attention": True, "pos_att_type": ["p2c"]}, WORDS),
    Peer("DebertaV2ForMaskedLM", OTHER | {"relative_attention": True, "pos_att_type": ["p2c"]}, WORDS, left=True),
    Peer("DebertaV2ForMaskedLM", OTHER | NORMED | {"relative_attention": True}, WORDS),
    Peer("DebertaV2ForMaskedLM", SIZES | NORMED | {"pos_att_type": "c2p|p2c"}, WORDS),
    Peer("DebertaV2ForMaskedLM", SIZES | CONVOLVED | {"conv_groups": 5, "layer_norm_eps": 1e-3}, WORDS),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | {"conv_kernel_size": 5, "conv_groups": 2, "conv_act": "relu"}, WORDS),
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | CONVOLVED | {"num_hidden_layers": 1}, WORDS, left=True),
    Peer("DebertaV2ForMaskedLM", SIZES | BOTH | BUCKETS | {"position_buckets": 5}, WORDS, shape=(2, 32)),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | BUCKETS | {"max_relative_positions": 16}, WORDS, shape=(2, 31)),
    Peer("DebertaV2ForMaskedLM", OTHER | BOTH | {"position_buckets": 64, "attention_head_size": 7}, WORDS),
    Peer("DebertaV2Model", SIZES | BOTH | ALONE | CONVOLVED | BUCKETS, BASE, padded=False, shape=(1, 30)),
    Peer("DebertaV2Model", OTHER | BOTH | {"hidden_act": "gelu_new", "max_relative_positions": 1}, BASE, types=3),
]


def named(peers):
    return {"argvalues": peers, "ids": [f"{index}-{peer.theirs}" for index, peer in enumerate(peers)]}


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    pytest.importorskip("transformers")
    from tests.golden.deberta_reference import compute_in_float64

    compute_in_float64(monkeypatch.setattr)


@pytest.mark.parametrize("peer", **named(V1))
def test_outputs_and_gradients_of_v1(peer, tmp_path):
    """The folder that `transformers` wrote loads without warnings, and everything agrees."""
    compare(peer, tmp_path)


@pytest.mark.parametrize("peer", **named(V2))
def test_outputs_and_gradients_of_v2(peer, tmp_path):
    compare(peer, tmp_path)
