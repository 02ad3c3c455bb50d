"""Every architecture agrees with `transformers` in every output and every gradient, to 1e-9 in float64."""

import pytest

from tests.models.family import Peer, compare

TINY = {"vocab_size": 31, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17,
        "max_position_embeddings": 11, "type_vocab_size": 2}  # fmt: skip
WORDS = {"masked_words": "logits"}

BERT = [
    Peer("BertForMaskedLM", TINY, WORDS, types=2),
    Peer("BertForMaskedLM", TINY | {"hidden_act": "gelu_new", "tie_word_embeddings": False}, WORDS),
    Peer("BertModel", TINY, {"hidden": "last_hidden_state", "pooler": "pooler_output"}, types=2, padded=False),
    Peer(
        "BertForPreTraining",
        TINY,
        {"masked_words": "prediction_logits", "next_sentence": "seq_relationship_logits"},
        types=2,
    ),
]


@pytest.mark.peers
@pytest.mark.parametrize("peer", [*BERT], ids=str)
def test_outputs_and_gradients(peer, tmp_path):
    compare(peer, tmp_path)
