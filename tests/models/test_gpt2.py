"""GPT-2: what its files may hold, what its switches change, and its memory of earlier tokens."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.files.model_folder import read_tensors, write_folder
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.layers.encoder import Recompute
from mini_bert.models.base import Inputs
from mini_bert.models.gpt2 import GPT2, GPT2Config
from tests.models.test_bert import package_folder

GOLDEN = Path(__file__).parent.parent / "golden" / "gpt2"
CONFIG = GPT2Config(31, 11, 10, 3, 2, 17)
IDS = np.random.default_rng(1).integers(0, 31, (2, 9))


def scattered(config=CONFIG, **options):
    model = GPT2(config, dtype=np.float64, **options)
    model.flat.data[...] += 0.2 * np.random.default_rng(0).normal(size=model.flat.data.size)
    return model


def pieces(model, ids, cuts, memory=()):
    """The hidden states of each piece, with the memory of those before."""
    for first, last in zip((0, *cuts), (*cuts, ids.shape[1]), strict=True):
        hidden, cache = model.encode_inputs(Inputs(ids[:, first:last], memory=memory), Run())
        memory = cache.memory
        yield hidden


@pytest.mark.parametrize("cuts", [(), (4,), (1, 2, 3, 8), tuple(range(1, 9))])
@pytest.mark.parametrize("method", ["plain", "lean"])
def test_a_text_in_pieces_gives_the_numbers_of_the_whole(cuts, method):
    """With the keys and values of earlier tokens, a token at a time gives what all give at once."""
    model = scattered()
    for block in model.encoder.blocks:
        block.attention.method = method
    whole, cache = model.encode(IDS)
    assert cache.memory is None
    np.testing.assert_allclose(np.concatenate(list(pieces(model, IDS, cuts)), 1), whole, rtol=1e-11, atol=1e-13)


def test_only_the_last_row_of_a_piece():
    """Generation needs no other; the memory is the same."""
    model = scattered()
    whole, _ = model.encode(IDS)
    _, first = model.encode_inputs(Inputs(IDS[:, :5], memory=()), Run(), chosen=np.array([4, 9]))
    last, second = model.encode_inputs(Inputs(IDS[:, 5:], memory=first.memory), Run(), chosen=np.array([3, 7]))
    np.testing.assert_allclose(last, whole[:, -1], rtol=1e-11, atol=1e-13)
    assert [k.shape for k, _ in second.memory] == [(2, 2, 9, 5)] * 3


def test_two_continuations_of_one_memory():
    """A memory is an input: using it does not change it."""
    model = scattered()
    _, start = model.encode_inputs(Inputs(IDS[:, :5], memory=()), Run())
    for more in (IDS[:, 5:], IDS[:, 5:][::-1], IDS[:, 5:]):
        whole, _ = model.encode(np.concatenate([IDS[:, :5], more], 1))
        part, _ = model.encode_inputs(Inputs(more, memory=start.memory), Run())
        np.testing.assert_allclose(part, whole[:, 5:], rtol=1e-11, atol=1e-13)


def test_padding_after_a_memory():
    """The mask is that of the new tokens; all earlier ones are seen."""
    model = scattered()
    _, start = model.encode_inputs(Inputs(IDS[:, :5], memory=()), Run())
    mask = np.array([[True] * 4, [True, True, False, False]])[:, None, None]
    part, _ = model.encode_inputs(Inputs(IDS[:, 5:], mask, memory=start.memory), Run())
    whole, _ = model.encode(IDS)
    np.testing.assert_allclose(part[1, :2], whole[1, 5:7], rtol=1e-11, atol=1e-13)


def test_no_token_sees_the_future():
    model = scattered()
    whole, cache = model.encode(IDS)
    changed = IDS.copy()
    changed[:, 6:] = 0
    np.testing.assert_array_equal(model.encode(changed)[0][:, :6], whole[:, :6])
    for weights in cache.attention_weights():
        assert not np.triu(weights, 1).any()


def test_given_positions():
    """A text on the right of padding, with positions that count its own tokens, gives what it gives alone."""
    model = scattered()
    ids = np.concatenate([np.zeros((2, 2), int), IDS], 1)
    positions = np.tile(np.maximum(np.arange(11) - 2, 0), (2, 1))
    mask = (np.arange(11) >= 2)[None, None, None].repeat(2, 0)
    found, cache = model.encode_inputs(Inputs(ids, mask, positions=positions), Run())
    np.testing.assert_allclose(found[:, 2:], model.encode(IDS)[0], rtol=1e-11, atol=1e-13)
    dhidden = np.zeros_like(found)
    dhidden[:, 2:] = 1
    model.encode_backward(dhidden, cache)
    given = model.flat.grad.copy()
    model.zero_grad()
    hidden, cache = model.encode(IDS)
    model.encode_backward(np.ones_like(hidden), cache)
    np.testing.assert_allclose(given, model.flat.grad, rtol=1e-9, atol=1e-11)


def test_what_a_memory_cannot_do():
    model = scattered()
    _, cache = model.encode_inputs(Inputs(IDS, memory=()), Run())
    with pytest.raises(ValueError, match="9 earlier tokens and 3 new ones are 12, but this model has 11 positions"):
        model.encode_inputs(Inputs(IDS[:, :3], memory=cache.memory), Run())
    model.encoder.blocks[1] = Recompute(model.encoder.blocks[1])
    with pytest.raises(ValueError, match="gradient checkpointing keeps no keys and values"):
        model.encode_inputs(Inputs(IDS, memory=()), Run())


def test_each_switch_changes_the_results():
    """Every field that is said to affect the results does."""
    plain, _ = scattered().encode(IDS)
    for change in (
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"activation_function": "relu"},
        {"layer_norm_epsilon": 0.1},
    ):
        other, _ = scattered(replace(CONFIG, **change)).encode(IDS)
        assert np.abs(other - plain).max() > 1e-3, change
    same, _ = scattered(replace(CONFIG, reorder_and_upcast_attn=True)).encode(IDS)
    np.testing.assert_array_equal(same, plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add_cross_attention": True}, "add_cross_attention is True, but only False is supported for GPT-2"),
        ({"is_causal": False}, "is_causal is False, but only True is supported"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"activation_function": "mish"}, "activation_function is 'mish', expected one of the activations relu"),
        ({"n_inner": 0}, "n_inner is 0, expected a whole number"),
        ({"alibi": True}, "alibi is True, but a GPT-2 here has no such field.*remove it from config.json"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}, but a GPT-2"),
        ({"n_embed": 12}, "unknown field 'n_embed'; did you mean 'n_embd'"),
        ({"n_head": 3}, r"n_embd \d+ cannot be split among 3 heads: n_head, 3, must divide"),
        ({"scale_attn_weights": "yes"}, "scale_attn_weights is 'yes', expected True or False"),
        ({"model_type": "gpt_neo"}, "model_type 'gpt_neo', expected 'gpt2'"),
    ],
)
def test_configs_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GPT2Config.from_dict(CONFIG.to_dict() | change)


@pytest.mark.parametrize("empty", [None, False, 0, "", [], {}])
def test_unknown_fields_that_are_off_are_ignored(empty):
    with pytest.warns(UserWarning, match="fields that a GPT-2 does not use: alibi"):
        assert GPT2Config.from_dict(CONFIG.to_dict() | {"alibi": empty}) == CONFIG


def test_published_configs_are_read():
    """As OpenAI's folder has it, with fields of older versions; and with the general names of sizes."""
    published = {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = GPT2Config.from_dict(published)
        named = GPT2Config.from_dict({"model_type": "gpt2", "hidden_size": 12, "num_attention_heads": 3,
                                      "num_hidden_layers": 2, "max_position_embeddings": 5})  # fmt: skip
    assert config == GPT2Config(bos_token_id=50256, eos_token_id=50256) and config.inner == 3072
    assert config.sizes().parameters == 124_439_808
    assert (named.n_embd, named.n_head, named.n_layer, named.n_positions) == (12, 3, 2, 5)


def test_three_names_of_the_number_of_positions():
    """Any of them is read; if two of them differ, both are named. transformers ignores n_ctx, which never differed."""
    base = {"model_type": "gpt2"}
    assert GPT2Config.from_dict(base | {"n_ctx": 512}).n_positions == 512
    assert GPT2Config.from_dict(base | {"n_ctx": None, "n_positions": 512}).n_positions == 512
    for one, other in (("n_ctx", "n_positions"), ("n_positions", "n_ctx"), ("n_ctx", "max_position_embeddings")):
        said = f"{one} is 512 and {other} is 1024, but both are names of the same field; leave out one of them"
        with pytest.raises(ValueError, match=said):
            GPT2Config.from_dict(base | {one: 512, other: 1024})


def test_older_files(tmp_path):
    """Names without the prefix, the causal mask among the tensors, no class in the config, the tied head repeated."""
    tensors = {
        name.removeprefix("transformer."): array for name, array in read_tensors(GOLDEN / "model.safetensors").items()
    }
    values = json.loads((GOLDEN / "config.json").read_text())
    del values["architectures"]
    for index in range(2):
        tensors[f"h.{index}.attn.bias"] = np.tri(11)[None, None]
        tensors[f"h.{index}.attn.masked_bias"] = np.array(-1e4)
    tensors["lm_head.weight"] = tensors["wte.weight"].copy()
    write_folder(tmp_path, values, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(tmp_path, np.float64)
    assert model.output_heads == ("next_word",)
    np.testing.assert_array_equal(model.flat.data, load_model(GOLDEN, np.float64).flat.data)

    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    write_folder(tmp_path, values, tensors)
    with pytest.warns(UserWarning, match="the head shares the token table"):
        load_model(tmp_path)
    tensors["multiple_choice_head.summary.weight"] = np.zeros((1, 10))
    write_folder(tmp_path, values | {"tie_word_embeddings": False}, tensors)
    with pytest.warns(UserWarning, match="no part of this model uses multiple_choice_head"):
        model = load_model(tmp_path, np.float64)
    np.testing.assert_array_equal(model.next_word.w.data.T, tensors["lm_head.weight"])


def test_heads_that_it_does_not_have():
    model = scattered(output_heads=())
    assert model.output_heads == ()
    for head, advice in (
        ("next_word", "load a GPT2LMHeadModel"),
        ("masked_words", "mini-bert generate"),
        ("pooler", "last"),
    ):
        with pytest.raises(ValueError, match=advice):
            model.output_head(head)


@pytest.mark.peers
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("next_word", [True, False])
def test_transformers_opens_what_we_write(tied, next_word, tmp_path):
    """Without warnings, and it computes the same."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    heads = ("next_word",) if next_word else ()
    model = scattered(replace(CONFIG, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0), output_heads=heads)
    model.save_pretrained(tmp_path)
    kind = transformers.GPT2LMHeadModel if next_word else transformers.GPT2Model
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("unexpected_keys", "missing_keys", "mismatched_keys"))
    with torch.no_grad():
        wanted = theirs.double().eval()(torch.tensor(IDS))[0].numpy()
    output, _ = model.forward(IDS)
    np.testing.assert_allclose(output.next_word if next_word else output.hidden, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["IgLM", "IgLM-S"])
def test_real_weights(name):
    """A published GPT-2 in float32, with and without padding: logits differ from transformers' by at most 1e-4."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = package_folder("iglm", "pytorch_model.bin", name)
    model, theirs = load_model(folder), transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = np.random.default_rng(0).integers(0, 33, (4, 96))
    for mask in (np.ones((4, 96), int), (np.arange(96) < np.array([[96], [31], [7], [1]])).astype(int)):
        output, _ = model.forward(ids, mask)
        with torch.no_grad():
            wanted = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
        difference = np.abs(output.next_word - wanted)[mask.astype(bool)].max()
        print(f"{name}: largest difference {difference:.1e} in logits up to {np.abs(wanted).max():.1f}")
        assert difference <= 1e-4
