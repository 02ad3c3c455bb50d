"""GPT-2 and ModernBERT agree with `transformers`: outputs, losses and every gradient to 1e-9 in float64."""

from __future__ import annotations

import numpy as np
import pytest

from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import save as save_tuned
from mini_bert.finetuning.tasks.base import Batch
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.loss import Term
from tests.finetuning import tiny_tasks
from tests.models.family import (
    Inputs,
    Peer,
    agree,
    compare,
    compare_gradients,
    random_inputs,
    random_model,
    their_outputs,
)
from tests.models.relatives import IDS, MASK, TYPES
from tests.models.test_relatives_peers import TAGGED, TASKS, their_loss

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("error::UserWarning")]

SMALL = {"vocab_size": 31, "n_embd": 15, "n_layer": 3, "n_head": 3, "n_positions": 11, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
NEXT, WORDS, HIDDEN = {"next_word": "logits"}, {"masked_words": "logits"}, {"hidden": "last_hidden_state"}
GPT2 = [
    Peer("GPT2LMHeadModel", SMALL, NEXT),
    Peer("GPT2LMHeadModel", SMALL | {"pad_token_id": 3}, NEXT, left=True),
    Peer("GPT2LMHeadModel", SMALL | {"tie_word_embeddings": False, "n_inner": 17}, NEXT),
    Peer("GPT2LMHeadModel", SMALL | {"scale_attn_weights": False, "activation_function": "relu"}, NEXT, padded=False),
    Peer("GPT2LMHeadModel", SMALL | {"scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"}, NEXT),
    Peer("GPT2LMHeadModel", SMALL | {"reorder_and_upcast_attn": True}, NEXT),
    Peer("GPT2Model", SMALL | {"layer_norm_epsilon": 0.1, "activation_function": "gelu"}, HIDDEN, shape=(2, 11)),
    Peer("GPT2Model", SMALL | {"n_layer": 1, "n_embd": 12, "n_head": 4}, HIDDEN, shape=(1, 1), padded=False),
]

MODERN = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 4, "num_attention_heads": 2,
          "intermediate_size": 17, "max_position_embeddings": 29, "local_attention": 4, "pad_token_id": 3,
          "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}  # fmt: skip
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
    Peer("ModernBertForMaskedLM", MODERN | {"sparse_prediction": True, "num_hidden_layers": 1}, WORDS),
    Peer("ModernBertModel", MODERN | {"hidden_activation": "relu", "norm_eps": 0.1, "local_attention": 7}, HIDDEN),
    Peer("ModernBertForMaskedLM", MODERN | {"hidden_activation": "silu", "classifier_activation": "tanh"}, WORDS),
]
EVERY = [*GPT2, *MODERNBERT]


@pytest.fixture(autouse=True)
def all_in_float64(monkeypatch):
    """Rotary positions, softmax and "upcast" attention are computed in float32 there, whatever the weights are. For
    this comparison, they are float64."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.parametrize("peer", EVERY, ids=[f"{index}-{peer.theirs}" for index, peer in enumerate(EVERY)])
def test_outputs_and_gradients(peer, tmp_path):
    """The folder that `transformers` wrote loads without warnings, and everything agrees."""
    compare(peer, tmp_path)


@pytest.mark.parametrize("peer", [GPT2[0], GPT2[1], GPT2[3], MODERNBERT[0], MODERNBERT[1], MODERNBERT[2]], ids=str)
def test_losses_of_training(peer, tmp_path):
    """The loss that transformers computes from labels, and its gradients: the next word everywhere, or some words."""
    torch = pytest.importorskip("torch")
    theirs = random_model(peer, 0)
    theirs.save_pretrained(tmp_path)
    ours, inputs = load_model(tmp_path, np.float64), random_inputs(peer, theirs.config, 0)
    labels = np.where(inputs.mask == 1, inputs.ids, -100)
    if "masked_words" in peer.outputs:
        labels[np.random.default_rng(1).random(labels.shape) < 0.7] = -100
        predicted = labels
    else:
        labels[:, 1:][inputs.mask[:, :-1] == 0] = -100  # nothing predicts the first word after padding
        predicted = np.full_like(labels, -100)
        predicted[:, :-1] = labels[:, 1:]
    rows = np.flatnonzero(predicted != -100)
    term = Term(next(iter(peer.outputs)), rows, predicted.ravel()[rows])
    loss, cache = ours.loss_of(ours.check_inputs(inputs.ids, inputs.mask), [term], Run())
    wanted = their_outputs(theirs, inputs, labels=torch.tensor(labels)).loss
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    wanted.backward()
    ours.loss_backward(cache)
    compare_gradients(ours, theirs)


# ---------------------------------------------------------------------- published heads of tasks

PUBLISHED = {
    "GPT2": SMALL | {"pad_token_id": 0},
    "ModernBert": MODERN | {"pad_token_id": 0, "classifier_bias": True},
    "ModernBert, mean": MODERN | {"pad_token_id": 0, "classifier_pooling": "mean", "classifier_activation": "relu"},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_task_heads(name, task, tmp_path):
    """For a folder written by `transformers`, loss and every gradient agree to 1e-9; what we save, it opens again."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    family, (architecture, more, targets) = name.partition(",")[0], TASKS[task]
    values = PUBLISHED[name] | {"vocab_size": len(tiny_tasks.TOKENIZER)} | more
    peer = random_model(Peer(family + architecture, values, {}), seed=1)
    peer.save_pretrained(tmp_path / "theirs")
    tiny_tasks.TOKENIZER.save(tmp_path / "theirs")
    tuned = load_tuned(tmp_path / "theirs", dtype=np.float64)
    assert tuned.task.name == task

    ids = np.where(MASK, IDS, 0)
    batch = Batch(ids, MASK, TYPES, MASK if task == "qa" else TAGGED, targets)
    loss, _ = tuned.task.loss(tuned.model, batch, Run(), len(targets))
    given = Inputs(ids, MASK.astype(int), None)
    wanted = their_loss(task, their_outputs(peer, given), batch, torch)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-9)
    params, found = tuned.model.named_params(), {}
    for entry in [*tuned.model.names(), *tuned.model.task_names(architecture)]:
        found |= entry.save(params[entry.ours].grad)
    gradients = {name: p.grad.numpy() for name, p in peer.named_parameters() if p.grad is not None}
    assert len(found) == len(gradients)
    largest = max(np.abs(gradient).max() for gradient in gradients.values())
    for key, gradient in gradients.items():
        agree(found[key.removeprefix(tuned.model.prefix)], gradient, key, 1e-6 * largest)

    save_tuned(tmp_path / "ours", tuned.model, tuned.task, tiny_tasks.TOKENIZER, 11)
    again, report = getattr(transformers, family + architecture).from_pretrained(
        tmp_path / "ours", output_loading_info=True, dtype=torch.float64
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        one, other = their_outputs(peer.eval(), given), their_outputs(again.eval(), given)
    field, real = ("start_logits" if task == "qa" else "logits"), MASK if task in ("tag", "qa") else slice(None)
    np.testing.assert_allclose(one[field][real], other[field][real], rtol=1e-9)
