"""Transformer-XL: the numbers of `transformers` 4.57.6, what its memory means, its config and its files."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import tests.finetuning.tiny_tasks as tiny
from mini_bert.finetuning.model import load, save, with_task
from mini_bert.finetuning.tasks.base import Batch
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.generate import Reader, generate_ids
from mini_bert.inference.loading import load_model
from mini_bert.inference.sampling import Sampling
from mini_bert.layers.base import Run
from mini_bert.models.base import NEXT_WORD
from mini_bert.models.loss import Term
from mini_bert.models.registry import load_config
from mini_bert.models.transformer_xl import PRESET, TransformerXL, TransformerXLConfig
from tests.models.family import agree, agree_on_gradients, stored_gradients

GOLDEN = Path(__file__).parents[1] / "golden" / "transformer_xl"  # made by make_transformer_xl.py
variants = pytest.mark.parametrize("variant", ["adaptive", "projected", "pre_norm", "untied", "no_memory"])
TINY = TransformerXLConfig(
    vocab_size=19, cutoffs=(7, 11), d_model=6, d_embed=8, n_head=3, d_head=5, d_inner=13, div_val=2, n_layer=2,
    mem_len=4, clamp_len=-1, same_length=False, dropout=0.0, tgt_len=5, init_std=0.5, proj_init_std=0.5,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(0, 19, (2, 8))


def golden(variant):
    model, expected = load_model(GOLDEN / variant, np.float64), load_file(GOLDEN / variant / "expected.safetensors")
    assert isinstance(model, TransformerXL)
    memory = [expected[name] for name in sorted(expected) if name.startswith("memory.")]
    return model, expected, model.check_inputs(expected["ids"])._replace(memory=memory or None)


@variants
def test_golden_outputs(variant):
    """Every hidden state, all attention weights, the memory for the next segment, every log-probability"""
    model, expected, inputs = golden(variant)
    hidden, cache = model.encode_inputs(inputs, Run())
    for index, state in enumerate(cache.hidden_states()):
        agree(state, expected[f"hidden.{index}"], f"hidden {index}")
    arrays = cache.arrays()
    for index in range(model.depth):
        parts = [arrays.get(f"{name}_{index}") for name in ("memory_weights", "attention_weights")]
        weights = np.concatenate([part for part in parts if part is not None], -1)
        agree(weights, expected[f"attention.{index}"], f"attention {index}")
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-12)
    assert (cache.memory is None) == (model.config.mem_len == 0)
    for index, state in enumerate(cache.memory or ()):
        agree(state, expected[f"next_memory.{index}"], f"memory {index}")
    log_p, _ = model.output_head(NEXT_WORD).forward(hidden, Run())
    agree(log_p, expected["log_p"], "log p")


@variants
@pytest.mark.parametrize("choose", [False, True])
def test_golden_loss_and_every_gradient(variant, choose):
    """At all rows, or at chosen ones"""
    loaded, expected, inputs = golden(variant)
    model = TransformerXL(loaded.config.with_dropout(0.0), loaded.output_heads, None, np.float64)
    model.flat.data[...] = loaded.flat.data
    labels = expected["labels"][:, 1:]  # the next word of every token but the last
    B, T = expected["ids"].shape
    real = np.flatnonzero(np.pad(labels >= 0, ((0, 0), (0, 1))))
    terms = [Term(NEXT_WORD, real, np.pad(labels, ((0, 0), (0, 1))).ravel()[real])]
    if not choose:  # a second term of all rows, which does not count
        terms.append(Term(NEXT_WORD, None, np.zeros(B * T, int), weight=0.0))
    loss, cache = model.loss_of(inputs, terms, Run(train=True))
    agree(np.array(loss), expected["loss"][0], "loss")
    model.loss_backward(cache)
    wanted = stored_gradients(expected)
    assert len(wanted) > 10 and agree_on_gradients(model, wanted, least=0)


@variants
def test_what_we_save_is_what_they_saved(variant, tmp_path):
    """The same tensors under the same names, biases that blocks share in every block, and the same settings."""
    model, _, _ = golden(variant)
    model.save_pretrained(tmp_path)
    ours, theirs = load_file(tmp_path / "model.safetensors"), file_tensors(GOLDEN / variant)
    for name, array in theirs.items():
        if (
            not name.startswith("crit.") or name not in model.copies()
        ):  # pytorch_model.bin also has tables of tied heads
            np.testing.assert_allclose(ours[name], array, rtol=1e-15, err_msg=name)  # they computed one: inv_freq
    settings = json.loads((GOLDEN / variant / "config.json").read_text())
    written = json.loads((tmp_path / "config.json").read_text())
    neutral = {"dtype", "eos_token_id", "sample_softmax", "attn_type"}
    assert {name: written[name] for name in settings if name not in neutral} == {
        name: value for name, value in settings.items() if name not in neutral
    }
    np.testing.assert_array_equal(load_model(tmp_path, np.float64).flat.data, model.flat.data)


def file_tensors(folder):
    from mini_bert.files.model_folder import read_folder

    return read_folder(folder)[1]


def test_without_a_head(tmp_path):
    model = TransformerXL(TINY, (), 1)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["TransfoXLModel"]
    again = load_model(tmp_path)
    assert again.output_heads == () and "word_emb.emb_layers.0.weight" in file_tensors(tmp_path)
    np.testing.assert_array_equal(again.flat.data, model.flat.data)
    with pytest.raises(ValueError, match="no head for the next word"):
        again.loss_of(again.check_inputs(IDS), [Term(NEXT_WORD, None, IDS.ravel())])


def test_the_published_classifier(tmp_path):
    """TransfoXLForSequenceClassification: the last token of each text, no bias. Loss and every gradient agree."""
    shutil.copytree(GOLDEN / "classifier", tmp_path, dirs_exist_ok=True)
    tiny.TOKENIZER.save(tmp_path)
    expected = load_file(tmp_path / "expected.safetensors")
    tuned = load(tmp_path, np.float64)
    model, task, ids = tuned.model, tuned.task, expected["ids"]
    assert task.name == "classify"
    batch = Batch(ids, ids > 0, np.zeros_like(ids), ids > 0, expected["labels"])
    loss, _ = task.loss(model, batch, Run(), 2)
    agree(np.array(loss), expected["loss"][0], "loss")
    twin = deepcopy(model)
    twin.flat.data[...] = model.flat.grad
    found, wanted = twin.file_tensors(task.architecture), {name for name in expected if name.startswith("grad.")}
    assert "grad.score.weight" in wanted
    for name in wanted:
        agree(found[name.removeprefix("grad.")], expected[name], name)
    save(tmp_path / "ours", model, task, tiny.TOKENIZER, 5)
    np.testing.assert_array_equal(load(tmp_path / "ours", np.float64).model.flat.data, model.flat.data)
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "ours"))
    assert set(ours) == set(theirs)


def test_a_head_that_was_never_published_comes_back(tmp_path):
    """Tagging: its weights have our names."""
    task = Tag(["O", "B-X", "I-X"])
    model = with_task(TransformerXL(replace(TINY, vocab_size=39)), task)
    save(tmp_path, model, task, tiny.TOKENIZER, 5)
    np.testing.assert_array_equal(load(tmp_path).model.flat.data, model.flat.data)


# ---------------------------------------------------------------------- memory


def test_writing_reads_one_token_at_a_time():
    """The scores of the next token after each token, with the memory of those before, are those of the whole text."""
    model = TransformerXL(replace(TINY, mem_len=9), dtype=np.float64)
    reader = Reader(model)
    single = [reader.read([token]) for token in IDS[0].tolist()]
    whole, _ = model.forward(IDS[:1])
    assert reader.memory[0].shape == (1, 9, 6)  # it began as zeros, and some of them are still there
    np.testing.assert_allclose(single[0], whole.next_word[0, 0], rtol=1e-9)
    empty = model.check_inputs(IDS[:1])._replace(memory=[np.zeros((1, 9, 6))] * 2)
    np.testing.assert_array_equal(model.encode_inputs(empty, Run())[0], whole.hidden)
    assert len(list(generate_ids(model, [3, 4], 30, Sampling(temperature=0)))) == 30


@pytest.mark.parametrize("mem_len", [0, 4])
def test_a_long_prompt_is_read_in_segments(mem_len, monkeypatch):
    """Attention needs memory for each pair of tokens, so a model without a limit reads no more than some at once."""
    monkeypatch.setattr("mini_bert.inference.generate.LONGEST", 8)
    model, sizes = TransformerXL(replace(TINY, mem_len=mem_len, tgt_len=5)), []
    encode = model.encode_inputs
    model.encode_inputs = lambda inputs, *rest: (sizes.append(inputs.ids.shape[1]), encode(inputs, *rest))[1]
    reader = Reader(model)
    for ids in ([3] * 20, *[[4]] * 12):
        assert np.isfinite(reader.read(ids)).all()
    assert sizes[:3] == [8, 8, 4] and max(sizes) == 8 and len(reader.ids) <= 8


@pytest.mark.parametrize("pre_norm", [False, True])
def test_two_segments_with_a_memory_are_one(pre_norm):
    """Reading in segments gives the hidden states of reading the whole, if the memory reaches back far enough."""
    model = TransformerXL(replace(TINY, mem_len=8, pre_lnorm=pre_norm), dtype=np.float64)
    nothing = [np.zeros((2, 0, 6))] * 2
    whole, _ = model.encode_inputs(model.check_inputs(IDS)._replace(memory=nothing), Run())
    memory, parts = nothing, []
    for part in (IDS[:, :3], IDS[:, 3:7], IDS[:, 7:]):
        hidden, cache = model.encode_inputs(model.check_inputs(part)._replace(memory=memory), Run())
        memory = cache.memory
        parts.append(hidden)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-9)
    assert [part.shape for part in memory] == [(2, 8, 6)] * 2


def test_no_token_sees_a_later_one():
    model = TransformerXL(TINY, dtype=np.float64)
    changed = IDS.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 19
    before, after = (model.encode(ids)[0] for ids in (IDS, changed))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert not np.isclose(before[:, 5:], after[:, 5:]).all(-1).any()


def test_the_same_length_for_all():
    """With same_length, every token sees the last mem_len tokens, its own included, and no others."""
    model = TransformerXL(replace(TINY, same_length=True), dtype=np.float64)
    _, cache = model.encode(IDS)
    seen = np.concatenate([cache["memory_weights_0"], cache["attention_weights_0"]], -1) > 0
    assert (seen.sum(-1) == 4).all()


def test_the_memory_gets_no_gradient_but_its_keys_do():
    """The gradient of W_k counts the keys of the memory; dx is for the tokens of this segment only."""
    model = TransformerXL(TINY, dtype=np.float64)
    grads = []
    for scale in (0, 1):
        memory = [scale * np.random.default_rng(1).normal(size=(2, 4, 6))] * 2
        hidden, cache = model.encode_inputs(model.check_inputs(IDS)._replace(memory=memory), Run())
        model.zero_grad()
        dx = model.encode_backward(np.arange(hidden.size).reshape(hidden.shape) % 7.0, cache)
        assert dx.shape == (2, 8, 6)
        grads.append(model.encoder.blocks[0].attention.qkv.w.grad.copy())
    assert not np.allclose(*grads)


@pytest.mark.parametrize("memory", [[np.zeros((2, 4, 6))], [np.zeros((3, 4, 6))] * 2, [np.zeros((2, 6))] * 2])
def test_a_memory_of_another_shape_is_refused(memory):
    model = TransformerXL(TINY)
    with pytest.raises(ValueError, match=r"expected 2 of shape \(2, any number, 6\)"):
        model.encode_inputs(model.check_inputs(IDS)._replace(memory=memory), Run())


# ---------------------------------------------------------------------- config


def test_the_published_config():
    """transfo-xl-wt103, as it was published"""
    published = {
        "adaptive": True, "architectures": ["TransfoXLLMHeadModel"], "attn_type": 0, "clamp_len": 1000,
        "cutoffs": [20000, 40000, 200000], "d_embed": 1024, "d_head": 64, "d_inner": 4096, "d_model": 1024,
        "div_val": 4, "dropatt": 0.0, "dropout": 0.1, "eos_token_id": 0, "ext_len": 0, "init": "normal",
        "init_range": 0.01, "init_std": 0.02, "layer_norm_epsilon": 1e-05, "mem_len": 1600,
        "model_type": "transfo-xl", "n_head": 16, "n_layer": 18, "pre_lnorm": False, "proj_init_std": 0.01,
        "proj_share_all_but_first": True, "same_length": True, "sample_softmax": -1,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 250}}, "tgt_len": 128,
        "tie_projs": [False, True, True, True], "tie_weight": True, "untie_r": True, "vocab_size": 267735,
    }  # fmt: skip
    config = TransformerXLConfig.from_dict(published)
    assert config == TransformerXLConfig()
    assert config.sizes().parameters == 285_205_322
    assert TransformerXLConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("attn_type", 1, "attn_type is 1, but only 0 is supported"),
        ("sample_softmax", 10, "sample_softmax is 10"),
        ("ext_len", 3, "ext_len is 3"),
        ("cutoffs", [11, 7], "expected increasing ids below vocab_size, 19"),
        ("cutoffs", [19], "expected increasing ids below vocab_size, 19"),
        ("cutoffs", 7, "expected a list of ids"),
        ("tie_projs", [True], "tie_projs has 1 entries, but there are 2 cutoffs and therefore 3 clusters"),
        ("tie_projs", "no", "tie_projs is 'no'"),
        ("d_embed", 3, "too small to be divided by div_val, 2, for each of 2 cutoffs"),
        ("d_model", 7, "d_model is 7, expected an even number"),
        ("clamp_len", "far", "clamp_len is 'far'"),
        ("adaptive", False, "adaptive is false, but cutoffs are"),
        ("init", "zeros", "init is 'zeros'"),
        ("untie_r", "yes", "untie_r is 'yes'"),
        ("mem_lenn", 3, "did you mean 'mem_len'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLConfig.from_dict({**TINY.to_dict(), "tie_projs": None, field: value})


def test_same_length_needs_a_memory():
    with pytest.raises(ValueError, match="same_length is true, but mem_len is 0"):
        replace(TINY, mem_len=0, same_length=True)


@pytest.mark.parametrize(
    "changes",
    [{}, {"untie_r": False}, {"tie_word_embeddings": False}, {"div_val": 1}, {"div_val": 1, "d_embed": 6},
     {"cutoffs": (), "tie_projs": None}, {"tie_projs": (False, False, True)}, {"pre_lnorm": True, "mem_len": 0}],
    ids=str,
)  # fmt: skip
def test_parameters_are_counted(changes, tmp_path):
    config = replace(TINY, **changes)
    model = TransformerXL(config, seed=2)
    assert model.get_parameter_count() == config.sizes().parameters
    model.save_pretrained(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).flat.data, model.flat.data)


def test_copies_that_differ_are_refused(tmp_path):
    from mini_bert.files.model_folder import write_folder

    model = TransformerXL(TINY)
    tensors = model.file_tensors()
    tensors["crit.out_layers.1.weight"] = tensors["transformer.word_emb.emb_layers.1.weight"] + 1
    write_folder(tmp_path, model.file_config(), tensors)
    with pytest.raises(ValueError, match=r"crit.out_layers.1.weight and word_emb.emb_layers.1.weight are shared, but"):
        load_model(tmp_path)


@pytest.mark.parametrize("divisor", [1, 2])
def test_a_new_model_can_start_from_word_frequencies(divisor):
    """Its loss is then near the entropy of the words; a trained one stays as it is."""
    model = TransformerXL(replace(TINY, div_val=divisor, init_std=0.01, proj_init_std=0.01), dtype=np.float64)
    counts = np.array([1000.0, 500, 0.5, 300, 200, 10, 0.5, 2, 0.5, 100, 0.5, 0.5, 0.5, 5, 0.5, 0.5])  # 16 of 19 words
    model.start_words(counts / counts.sum())
    p = np.exp(model.forward(IDS)[0].next_word[0, 0])
    np.testing.assert_allclose(p[:16], counts / counts.sum(), rtol=0.02)
    model.start_words(counts[::-1] / counts.sum())
    np.testing.assert_array_equal(np.exp(model.forward(IDS)[0].next_word[0, 0]), p)


def test_the_preset():
    """About the size of Mini-BERT, by its name"""
    assert load_config("transformer-xl") == PRESET
    assert (PRESET.depth, PRESET.width, PRESET.heads, PRESET.vocab_size) == (3, 192, 4, 8192)
