"""Fine-tuning compared with transformers and PyTorch: the same outputs, losses, gradients and steps from the same
weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_tasks as tiny

from mini_bert.evaluation.metrics import entity_scores
from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.model import TASKS, load, lr_multipliers, save, with_task
from mini_bert.finetuning.tasks.base import Batch
from mini_bert.layers.base import Run
from mini_bert.models.registry import MODELS, model_class
from mini_bert.training.optim import Adam

pytestmark = pytest.mark.peers
B, T, V = 3, 7, len(tiny.TOKENIZER)
SETTINGS = {
    "vocab_size": V, "hidden_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 13,
    "max_position_embeddings": 11, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "eager",
}  # fmt: skip
MASK = np.array([[1] * 7, [1] * 5 + [0] * 2, [1] * 4 + [0] * 3], bool)
TYPES = np.array([[0] * 3 + [1] * 4, [0] * 2 + [1] * 3 + [0] * 2, [0] * 7])
ASKED = np.array([[0, 1, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0]], bool)


def ids():
    return np.where(MASK, np.random.default_rng(0).integers(1, V, (B, T)), 0)  # torch freezes the row of [PAD], id 0


def theirs(kind: str, **more):
    """A random transformers model in float64, with weights far from their initial values"""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = getattr(transformers, kind)(transformers.BertConfig(**SETTINGS, **more)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def tensors(batch):
    import torch

    return {"input_ids": torch.tensor(batch.ids), "attention_mask": torch.tensor(batch.mask.astype(int)),
            "token_type_ids": torch.tensor(batch.types)}  # fmt: skip


CASES = {
    "classify": ("BertForSequenceClassification", {"num_labels": 3}, np.array([2, 0, 1])),
    "similarity": ("BertForSequenceClassification", {"num_labels": 1}, np.array([1.5, 0.0, 4.0])),
    "tag": ("BertForTokenClassification", {"num_labels": 3}, np.array([2, 0, 1, 1, 0, 2])),
    "qa": ("BertForQuestionAnswering", {}, np.array([[1, 3], [2, 2], [0, 3]])),
}


def loss_of_theirs(kind, model, batch):
    """The loss of transformers; for questions, all tokens except padding are candidates, as in ours below"""
    import torch

    targets = torch.tensor(batch.targets)
    if kind == "tag":
        labels = np.full(batch.ids.shape, -100)
        labels[batch.asked] = batch.targets
        targets = torch.tensor(labels)
    if kind != "qa":
        return model(**tensors(batch), labels=targets).loss
    output = model(**tensors(batch))
    outside = torch.tensor(~batch.asked)
    return sum(
        torch.nn.functional.cross_entropy(logits.masked_fill(outside, -1e30), targets[:, side])
        for side, logits in enumerate((output.start_logits, output.end_logits))
    ) / 2  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_loss_gradients_and_ten_steps_are_those_of_pytorch(kind, tmp_path):
    """For a folder written by transformers, loss and every gradient agree to 1e-9, and ten steps with layer-wise decay
    to 1e-7."""
    import torch

    architecture, more, targets = CASES[kind]
    peer = theirs(architecture, **more)
    peer.save_pretrained(tmp_path)
    tiny.TOKENIZER.save(tmp_path)
    tuned = load(tmp_path, dtype=np.float64)
    assert tuned.task.name == kind and (kind != "classify" or tuned.task.labels == ["LABEL_0", "LABEL_1", "LABEL_2"])
    batch = Batch(ids(), MASK, TYPES, MASK if kind == "qa" else ASKED, targets)

    model, task = tuned.model, tuned.task
    loss, _ = task.loss(model, batch, Run(), len(targets))
    wanted = loss_of_theirs(kind, peer, batch)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-9)
    params, found = model.named_params(), {}
    for entry in [*model.names(), *model.task_names(task.architecture)]:
        found |= entry.save(params[entry.ours].grad)
    largest = max(p.grad.abs().max().item() for p in peer.parameters())
    for name, parameter in peer.named_parameters():
        gradient = parameter.grad.numpy()
        scale = max(np.abs(gradient).max(), 1e-6 * largest)
        assert np.abs(found[name.removeprefix("bert.")] - gradient).max() <= 1e-9 * scale, name

    model.zero_grad()
    peer.zero_grad()
    adam = Adam(model.flat, lr_multipliers=lr_multipliers(model, 0.8))
    heights = {"embeddings": 0, "encoder.layer.0": 1, "encoder.layer.1": 2}
    groups = []
    for name, parameter in peer.named_parameters():
        height = next((value for start, value in heights.items() if name.removeprefix("bert.").startswith(start)), 3)
        decay = 0.01 if parameter.ndim > 1 else 0.0
        groups.append({"params": [parameter], "lr": 1e-3 * 0.8 ** (3 - height), "weight_decay": decay})
    reference = torch.optim.AdamW(groups)
    for _ in range(10):
        loss, _ = task.loss(model, batch, Run(), len(targets))
        adam.step(1e-3)
        model.zero_grad()
        reference.zero_grad()
        wanted = loss_of_theirs(kind, peer, batch)
        wanted.backward()
        reference.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-7)


@pytest.mark.parametrize("kind", CASES)
def test_transformers_opens_what_we_write(kind, tmp_path):
    """There is no missing or unexpected tensor; labels and logits are the same."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    task = {
        "classify": finetuned.Classify(["bad", "fine", "good"], ("cls",), dense=True),
        "similarity": finetuned.Similarity(0, 5, pooling=("cls",), dense=True),
        "tag": finetuned.Tag(["B-X", "I-X", "O"]),
        "qa": finetuned.Answer(),
    }[kind]
    model = with_task(tiny.encoder("bert"), task, dropout=0.1, seed=1)
    model.flat.data[...] += 0.2 * np.random.default_rng(0).normal(size=model.flat.data.size).astype(np.float32)
    save(tmp_path, model, task, tiny.TOKENIZER, 24)
    peer, report = getattr(transformers, CASES[kind][0]).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    if kind in ("classify", "tag"):
        assert peer.config.id2label == dict(enumerate(task.labels))
    peer.eval()
    batch = Batch(ids(), MASK, TYPES, np.ones((B, T), bool), CASES[kind][2])
    with torch.no_grad():
        output = peer(**tensors(batch))
    x, _ = model.encode(batch.ids, batch.mask, batch.types)
    if kind == "tag":
        ours, wanted = model.task.forward(x.reshape(B * T, -1), Run())[0].reshape(B, T, 3), output.logits
    elif kind == "qa":
        ours, wanted = model.task.forward(x, Run())[0], torch.stack([output.start_logits, output.end_logits], 1)
    else:
        ours, wanted = model.task.forward(x, Run(), asked=batch.asked)[0], output.logits
    np.testing.assert_allclose(ours, wanted.numpy(), atol=2e-5)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("the cat")["input_ids"] == tiny.TOKENIZER.encode(
        "the cat"
    )


def test_vectors_are_a_bert_model(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    task = finetuned.Similarity(0, 5, vectors=True)
    model = with_task(tiny.encoder("bert"), task)
    save(tmp_path, model, task, tiny.TOKENIZER, 24)
    peer = transformers.BertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    batch = Batch(ids(), MASK, TYPES, MASK, np.zeros(B))
    with torch.no_grad():
        wanted = peer(**tensors(batch)).last_hidden_state.numpy()
    np.testing.assert_allclose(model.encode(batch.ids, batch.mask, batch.types)[0], wanted, atol=2e-5)


def test_seqeval_agrees_on_our_predictions():
    """The entity F1 of a tagger's predictions equals that of seqeval on the same tags."""
    seqeval = pytest.importorskip("seqeval.metrics")
    task = finetuned.Tag(["B-LOC", "B-PER", "I-PER", "O"])
    rng = np.random.default_rng(0)
    examples = [tiny.Tagged(["w"] * n, rng.choice(task.labels, n).tolist(), 1) for n in rng.integers(1, 9, 50)]
    predictions = [rng.random((len(example.words), 4)) + 0.7 * np.eye(4)[list(map(task.labels.index, example.tags))]
                   for example in examples]  # fmt: skip
    truth, guesses = [example.tags for example in examples], [task.tags(part) for part in predictions]
    found = task.scores(examples, predictions)
    assert found["f1"] == pytest.approx(seqeval.f1_score(truth, guesses), abs=1e-9)
    assert found["f1"] == entity_scores(truth, guesses).micro.f1 and 0.2 < found["f1"] < 0.95


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "transfo-xl"])  # which transformers 5 left out
def test_transformers_has_the_classes_that_we_name(kind):
    transformers = pytest.importorskip("transformers")
    model = model_class({"model_type": kind})
    for task in ("Model", *(one.architecture for one in TASKS.values())):
        named = model.task_class(task)
        assert hasattr(transformers, named) if named else kind == "mini_bert"
