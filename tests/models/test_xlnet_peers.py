"""XLNet agrees with `transformers` in every output, the loss and every gradient, to 1e-9 in float64."""

import itertools
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tests.finetuning.tiny_tasks as tiny
from mini_bert.finetuning.model import load, save, with_task
from mini_bert.finetuning.tasks.base import Batch as TaskBatch
from mini_bert.finetuning.tasks.base import Item, packed
from mini_bert.finetuning.tasks.classify import Classify, sentence_scores
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.loss import Term
from mini_bert.models.xlnet import XLNet, XLNetConfig
from tests.models.family import Peer, agree, as_tensor, compare_gradients, random_model

pytestmark = pytest.mark.peers
TINY = {"vocab_size": 29, "d_model": 14, "n_layer": 3, "n_head": 2, "d_inner": 11, "dropout": 0.1}
B, T, M, N = 4, 7, 5, 3  # N words of each sequence are predicted


@pytest.fixture(autouse=True)
def float64(monkeypatch):
    """The reference computes its waves in float32, whatever the model's dtype; here in float64."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


class Batch(NamedTuple):
    ids: np.ndarray
    mask: np.ndarray | None
    types: np.ndarray | None
    memory: list[np.ndarray] | None
    order: np.ndarray | None
    chosen: np.ndarray  # (B,N) the predicted places
    targets: np.ndarray  # (B,N)

    def theirs(self) -> dict[str, Any]:
        """The arguments of their forward. perm_mask[i,j]: i does not see j; target_mapping: one-hot rows."""
        given: dict[str, Any] = {"input_ids": self.ids, "attention_mask": self.mask, "token_type_ids": self.types}
        if self.order is not None:
            later = self.order[:, None, :] > self.order[:, :, None]  # [b,i,j]: j comes after i
            given["perm_mask"] = (later | np.eye(T, dtype=bool)).astype(float)
            given["target_mapping"] = np.eye(T)[self.chosen]
        if self.memory is not None:
            given["mems"] = [as_tensor(part.swapaxes(0, 1)) for part in self.memory]
        return {name: as_tensor(array) if isinstance(array, np.ndarray) else array
                for name, array in given.items() if array is not None}  # fmt: skip

    def ours(self, model: XLNet) -> Any:
        inputs = model.check_inputs(self.ids, self.mask, self.types)
        return inputs._replace(memory=self.memory, order=self.order)

    @property
    def rows(self) -> np.ndarray:
        return (self.chosen + T * np.arange(B)[:, None]).ravel()


def batch(padded: bool, types: bool, remembered: bool, ordered: bool, depth: int = 3, width: int = 14) -> Batch:
    rng = np.random.default_rng(0)
    lengths = np.array([7, 5, 6, 4]) if padded else np.full(B, T)
    mask = (np.arange(T) >= T - lengths[:, None]).astype(int)  # padding on the left
    order, chosen = np.zeros((B, T), int), np.zeros((B, N), int)
    for b, length in enumerate(lengths):
        chosen[b] = T - length + 1 + np.sort(rng.permutation(length - 1)[:N])  # the first token is context
        order[b, chosen[b]] = 1 + rng.permutation(N)
    return Batch(
        rng.integers(0, 29, (B, T)),
        mask if padded else None,
        rng.integers(0, 3, (B, T)) if types else None,
        [rng.normal(size=(B, M, width)) for _ in range(depth)] if remembered else None,
        order if ordered else None,
        chosen,
        rng.integers(0, 29, (B, N)),
    )


SWITCHES = [
    {},
    {"attn_type": "uni", "ff_activation": "relu", "tie_word_embeddings": False},
    {"attn_type": "uni", "same_length": True, "clamp_len": 3, "mem_len": 4, "n_layer": 2},
    {"bi_data": True, "clamp_len": 2, "layer_norm_eps": 1e-3, "reuse_len": 3, "mem_len": None, "n_layer": 1},
    {"n_head": 7, "d_model": 28, "mem_len": 6, "reuse_len": 4, "ff_activation": "gelu_new"},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize(
    ("padded", "types", "remembered", "ordered"),
    [*itertools.product([False, True], [True], [False, True], [False, True]), (False, False, True, True)],
)
def test_outputs_loss_and_gradients(switches, padded, types, remembered, ordered, tmp_path):
    """With and without padding, segments, memory and an order of prediction; both streams."""
    theirs = random_model(Peer("XLNetLMHeadModel", TINY | switches, {}), 0)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path, np.float64)
    assert isinstance(ours, XLNet)
    given = batch(padded, types, remembered, ordered, ours.depth, ours.width)
    if ours.config.same_length and ordered and not remembered:
        pytest.skip("then a query sees no key: the reference gives all the same weight, we give them none")
    wanted = their_outputs(theirs, given)

    inputs = given.ours(ours)
    hidden, cache = ours.encode_inputs(inputs, Run())
    arrays, streams = cache.arrays(), 2 if ordered else 1
    states = [state.detach().numpy() for state in wanted.hidden_states]
    weights = [w if isinstance(w, tuple) else (w,) for w in wanted.attentions]
    for index in range(ours.depth):
        agree(arrays[f"block_input_{index}"], states[streams * index], f"input of block {index}")
        agree(all_weights(arrays, "", index), weights[index][0].detach().numpy(), f"weights {index}")
        if ordered:
            own = arrays[f"query_stream_input_{index}"][given.rows].reshape(B, N, -1)
            agree(own, states[2 * index + 1], f"query stream {index}")
            at = given.chosen[:, None, :, None]
            ours_at, theirs_at = (
                np.take_along_axis(w, at, 2)
                for w in (all_weights(arrays, "query_stream_", index), weights[index][1].detach().numpy())
            )
            agree(ours_at, theirs_at, f"weights of the query stream {index}")
        agree(cache.memory[index], wanted.mems[index].detach().numpy().swapaxes(0, 1), f"memory {index}")
    last = hidden.reshape(B * T, -1)[given.rows].reshape(B, N, -1) if ordered else hidden
    agree(last, states[-1], "hidden")
    agree(ours.output_head(MASKED_WORDS).forward(last, Run())[0], wanted.logits.detach().numpy(), "logits")

    torch = pytest.importorskip("torch")
    logits = wanted.logits if ordered else torch.take_along_dim(wanted.logits, as_tensor(given.chosen)[..., None], 1)
    loss = torch.nn.functional.cross_entropy(logits.reshape(B * N, -1), as_tensor(given.targets.ravel()))
    loss.backward()
    found, cache = ours.loss_of(inputs, [Term(MASKED_WORDS, given.rows, given.targets.ravel())], Run())
    agree(np.array(found), np.array(loss.item()), "loss")
    ours.loss_backward(cache)
    compare_gradients(ours, theirs)


def their_outputs(theirs, given: Batch) -> Any:
    """Sequence by sequence with attn_type "uni", because the reference fails to add its masks for more than one."""
    options = {"output_hidden_states": True, "output_attentions": True}
    if theirs.config.attn_type == "bi":
        return theirs(**given.theirs(), **options)
    torch = pytest.importorskip("torch")
    singles = []
    for b in range(B):
        parts = {name: None if array is None else array[b : b + 1] for name, array in given._asdict().items()
                 if name != "memory"}  # fmt: skip
        memory = None if given.memory is None else [part[b : b + 1] for part in given.memory]
        singles.append(theirs(**Batch(**parts, memory=memory).theirs(), **options))

    def joined(name: str, axis: int = 0) -> list[Any]:
        return [torch.cat(parts, axis) for parts in zip(*(getattr(single, name) for single in singles), strict=True)]

    attentions = [
        tuple(torch.cat(stream) for stream in zip(*layers, strict=True)) if isinstance(layers[0], tuple)
        else torch.cat(layers)
        for layers in zip(*(single.attentions for single in singles), strict=True)
    ]  # fmt: skip
    logits = torch.cat([single.logits for single in singles])
    return SimpleNamespace(logits=logits, hidden_states=joined("hidden_states"), mems=joined("mems", 1),
                           attentions=attentions)  # fmt: skip


def all_weights(arrays, stream, index):
    """Those of the memory and of the tokens"""
    parts = [arrays.get(f"{stream}{name}_{index}") for name in ("memory_weights", "attention_weights")]
    return np.concatenate([part for part in parts if part is not None], -1)


def test_shared_biases(tmp_path):
    """With untie_r false, all blocks have the same biases. The reference has equal copies; their gradients add up."""
    transformers = pytest.importorskip("transformers")
    config = XLNet.config_class(**TINY, untie_r=False)
    ours = XLNet(config, dtype=np.float64)
    ours.flat.data[...] += 0.3 * np.random.default_rng(0).normal(size=ours.flat.data.size)
    ours.save_pretrained(tmp_path)
    again = load_model(tmp_path, np.float64)
    np.testing.assert_array_equal(again.flat.data, ours.flat.data)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).double().eval()
    for name, array in ours.file_tensors().items():
        theirs.get_parameter(name).data.copy_(as_tensor(array))  # it had read them as float32
    given = batch(True, True, True, True)
    logits = theirs(**given.theirs()).logits
    (logits**2).sum().backward()
    hidden, cache = ours.encode_inputs(given.ours(ours), Run(), given.rows)
    found, head = ours.masked_words.forward(hidden, Run())
    agree(found.reshape(B, N, -1), logits.detach().numpy(), "logits")
    ours.encode_backward(ours.masked_words.backward(2 * found, head, Run()), cache)
    attention = ours.encoder.blocks[0].attention
    for name, param in (("r_w_bias", attention.content_bias), ("r_r_bias", attention.distance_bias),
                        ("r_s_bias", attention.segments.bias)):  # fmt: skip
        total = sum(getattr(layer.rel_attn, name).grad for layer in theirs.transformer.layer)
        agree(param.grad, total.numpy(), name)


def test_what_we_save_opens(tmp_path):
    """Under the names that they expect, all of them used, and it computes the same."""
    transformers = pytest.importorskip("transformers")
    for heads, kind in (((MASKED_WORDS,), "XLNetLMHeadModel"), ((), "XLNetModel")):
        ours = XLNet(XLNet.config_class(**TINY), heads, 1, np.float64)
        folder = tmp_path / kind
        ours.save_pretrained(folder)
        theirs, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        given = batch(True, True, False, False)
        output = theirs.double().eval()(**given.theirs())
        hidden, _ = ours.encode(given.ids, given.mask, given.types)
        found = ours.masked_words.forward(hidden, Run())[0] if heads else hidden
        np.testing.assert_allclose(found, output[0].detach().numpy(), atol=1e-6)


# ---------------------------------------------------------------------- heads for tasks

TASKS = {
    "classify": ("XLNetForSequenceClassification", {"num_labels": 3}, np.array([2, 0, 1, 1])),
    "similarity": ("XLNetForSequenceClassification", {"num_labels": 1}, np.array([1.5, 0.0, 4.0, 2.0])),
    "tag": ("XLNetForTokenClassification", {"num_labels": 3}, np.array([2, 0, 1, 1, 0, 2])),
    "qa": ("XLNetForQuestionAnsweringSimple", {}, np.array([[1, 3], [4, 5], [6, 6], [3, 5]])),
}


@pytest.mark.parametrize("kind", TASKS)
def test_published_task_heads(kind, tmp_path):
    """A folder that they wrote is loaded; loss and every gradient agree; what we write, they open without a gap."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    architecture, more, targets = TASKS[kind]
    small = TINY | {"vocab_size": len(tiny.TOKENIZER), "dropout": 0.0, "summary_last_dropout": 0.0}
    theirs = random_model(Peer(architecture, small | more, {}), 0)
    theirs.save_pretrained(tmp_path / "theirs")
    tiny.TOKENIZER.save(tmp_path / "theirs")
    tuned = load(tmp_path / "theirs", dtype=np.float64)
    model, task = tuned.model, tuned.task
    assert task.name == kind
    given = batch(True, True, False, False)
    ids, mask = given.ids % small["vocab_size"], given.mask.astype(bool)
    asked = np.zeros((B, T), bool)
    asked.ravel()[[3, 9, 10, 17, 20, 26]] = True
    items = TaskBatch(ids, mask, given.types, mask if kind == "qa" else asked, targets, summary=np.full(B, T - 1))
    loss, _ = task.loss(model, items, Run(), len(targets))
    wanted = their_task_loss(kind, theirs, items)
    wanted.backward()
    agree(np.array(loss), np.array(wanted.item()), "loss")
    twin = deepcopy(model)
    twin.flat.data[...] = model.flat.grad
    found = twin.file_tensors(task.architecture)
    largest = max(p.grad.abs().max().item() for p in theirs.parameters() if p.grad is not None)
    for name, parameter in theirs.named_parameters():
        if parameter.grad is not None:
            agree(found[name], parameter.grad.numpy(), name, 1e-6 * largest)

    save(tmp_path / "ours", model, task, tiny.TOKENIZER, 7)
    again, report = getattr(transformers, architecture).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        assert their_task_loss(kind, again.double().eval(), items).item() == pytest.approx(loss, rel=1e-5)
    np.testing.assert_array_equal(load(tmp_path / "ours", np.float64).model.flat.data, model.flat.data)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_classifier_pools_the_same_token(chosen, tmp_path):
    """With a tokenizer that puts [CLS] first and pads on the right, we save summary_type "first", and transformers
    computes the same scores. A config that says "last" is followed, whatever the tokenizer."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = XLNet(XLNetConfig(len(tiny.TOKENIZER), 14, 3, 2, 11, initializer_range=0.3), (), 1, np.float64)
    task = Classify(["no", "yes", "perhaps"], ["cls"], True)
    tuned = with_task(model, task, 0.0, 2, tiny.TOKENIZER if chosen else None)
    assert tuned.config.summary_type == ("first" if chosen else "last")
    rows = [tiny.TOKENIZER.ids([text], special=False)[0] for text in ("good film", "the film was very bad and old")]
    longest = max(map(len, rows)) + 2
    items = [Item(n, *packed(tiny.TOKENIZER, row, None, longest)[:2], 0) for n, row in enumerate(rows)]
    given = task.batch(items if chosen else items[:1], tiny.TOKENIZER.padding)  # padding comes last: no last token
    save(tmp_path, tuned, task, tiny.TOKENIZER, longest)
    again = load(tmp_path, np.float64)
    assert again.model.config == tuned.config
    theirs = transformers.XLNetForSequenceClassification.from_pretrained(tmp_path).double().eval()
    assert theirs.config.summary_type == tuned.config.summary_type
    with torch.no_grad():
        mask = as_tensor(given.real.astype(float))
        wanted = theirs(as_tensor(given.ids), attention_mask=mask, token_type_ids=as_tensor(given.types)).logits
    scores, _ = sentence_scores(again.model, given, Run(), again.task.pooling)
    np.testing.assert_allclose(scores, wanted.numpy(), rtol=1e-5, atol=1e-6)


def their_task_loss(kind, theirs, items):
    torch = pytest.importorskip("torch")
    given = {"input_ids": items.ids, "attention_mask": items.mask.astype(float), "token_type_ids": items.types}
    output = theirs(**{name: as_tensor(array) for name, array in given.items()})
    targets, loss = as_tensor(items.targets), torch.nn.functional.cross_entropy
    if kind == "classify":
        return loss(output.logits, targets)
    if kind == "similarity":
        return ((output.logits[:, 0] - targets) ** 2).mean()
    if kind == "tag":
        return loss(output.logits[as_tensor(items.asked)], targets)
    outside = as_tensor(~items.asked)
    both = (output.start_logits, output.end_logits)
    return sum(loss(logits.masked_fill(outside, -1e30), targets[:, side]) for side, logits in enumerate(both)) / 2
