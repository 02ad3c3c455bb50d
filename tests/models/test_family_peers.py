"""Every architecture agrees with `transformers` in every output and every gradient, to 1e-9 in float64."""

import pytest

from tests.models.family import Peer, compare

TINY = {"vocab_size": 31, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17,
        "max_position_embeddings": 11, "type_vocab_size": 2}  # fmt: skip
WORDS = {"masked_words": "logits"}
HIDDEN = {"hidden": "last_hidden_state"}

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

SMALL = {"vocab_size": 31, "n_embd": 15, "n_layer": 3, "n_head": 3, "n_positions": 11, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
NEXT = {"next_word": "logits"}
GPT2 = [
    Peer("GPT2LMHeadModel", SMALL, NEXT),
    Peer("GPT2LMHeadModel", SMALL | {"pad_token_id": 3}, NEXT, left=True),
    Peer("GPT2LMHeadModel", SMALL | {"tie_word_embeddings": False, "n_inner": 17}, NEXT),
    Peer("GPT2LMHeadModel", SMALL | {"scale_attn_weights": False, "activation_function": "relu"}, NEXT, padded=False),
    Peer("GPT2LMHeadModel", SMALL | {"scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"}, NEXT),
    Peer("GPT2Model", SMALL | {"layer_norm_epsilon": 0.1, "activation_function": "gelu"}, HIDDEN, shape=(2, 11)),
    Peer(
        "GPT2Model",
        SMALL | {"activation_function": "tanh", "n_layer": 1, "n_embd": 12},
        HIDDEN,
        shape=(1, 1),
        padded=False,
    ),
]

MODERN = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 4, "num_attention_heads": 2,
          "intermediate_size": 17, "max_position_embeddings": 29, "local_attention": 4, "pad_token_id": 3,
          "bos_token_id": 1, "eos_token_id": 2,
          "cls_token_id": 1, "sep_token_id": 2}  # fmt: skip
BIASED = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
ROTARY = {"full_attention": {"rope_type": "default", "rope_theta": 50.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 7.0}}  # fmt: skip
MIXED = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
MODERNBERT = [
    Peer("ModernBertForMaskedLM", MODERN, WORDS, shape=(3, 13)),
    Peer("ModernBertForMaskedLM", MODERN | BIASED, WORDS, shape=(3, 13), left=True),
    Peer("ModernBertForMaskedLM", MODERN | {"decoder_bias": False, "tie_word_embeddings": False}, WORDS, padded=False),
    Peer("ModernBertForMaskedLM", MODERN | {"global_attn_every_n_layers": 2, "global_rope_theta": 99.0}, WORDS),
    Peer("ModernBertForMaskedLM", MODERN | {"layer_types": MIXED, "rope_parameters": ROTARY}, WORDS, shape=(2, 29)),
    Peer("ModernBertModel", MODERN | {"hidden_activation": "relu", "norm_eps": 0.1, "local_attention": 7}, HIDDEN),
    Peer("ModernBertForMaskedLM", MODERN | {"hidden_activation": "silu", "classifier_activation": "tanh"}, WORDS),
]


@pytest.fixture
def all_in_float64(monkeypatch):
    """ModernBERT computes some steps in float32, whatever its weights are. For this comparison they are float64."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.peers
@pytest.mark.usefixtures("all_in_float64")
@pytest.mark.parametrize("peer", MODERNBERT, ids=str)
def test_modernbert(peer, tmp_path):
    compare(peer, tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("peer", [*BERT, *GPT2], ids=str)
def test_outputs_and_gradients(peer, tmp_path):
    compare(peer, tmp_path)
