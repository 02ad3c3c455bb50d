"""RoBERTa, DistilBERT, ALBERT and ELECTRA agree with `transformers`: outputs and every gradient to 1e-9 in float64."""

from __future__ import annotations

import pytest

from tests.models.family import Peer, compare

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("error::UserWarning")]

SIZES = {"vocab_size": 31, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17,
         "max_position_embeddings": 11, "type_vocab_size": 2}  # fmt: skip
OTHER = {"vocab_size": 37, "hidden_size": 14, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 11,
         "max_position_embeddings": 13, "type_vocab_size": 3}  # fmt: skip
WORDS = {"masked_words": "logits"}
BASE = {"hidden": "last_hidden_state", "pooler": "pooler_output"}
UNTIED = {"tie_word_embeddings": False}

ROBERTA = [
    Peer("RobertaForMaskedLM", SIZES | {"type_vocab_size": 1}, WORDS),
    Peer("RobertaForMaskedLM", SIZES | {"type_vocab_size": 1}, WORDS, left=True),
    Peer("RobertaForMaskedLM", OTHER | UNTIED | {"hidden_act": "relu", "layer_norm_eps": 1e-3}, WORDS, types=3),
    Peer("RobertaForMaskedLM", OTHER | {"pad_token_id": 4, "hidden_act": "gelu_new"}, WORDS, types=3, left=True),
    Peer("RobertaForMaskedLM", OTHER | {"pad_token_id": 0}, WORDS, shape=(2, 12)),
    Peer("RobertaModel", SIZES, BASE, types=2, shape=(5, 9)),
    Peer("RobertaModel", OTHER | {"hidden_act": "tanh"}, BASE, padded=False),
]

THEIR_NAMES = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
               "intermediate_size": "hidden_dim", "hidden_act": "activation"}  # fmt: skip


def distilled(values: dict) -> dict:
    return {THEIR_NAMES.get(name, name): value for name, value in values.items() if name != "type_vocab_size"}


DISTILBERT = [
    Peer("DistilBertForMaskedLM", distilled(SIZES), WORDS),
    Peer("DistilBertForMaskedLM", distilled(OTHER | UNTIED | {"hidden_act": "relu"}), WORDS),
    Peer("DistilBertForMaskedLM", distilled(OTHER | {"sinusoidal_pos_embds": True}), WORDS, shape=(2, 13)),
    Peer("DistilBertModel", distilled(SIZES | {"hidden_act": "gelu_new"}), {"hidden": "last_hidden_state"}),
    Peer("DistilBertModel", distilled(OTHER), {"hidden": "last_hidden_state"}, padded=False, shape=(1, 5)),
]

SOP = {"masked_words": "prediction_logits", "sentence_order": "sop_logits"}
ALBERT = [
    Peer("AlbertForPreTraining", SIZES | {"embedding_size": 5}, SOP, types=2),
    Peer("AlbertForMaskedLM", SIZES | {"embedding_size": 5, "num_hidden_layers": 5}, WORDS, types=2),
    Peer("AlbertForMaskedLM", OTHER | UNTIED | {"embedding_size": 19, "hidden_act": "gelu"}, WORDS, types=3),
    Peer("AlbertForMaskedLM", OTHER | {"embedding_size": 14, "num_hidden_groups": 3}, WORDS),
    Peer("AlbertForPreTraining", SIZES | {"embedding_size": 7, "num_hidden_layers": 5, "num_hidden_groups": 3}, SOP),
    Peer("AlbertForPreTraining", OTHER | {"embedding_size": 7, "inner_group_num": 2, "num_hidden_groups": 2}, SOP),
    Peer("AlbertModel", OTHER | {"embedding_size": 6, "inner_group_num": 3, "layer_norm_eps": 1e-4}, BASE, types=3),
    Peer("AlbertModel", SIZES | {"embedding_size": 3, "num_hidden_layers": 12}, BASE, padded=False, types=2),
]

DISCRIMINATOR = {"replaced": "logits"}
ELECTRA = [
    Peer("ElectraForPreTraining", SIZES | {"embedding_size": 7}, DISCRIMINATOR, types=2),
    Peer("ElectraForPreTraining", OTHER | {"embedding_size": 14, "hidden_act": "relu"}, DISCRIMINATOR, types=3),
    Peer("ElectraForPreTraining", SIZES | {"embedding_size": 19, "hidden_act": "tanh"}, DISCRIMINATOR, padded=False),
    Peer("ElectraForMaskedLM", SIZES | {"embedding_size": 7}, WORDS, types=2),
    Peer("ElectraForMaskedLM", OTHER | {"embedding_size": 14, "hidden_act": "relu"}, WORDS),
    Peer("ElectraForMaskedLM", OTHER | UNTIED | {"embedding_size": 5, "layer_norm_eps": 1e-3}, WORDS, types=3),
    Peer("ElectraModel", SIZES | {"embedding_size": 15}, {"hidden": "last_hidden_state"}, types=2, shape=(4, 11)),
    Peer("ElectraModel", OTHER | {"embedding_size": 3}, {"hidden": "last_hidden_state"}, padded=False),
]
EVERY = [*ROBERTA, *DISTILBERT, *ALBERT, *ELECTRA]


@pytest.mark.parametrize("peer", EVERY, ids=[f"{index}-{peer.theirs}" for index, peer in enumerate(EVERY)])
def test_outputs_and_gradients(peer, tmp_path):
    """The folder that `transformers` wrote loads without warnings, and everything agrees."""
    compare(peer, tmp_path)
