"""DeBERTa v1 and v2/v3 agree with `transformers`: outputs and every gradient to 1e-9 in float64."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.tasks.base import Batch
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, REPLACED
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.loss import Term
from tests.models.family import Peer, agree, compare, random_inputs, random_model, their_outputs
from tests.models.relatives import scattered

sys.path.insert(0, str(Path(__file__).parent.parent / "finetuning"))
import tiny_tasks

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


# ---------------------------------------------------------------------- more than the harness compares


@pytest.mark.parametrize(
    ("theirs", "more"),
    [("DebertaModel", ALONE), ("DebertaModel", {"talking_head": True}), ("DebertaV2Model", BUCKETS | CONVOLVED)],
)  # fmt: skip
def test_every_hidden_state_and_attention(theirs, more, tmp_path):
    """After every block, at padding, too, and the weights of every head."""
    peer = Peer(theirs, SIZES | BOTH | more, BASE, shape=(3, 9))
    reference = random_model(peer, 0)
    reference.save_pretrained(tmp_path)
    inputs = random_inputs(peer, reference.config, 0)
    wanted = their_outputs(reference, inputs, output_hidden_states=True, output_attentions=True)
    _, cache = load_model(tmp_path, np.float64).encode(inputs.ids, inputs.mask)
    for index, (found, state) in enumerate(zip(cache.hidden_states(), wanted.hidden_states, strict=True)):
        agree(found, state.detach().numpy(), f"hidden state {index}")
    for index, weights in enumerate(wanted.attentions):
        agree(cache[f"attention_weights_{index}"], weights.detach().numpy(), f"{index}")


@pytest.mark.parametrize("mask", [None, (9, 4, 6)])
def test_float32_as_published_code_computes_it(mask, tmp_path, monkeypatch):
    """Without the changes for float64: the same to float32's precision."""
    monkeypatch.undo()
    torch = pytest.importorskip("torch")
    for theirs, more in (("DebertaForMaskedLM", ALONE), ("DebertaV2ForMaskedLM", BUCKETS | SHARED | NORMED)):
        peer = Peer(theirs, SIZES | BOTH | more, WORDS, shape=(3, 9), padded=mask is not None)
        reference = random_model(peer, 0).float()
        reference.save_pretrained(tmp_path)
        inputs = random_inputs(peer, reference.config, 0)
        with torch.no_grad():
            wanted = their_outputs(reference, inputs).logits.numpy()
        found, _ = load_model(tmp_path).forward(inputs.ids, inputs.mask)
        np.testing.assert_allclose(found.masked_words, wanted, atol=2e-5)


WRITTEN = [
    (Deberta, DebertaConfig, SIZES | BOTH | ALONE, (MASKED_WORDS,)),
    (Deberta, DebertaConfig, SIZES | BOTH | OWN | {"talking_head": True, "type_vocab_size": 2}, (MASKED_WORDS,)),
    (Deberta, DebertaConfig, SIZES | BOTH | UNTIED | {"embedding_size": 8}, (MASKED_WORDS,)),
    (Deberta, DebertaConfig, SIZES, ()),
    (DebertaV2, DebertaV2Config, SIZES | BOTH | ALONE | BUCKETS | CONVOLVED | NORMED, (MASKED_WORDS,)),
    (DebertaV2, DebertaV2Config, SIZES | BOTH | ALONE | SHARED | OWN, (MASKED_WORDS, REPLACED)),
    (DebertaV2, DebertaV2Config, SIZES | BOTH | ALONE | SHARED | CONVOLVED | {"conv_groups": 3}, (REPLACED,)),
    (DebertaV2, DebertaV2Config, SIZES | BOTH | UNTIED | {"embedding_size": 8}, (MASKED_WORDS,)),
]


@pytest.mark.parametrize(("kind", "config", "values", "heads"), WRITTEN)
def test_transformers_opens_what_we_write(kind, config, values, heads, tmp_path):
    """With the class that the folder names; no tensor is missing, and none is unexpected but the head for replaced
    words, which that library skips."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = scattered(kind(config(**values), heads))
    model.save_pretrained(tmp_path)
    (architecture,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    peer, report = getattr(transformers, architecture).from_pretrained(tmp_path, output_loading_info=True)
    odd = [name for name in report["unexpected_keys"] if not name.startswith("mask_predictions.")]
    assert not report["missing_keys"] and not report["mismatched_keys"] and not odd
    ids, mask = np.random.default_rng(0).integers(1, 31, (3, 7)), np.arange(7) < np.array([[7], [5], [2]])
    with torch.no_grad():
        wanted = peer.eval()(torch.tensor(ids), attention_mask=torch.tensor(mask.astype(int)))[0].numpy()
    output, _ = model.forward(ids, mask)
    np.testing.assert_allclose(output.masked_words if MASKED_WORDS in heads else output.hidden, wanted, atol=5e-5)


def test_a_pair_opens_as_two_models(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = DebertaV2Config(**SIZES | BOTH | ALONE | SHARED | NORMED, generator={"num_hidden_layers": 1})
    pair = scattered(DebertaV2(config, (REPLACED,)))
    pair.save_pretrained(tmp_path)
    ids = np.random.default_rng(0).integers(1, 31, (3, 7))
    discriminator = transformers.AutoModel.from_pretrained(tmp_path).eval()
    generator = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "generator").eval()
    with torch.no_grad():
        hidden, words = discriminator(torch.tensor(ids))[0].numpy(), generator(torch.tensor(ids))[0].numpy()
    np.testing.assert_allclose(pair.encode(ids)[0], hidden, atol=5e-5)
    np.testing.assert_allclose(pair.generator.forward(ids)[0].masked_words, words, atol=5e-5)


def test_the_head_for_replaced_words(tmp_path):
    """Logits, and every gradient, of the authors' formula; rows that the loss leaves out get none."""
    torch = pytest.importorskip("torch")
    from tests.golden.deberta_reference import ReplacedHead

    peer = Peer("DebertaV2ForMaskedLM", SIZES | BOTH | ALONE | OWN, WORDS)
    reference = random_model(peer, 0)
    head = ReplacedHead(15, 1e-7).double()
    theirs = dict(reference.named_parameters()) | {f"mask_predictions.{key}": p for key, p in head.named_parameters()}
    reference.save_pretrained(tmp_path)
    save_file({name: p.detach().numpy() for name, p in theirs.items()}, tmp_path / "model.safetensors")
    model = load_model(tmp_path, np.float64)
    inputs = random_inputs(peer, reference.config, 0)
    rows, labels = np.array([0, 3, 9, 13]), np.array([1.0, 0.0, 0.0, 1.0])
    logits = head(reference.deberta(torch.tensor(inputs.ids), torch.tensor(inputs.mask)).last_hidden_state)
    agree(model.forward(inputs.ids, inputs.mask)[0].replaced, logits.detach().numpy(), "logits")
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.reshape(-1)[rows], torch.tensor(labels))
    loss.backward()
    ours, cache = model.loss_of(model.check_inputs(inputs.ids, inputs.mask), [Term(REPLACED, rows, labels.astype(int))])
    assert ours == pytest.approx(loss.item(), rel=1e-12)
    model.loss_backward(cache)
    twin = deepcopy(model)
    twin.flat.data[...] = model.flat.grad
    found = twin.file_tensors()
    gradients = {name: p.grad.numpy() for name, p in theirs.items() if p.grad is not None}
    largest = max(np.abs(array).max() for array in gradients.values())
    for name, array in gradients.items():
        agree(found[name], array, name, 1e-6 * largest)


# ---------------------------------------------------------------------- fine-tuned

TASKS = {
    "classify": ("ForSequenceClassification", {"num_labels": 3}, np.array([2, 0, 1])),
    "tag": ("ForTokenClassification", {"num_labels": 3}, np.array([2, 0, 1, 1])),
    "qa": ("ForQuestionAnswering", {}, np.array([[1, 3], [2, 2], [0, 1]])),
}
MASK = np.arange(7) < np.array([[7], [5], [4]])
ASKED = np.array([[0, 1, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]], bool)


@pytest.mark.parametrize("family", ["Deberta", "DebertaV2"])
@pytest.mark.parametrize("kind", TASKS)
def test_fine_tuned_models(family, kind, tmp_path):
    """A folder of transformers loads with its head: loss and every gradient agree; and what we write opens there."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    architecture, more, targets = TASKS[kind]
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pooler_hidden_act": "gelu"}
    values = SIZES | BOTH | ALONE | none | {"vocab_size": len(tiny_tasks.TOKENIZER)}
    reference = random_model(Peer(family + architecture, values | more, {}), 0)
    reference.save_pretrained(tmp_path / "theirs")
    tiny_tasks.TOKENIZER.save(tmp_path / "theirs")
    model, task, tokenizer, length = finetuned.load(tmp_path / "theirs", np.float64)
    ids = np.where(MASK, np.random.default_rng(0).integers(1, len(tokenizer), (3, 7)), 0)
    batch = Batch(ids, MASK, np.zeros_like(ids), MASK if kind == "qa" else ASKED, targets)
    loss, _ = task.loss(model, batch, Run(), len(targets))

    output = reference(torch.tensor(ids), attention_mask=torch.tensor(MASK.astype(int)))
    entropy, labels = torch.nn.functional.cross_entropy, torch.tensor(targets)
    if kind == "classify":
        wanted = entropy(output.logits, labels)
    elif kind == "tag":
        wanted = entropy(output.logits[torch.tensor(ASKED)], labels)
    else:
        sides = (output.start_logits, output.end_logits)
        outside = torch.tensor(~MASK)
        wanted = sum(entropy(s.masked_fill(outside, -1e30), labels[:, i]) for i, s in enumerate(sides)) / 2
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-9)
    twin = deepcopy(model)
    twin.flat.data[...] = model.flat.grad
    found = twin.file_tensors(task.architecture)
    gradients = {name: p.grad.numpy() for name, p in reference.named_parameters() if p.grad is not None}
    assert set(gradients) == set(found)
    largest = max(np.abs(array).max() for array in gradients.values())
    for name, array in gradients.items():
        agree(found[name], array, name, 1e-6 * largest)

    finetuned.save(tmp_path / "ours", model, task, tokenizer, length)
    again, report = getattr(transformers, family + architecture).from_pretrained(
        tmp_path / "ours", output_loading_info=True, dtype=torch.float64
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, parameter in reference.state_dict().items():
        np.testing.assert_allclose(again.state_dict()[name].numpy(), parameter.numpy(), rtol=1e-6)  # some are float32
