"""The maps of XLNet's two streams are those that `transformers` computes."""

from __future__ import annotations

import numpy as np
import pytest

from mini_bert.inside.attention_maps import attention_maps
from mini_bert.models.xlnet import XLNet, XLNetConfig
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

pytestmark = pytest.mark.peers
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "on", "mat"])
TEXT = "the cat sat on the mat"


def test_both_streams(tmp_path, monkeypatch):
    """For each token in turn: hidden by perm_mask, and predicted through target_mapping."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # the reference has waves in float32 otherwise
    config = XLNetConfig(len(TOKENIZER), d_model=12, n_layer=2, n_head=3, d_inner=14, dropout=0.0, seq_len=16)
    model = XLNet(config, seed=3, dtype=np.float64)
    model.flat.data[...] += 0.3 * np.random.default_rng(0).normal(size=model.flat.data.size)
    model.flat.data[...] = model.flat.data.astype(np.float32)  # the reference loads float32
    model.save_pretrained(tmp_path)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).double().eval()
    ids = torch.tensor([TOKENIZER.encode(TEXT)])
    T = ids.shape[1]
    content = attention_maps(model, TOKENIZER, TEXT)
    expected = theirs(ids, token_type_ids=torch.zeros_like(ids), output_attentions=True).attentions
    for layer in range(2):
        np.testing.assert_allclose(content.weights[layer], expected[layer][0].detach(), atol=1e-9)
    query = attention_maps(model, TOKENIZER, TEXT, stream="query")
    for place in range(T):
        mask, target = torch.zeros(1, T, T, dtype=torch.float64), torch.zeros(1, 1, T, dtype=torch.float64)
        mask[:, :, place] = 1
        target[:, :, place] = 1
        found = theirs(ids, token_type_ids=torch.zeros_like(ids), perm_mask=mask, target_mapping=target,
                       output_attentions=True).attentions  # fmt: skip
        for layer in range(2):
            np.testing.assert_allclose(query.weights[layer, :, place], found[layer][1].detach()[0, :, place], atol=1e-9)
