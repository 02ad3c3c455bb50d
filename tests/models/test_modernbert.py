"""ModernBERT: both forms of its config, what its switches change, and what its layers see."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.inference.loading import load_model
from mini_bert.models.modernbert import GLOBAL, LOCAL, ModernBert, ModernBertConfig

CONFIG = ModernBertConfig(31, 12, 17, 4, 2, max_position_embeddings=29, local_attention=4)
IDS = np.random.default_rng(1).integers(0, 31, (2, 13))
PUBLISHED = {  # as in the folder of ModernBERT-base
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0,
    "classifier_pooling": "mean", "cls_token_id": 50281, "decoder_bias": True, "deterministic_flash_attn": False,
    "embedding_dropout": 0.0, "eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128,
    "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 12,
    "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute", "sep_token_id": 50282,
    "tie_word_embeddings": True, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50368,
}  # fmt: skip


def scattered(config=CONFIG, **options):
    model = ModernBert(config, dtype=np.float64, **options)
    model.flat.data[...] += 0.3 * np.random.default_rng(0).normal(size=model.flat.data.size)
    return model


def rotary(full=160_000.0, near=10_000.0, kind="default"):
    return {GLOBAL: {"rope_type": kind, "rope_theta": full}, LOCAL: {"rope_type": "default", "rope_theta": near}}


def test_the_published_config():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = ModernBertConfig.from_dict(PUBLISHED)
    assert config == replace(ModernBertConfig(), classifier_pooling="mean")
    assert config.kinds[:4] == (GLOBAL, LOCAL, LOCAL, GLOBAL) and config.kinds.count(GLOBAL) == 8
    assert config.sizes().parameters == 149_655_232 and config.reach == 64
    written = config.to_dict()
    assert written["rope_parameters"] == rotary() and written["global_attn_every_n_layers"] == 3
    assert written["layer_types"][:2] == [GLOBAL, LOCAL] and ModernBertConfig.from_dict(written) == config


def test_both_forms_of_a_config_mean_the_same():
    sizes = {"model_type": "modernbert", "num_hidden_layers": 4}
    older = {"global_attn_every_n_layers": 2, "global_rope_theta": 50.0, "local_rope_theta": 7.0}
    newer = {"layer_types": [GLOBAL, LOCAL] * 2, "rope_parameters": rotary(50.0, 7.0)}
    one, other = ModernBertConfig.from_dict(sizes | older), ModernBertConfig.from_dict(sizes | newer)
    assert one == other and one.kinds == (GLOBAL, LOCAL, GLOBAL, LOCAL)
    assert (one.global_rope_theta, one.local_rope_theta) == (50.0, 7.0)
    assert ModernBertConfig.from_dict(one.to_dict()) == one
    mixed = ModernBertConfig.from_dict(sizes | {"layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL]})
    assert "global_attn_every_n_layers" not in mixed.to_dict() and mixed.kinds[2] == GLOBAL
    same = ModernBertConfig.from_dict(sizes | {"global_rope_theta": 9.0, "local_rope_theta": None})
    assert same.local_rope_theta == 9.0  # older files: None means the same as in global layers
    both = ModernBertConfig.from_dict(sizes | older | newer | {"global_attn_every_n_layers": None})
    assert both == ModernBertConfig.from_dict(sizes | older | newer) == one  # they agree
    assert ModernBertConfig.from_dict(sizes | {"rope_parameters": {GLOBAL: {"rope_theta": 8.0}}}).global_rope_theta == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": rotary(kind="yarn")}, "rope_type is 'yarn' for full_attention, but only 'default'"),
        ({"rope_parameters": 3}, "rope_parameters is 3, expected an object"),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling is .*, but only None is supported for ModernBERT"),
        (
            {"global_rope_theta": 5.0, "rope_parameters": rotary()},
            "global_rope_theta is 5.0, but rope_parameters says rope_theta 160000.0 for full_attention.*"
            "Leave out global_rope_theta if rope_parameters is right.*, or rope_parameters if not",
        ),
        ({"local_rope_theta": 5.0, "rope_parameters": rotary()}, "local_rope_theta is 5.0, but .* rope_theta 10000.0"),
        (
            {"global_attn_every_n_layers": 2, "layer_types": [GLOBAL, LOCAL, LOCAL, GLOBAL]},
            r"every_n_layers is 2, but layer_types says \['full_attention', 'sliding_attention', 'sliding_attention', ",
        ),
        ({"global_attn_every_n_layers": 0, "layer_types": [GLOBAL] * 4}, "global_attn_every_n_layers is 0, expected"),
        ({"layer_types": [GLOBAL]}, "for each of the 4 layers"),
        ({"layer_types": [GLOBAL, LOCAL, "chunked_attention", LOCAL]}, "chunked_attention"),
        ({"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max', expected 'cls' or 'mean'"),
        ({"num_attention_heads": 4}, "heads of width 3, but rotary positions need an even width"),
        ({"hidden_activation": "mish"}, "hidden_activation is 'mish', expected one of the activations"),
        ({"classifier_activation": "mish"}, "classifier_activation is 'mish', expected one of the activations"),
        ({"local_attention": -1}, "local_attention is -1"),
        ({"is_decoder": True}, "is_decoder is True, but only False is supported"),
        ({"norm_biass": True}, "did you mean 'norm_bias'"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000, expected at most"),
    ],
)
def test_configs_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ModernBertConfig.from_dict(CONFIG.to_dict() | change)


def test_each_switch_changes_the_results():
    plain, _ = scattered().forward(IDS)
    for change in (
        {"local_attention": 2}, {"layer_types": (GLOBAL,) * 4}, {"global_rope_theta": 5.0}, {"local_rope_theta": 5.0},
        {"hidden_activation": "relu"}, {"classifier_activation": "tanh"}, {"norm_eps": 0.1},
    ):  # fmt: skip
        other, _ = scattered(replace(CONFIG, **change)).forward(IDS)
        assert np.abs(other.masked_words - plain.masked_words).max() > 1e-3, change
    biased = replace(CONFIG, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)
    assert {name.rpartition(".")[2] for name in ModernBert(biased).named_params()} == {
        "table",
        "w",
        "b",
        "gamma",
        "beta",
    }
    assert [name for name in ModernBert(CONFIG).named_params() if name.endswith((".b", ".beta"))] == [
        "masked_words.decoder.b"
    ]


def test_local_layers_see_a_neighbourhood():
    """Two tokens on each side, and not the padding; global layers see everything."""
    model = scattered()
    mask = np.arange(13) < np.array([[13], [9]])
    _, cache = model.encode(IDS, mask)
    near = np.abs(np.arange(13)[:, None] - np.arange(13)) <= 2
    for kind, weights in zip(CONFIG.kinds, cache.attention_weights(), strict=True):
        seen = (near if kind == LOCAL else np.ones((13, 13), bool)) & mask[:, None, None]
        np.testing.assert_array_equal(weights[:, :, :9] > 0, np.broadcast_to(seen, weights.shape)[:, :, :9])


def test_a_shifted_text_gives_the_same_vectors():
    """Scores depend on distances alone: after padding on the left, a text gives what it gives at position 0."""
    model = scattered()
    shifted = np.concatenate([np.zeros((2, 5), int), IDS], 1)
    found, _ = model.encode(shifted, np.tile(np.arange(18) >= 5, (2, 1)))
    np.testing.assert_allclose(found[:, 5:], model.encode(IDS)[0], rtol=1e-9, atol=1e-11)


def test_a_fine_tuned_folder_holds_no_head_for_words(tmp_path):
    """It has `head.dense` like a masked language model, but no decoder."""
    from mini_bert.files.model_folder import write_folder

    model = scattered()
    values = model.file_config() | {"architectures": ["ModernBertForSequenceClassification"]}
    tensors = {name: array for name, array in model.file_tensors().items() if not name.startswith("decoder")}
    write_folder(tmp_path, values, tensors | {"classifier.weight": np.zeros((2, 12)), "classifier.bias": np.zeros(2)})
    with pytest.warns(UserWarning, match="no part of this model uses classifier"):
        encoder = load_model(tmp_path)
    assert encoder.output_heads == ()
    with pytest.raises(ValueError, match="fine-tuned as ModernBertForSequenceClassification"):
        encoder.output_head("masked_words")


@pytest.mark.peers
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("heads", [("masked_words",), ()])
def test_transformers_opens_what_we_write(tied, heads, tmp_path):
    """Without missing or unexpected tensors, and it computes the same, up to the steps that it does in float32."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    types = (LOCAL, GLOBAL, LOCAL, LOCAL)
    config = replace(CONFIG, tie_word_embeddings=tied, layer_types=types, global_rope_theta=60.0, local_attention=6)
    model = scattered(config, output_heads=heads)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] is None
    kind = transformers.ModernBertForMaskedLM if heads else transformers.ModernBertModel
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("unexpected_keys", "missing_keys", "mismatched_keys"))
    mask = (np.arange(13) < np.array([[13], [9]])).astype(int)
    with torch.no_grad():
        wanted = theirs.eval()(torch.tensor(IDS), attention_mask=torch.tensor(mask))[0].numpy()
    output, _ = model.forward(IDS, mask)
    found = output.masked_words if heads else output.hidden
    np.testing.assert_allclose(found[mask == 1], wanted[mask == 1], rtol=1e-4, atol=2e-4)
