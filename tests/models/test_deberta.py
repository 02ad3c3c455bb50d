"""DeBERTa v1, v2 and v3: the numbers of `transformers`, and all that every model can do."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.files.model_folder import read_tensors, write_folder
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, REPLACED
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.loss import Term
from mini_bert.models.registry import model_class, preset
from mini_bert.models.sizes import Shape
from mini_bert.training.plan import Choice, caches
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import apply
from tests.models.family import agree, agree_on_gradients, stored_gradients
from tests.models.relatives import DEBERTA_PAIR as PAIR
from tests.models.relatives import DEBERTAS as MODELS
from tests.models.relatives import IDS, MASK, TYPES, V1, V2, V3, build, scattered, terms_of
from tests.training.test_plan import distinct

GOLDEN = Path(__file__).parent.parent / "golden"
WRITTEN = ["deberta", "deberta_v2", "deberta_v3"]
every_model = pytest.mark.parametrize("name", MODELS)


# ---------------------------------------------------------------------- the numbers of transformers


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.filterwarnings("error::UserWarning")
def test_golden_outputs_loss_and_every_gradient(name):
    """Outputs equal those of `transformers`, at padding, too, and the gradient of every tensor equals autograd's."""
    expected = read_tensors(GOLDEN / name / "expected.safetensors")
    model = load_model(GOLDEN / name, np.float64)
    ids, mask, types = (expected.get(key) for key in ("input_ids", "attention_mask", "token_type_ids"))
    output, _ = model.forward(ids, mask, types)
    agree(output.hidden, expected["hidden"], "hidden")
    agree(output.masked_words, expected["logits"], "logits")
    terms = [Term(MASKED_WORDS, expected["rows"], expected["targets"])]
    if REPLACED in model.output_heads:
        agree(output.replaced[..., 0], expected["replaced_logits"], "replaced")
        terms.append(Term(REPLACED, np.flatnonzero(mask), expected["replaced"][mask.astype(bool)], weight=3.0))
    loss, cache = model.loss_of(model.check_inputs(ids, mask, types), terms)
    assert abs(loss - expected["loss"][0]) < 1e-9 * expected["loss"][0]
    model.loss_backward(cache)

    wanted = stored_gradients(expected)
    assert agree_on_gradients(model, wanted) == set(wanted)
    assert (REPLACED in model.output_heads) == (name == "deberta_v3")


# ---------------------------------------------------------------------- what every model can do


@every_model
def test_the_cache_has_the_names_of_every_model(name):
    model = scattered(build(name))
    hidden, cache = model.encode(IDS, MASK, TYPES)
    states = cache.hidden_states()
    assert len(states) == model.depth + 1 and {state.shape for state in states} == {(3, 7, 10)}
    np.testing.assert_array_equal(states[-1], hidden)
    positions, _, distances = model.encoder.table_rows(7, Run())
    for block, before, after in zip(model.encoder.blocks, states, states[1:], strict=False):
        again, _ = block.forward(before, positions, Run(), distances=distances, mask=MASK[:, None, None])
        np.testing.assert_allclose(again, after, rtol=1e-12)
    for index, block in enumerate(model.encoder.blocks):
        weights, mix = cache[f"attention_weights_{index}"], getattr(block.attention, "mix_weights", None)
        sums = np.ones(2) if mix is None else mix.w.data.sum(0)  # talking heads mix distributions
        np.testing.assert_allclose(weights.sum(-1), np.broadcast_to(sums[:, None], (3, 2, 7)))
        assert {cache[f"{part}_{index}"].shape for part in ("query", "key", "value")} == {(3, 2, 7, 5)}
        assert cache[f"context_{index}"].shape == cache[f"attention_input_{index}"].shape == (3, 7, 10)
    assert cache["embedding_norm"].shape == (3, 7, 10) and ("convolution_norm_0" in cache) == (name == "v2")
    dx = model.encode_backward(np.ones_like(hidden), cache)
    assert dx.shape == model.embed_tokens(IDS).shape == (3, 7, model.config.embedding_width)


@every_model
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("checkpointing", [False, (1,)])
def test_the_plan_counts_its_arrays(name, activation, checkpointing):
    """The predicted floats and mask bytes match, part by part, for the loss on words or on every token."""
    config, kind, heads = MODELS[name]
    changes = {"hidden_act": activation} | ({"conv_act": activation} if kind is DebertaV2 else {})
    config = replace(config, **changes)
    head = MASKED_WORDS if MASKED_WORDS in heads else REPLACED
    model = kind(config, (head,))
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    term = Term(MASKED_WORDS, np.array([1, 4, 9, 20]), np.arange(4))
    if head == REPLACED:
        term = Term(REPLACED, None, IDS.ravel() % 2)
    _, cache = model.loss_of(model.check_inputs(IDS), [term], Run(train=True))
    sizes = replace(config, generator={"num_hidden_layers": 1}).sizes() if head == REPLACED else config.sizes()
    predicted = caches(sizes, Shape(3, 7, 4, 2), Choice(3, 1, checkpointing))
    seen: dict = {}
    blocks = cache.encoded.blocks
    table = (
        blocks[1].arrays[1] if checkpointing else blocks[1].attention.positions and blocks[1].attention.positions.table
    )
    found = [distinct((cache.encoded.embedding, blocks.positions, table), seen)]  # all blocks share one table
    found += [distinct(block, seen) for block in blocks]
    assert [*found, distinct(cache.terms, seen)] == predicted


# ---------------------------------------------------------------------- files

COMBINATIONS = [
    *((V1, Deberta, heads) for heads in ((MASKED_WORDS,), ())),
    (replace(V1, embedding_size=None, legacy=False, talking_head=True), Deberta, (MASKED_WORDS,)),
    (replace(V1, tie_word_embeddings=False), Deberta, (MASKED_WORDS,)),
    *((V2, DebertaV2, heads) for heads in ((MASKED_WORDS,), (), (REPLACED,))),
    (V3, DebertaV2, (MASKED_WORDS, REPLACED)),
    (replace(V2, tie_word_embeddings=False, relative_attention=False), DebertaV2, (MASKED_WORDS,)),
]


@pytest.mark.parametrize(("config", "kind", "heads"), COMBINATIONS)
@pytest.mark.filterwarnings("error::UserWarning")
def test_folders_come_back(config, kind, heads, tmp_path):
    """Every combination of heads survives exactly, and the folder names the class that opens it."""
    model = scattered(kind(config, heads))
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config and loaded.output_heads == model.output_heads
    np.testing.assert_array_equal(loaded.flat.data, model.flat.data)
    (architecture,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert architecture == model.family + ("ForMaskedLM" if MASKED_WORDS in heads else "Model")


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.filterwarnings("error::UserWarning")
def test_published_spellings_are_understood(name, tmp_path):
    """Without the prefix, with gamma and beta, with the positions that only the authors' decoder reads, with a head
    whose layout the config does not mention, and with the authors' spelling of "classifier"."""
    model = load_model(GOLDEN / name)
    tensors = {}
    for key, array in read_tensors(GOLDEN / name / "model.safetensors").items():
        key = key.removeprefix("deberta.").replace("mask_predictions.classifier", "mask_predictions.classifer")
        tensors[key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = array
    tensors["embeddings.position_ids"] = np.arange(11)[None]
    tensors.setdefault("embeddings.position_embeddings.weight", np.ones((11, 10)))
    values = json.loads((GOLDEN / name / "config.json").read_text())
    write_folder(tmp_path, {key: value for key, value in values.items() if key != "legacy"}, tensors)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config and loaded.config.legacy == (name != "deberta_v3")
    np.testing.assert_array_equal(loaded.flat.data, model.flat.data)


def test_one_matrix_holds_queries_keys_and_values_head_by_head():
    """Row 3d of in_proj.weight is the first row of the second head's query."""
    model = Deberta(V1)
    tensors = model.file_tensors()
    weight = tensors["deberta.encoder.layer.1.attention.self.in_proj.weight"]
    assert weight.shape == (30, 10) and "deberta.encoder.layer.1.attention.self.in_proj.query" not in tensors
    attention = model.encoder.blocks[1].attention
    for part, layer in enumerate((attention.query, attention.key, attention.value)):
        for head in range(2):
            rows = slice(15 * head + 5 * part, 15 * head + 5 * part + 5)
            np.testing.assert_array_equal(weight[rows], layer.w.data.T[5 * head : 5 * head + 5])
    narrow = Deberta(V1).keep_weights("bfloat16").file_tensors()
    np.testing.assert_allclose(narrow["deberta.encoder.layer.1.attention.self.in_proj.weight"], weight, rtol=0.01)


def test_both_heads_for_masked_words_in_one_file(tmp_path):
    """The config says which one to use, and the other one is named."""
    values = json.loads((GOLDEN / "deberta_v2/config.json").read_text())
    tensors = read_tensors(GOLDEN / "deberta_v2/model.safetensors")
    tensors["lm_predictions.lm_head.bias"] = np.zeros(31)
    write_folder(tmp_path, values, tensors)
    with pytest.warns(UserWarning, match=r"no part of this model uses lm_predictions\.lm_head\.bias"):
        assert load_model(tmp_path).config.legacy


# ---------------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (DebertaConfig, {"position_buckets": 256}, "position_buckets is 256, but only -1 is supported for DeBERTa;"),
        (DebertaConfig, {"share_att_key": True}, "share_att_key is True, but only False is supported"),
        (DebertaConfig, {"conv_kernel_size": 3}, "conv_kernel_size is 3, but only 0 is supported"),
        (DebertaConfig, {"norm_rel_ebd": "layer_norm"}, "norm_rel_ebd is 'layer_norm', but only 'none' is supported"),
        (DebertaConfig, {"pos_att_type": "c2p|p2p"}, r"pos_att_type is 'c2p\|p2p', expected some of 'c2p', 'p2c'"),
        (DebertaConfig, {"pos_att_type": ["c2p", "c2p"]}, "pos_att_type is .*each once"),
        (DebertaConfig, {"pos_att_type": 3}, "pos_att_type is 3"),
        (DebertaConfig, {"pooler_hidden_size": 3}, "pooler_hidden_size is 3, but hidden_size is 768"),
        (DebertaConfig, {"pooler_hidden_act": "mish"}, "pooler_hidden_act is 'mish', expected one of"),
        (DebertaConfig, {"max_relative_positions": "all"}, "max_relative_positions is 'all', expected a whole number"),
        (DebertaConfig, {"embedding_size": 0}, "embedding_size is 0, expected a whole number"),
        (DebertaConfig, {"talking_head": 1}, "talking_head is 1, expected True or False"),
        (DebertaConfig, {"is_decoder": True}, "is_decoder is True, but only False is supported for DeBERTa"),
        (DebertaConfig, {"relative_atention": True}, "did you mean 'relative_attention'"),
        (DebertaV2Config, {"talking_head": True}, "talking_head is True, but only False is supported for DeBERTa v2"),
        (DebertaV2Config, {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd is 'batch_norm', expected 'none' or"),
        (DebertaV2Config, {"conv_kernel_size": 4}, "conv_kernel_size is 4, expected an odd number"),
        (DebertaV2Config, {"conv_kernel_size": 3, "conv_groups": 5}, "conv_groups is 5, which does not divide"),
        (DebertaV2Config, {"conv_act": "mish"}, "conv_act is 'mish', expected one of the activations"),
        (DebertaV2Config, {"attention_head_size": 63}, "attention_head_size is 63, but 24 heads .* have 64"),
        (DebertaV2Config, {"relative_attention": True, "position_buckets": 1}, "position_buckets is 1, but"),
        (DebertaV2Config, {"relative_attention": True, "position_buckets": 256, "max_relative_positions": 100},
         "position_buckets is 256, but distances go up to 100; expected from 2 to 197"),
        (DebertaV2Config, {"generator": {"vocab_size": 3}}, "generator is .*, expected the sizes in which it differs"),
        (DebertaV2Config, {"generator": {"hidden_size": 7}}, "generator: hidden_size 7 cannot be split among 24"),
    ],
)  # fmt: skip
def test_what_would_change_the_result_is_refused_by_name(kind, change, message):
    with pytest.raises(ValueError, match=message):
        kind.from_dict({"model_type": kind.model_type, **change})


def test_the_authors_head_needs_embeddings_as_wide_as_the_blocks():
    with pytest.raises(ValueError, match=r"embedding_size is 5 and hidden_size is 10.*\"legacy\": true"):
        Deberta(replace(V1, legacy=False))


@pytest.mark.filterwarnings("error::UserWarning")
def test_published_configs_are_read():
    """The fields of the authors' config.json files; absent ones have their default."""
    base = {"model_type": "deberta", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_size": 768,
            "max_position_embeddings": 512, "relative_attention": True, "pos_att_type": "c2p|p2c",
            "layer_norm_eps": 1e-7, "padding_idx": 0, "max_relative_positions": -1, "position_biased_input": False,
            "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 0, "vocab_size": 50265}  # fmt: skip
    config = DebertaConfig.from_dict(base)
    assert config.pos_att_type == ("c2p", "p2c") and config.table() == {"span": 512}
    large = base | {"model_type": "deberta-v2", "position_buckets": 256, "norm_rel_ebd": "layer_norm",
                    "share_att_key": True, "pos_att_type": "p2c|c2p", "conv_kernel_size": 3, "conv_act": "gelu",
                    "attention_head_size": 64, "vocab_size": 128100}  # fmt: skip
    config = DebertaV2Config.from_dict(large)
    assert config.table() == {"span": 256, "buckets": 256, "largest": 512, "eps": 1e-7}
    assert DebertaV2Config.from_dict({"model_type": "deberta-v2", "pos_att_type": None}).pos_att_type == ()
    assert DebertaConfig(pos_att_type="none").pos_att_type == ()  # type: ignore[arg-type]
    assert DebertaV2Config.from_dict(config.to_dict()) == config and "embedding_size" not in config.to_dict()


@pytest.mark.parametrize("name", ["deberta", "deberta-v2", "deberta-v3"])
def test_presets_are_about_as_large_as_mini_bert(name):
    config = preset(name)
    heads = (MASKED_WORDS,) if config.to_dict().get("generator") is None else (REPLACED,)
    model = model_class(config.to_dict())(config, heads, seed=None)
    assert model.config_class.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert model.max_length == 64 and model.vocab_size == 8192 and 2.5e6 < model.get_parameter_count() < 6e6
    assert config.sizes().parameters == model.get_parameter_count()


@pytest.mark.parametrize(("config", "kind", "heads"), [case for case in COMBINATIONS if MASKED_WORDS in case[2]])
def test_the_parameters_are_counted(config, kind, heads):
    assert config.sizes().parameters == kind(config, (MASKED_WORDS,), None).get_parameter_count()


def test_missing_heads_are_named():
    with pytest.raises(ValueError, match="no head for replaced words: load a DeBERTa v3"):
        DebertaV2(V3).output_head(REPLACED)
    with pytest.raises(ValueError, match="DeBERTa is not trained on pairs of sentences"):
        Deberta(V1).loss(IDS, [1], [2], next_sentence=[0, 1, 0])


def test_a_classifier_has_its_published_pooler():
    assert Deberta(V1).sentence_head == {"activation_name": "gelu", "drops_input": False}
    config = replace(V1, pooler_hidden_act="relu", pooler_dropout=0.1)
    assert Deberta(config).sentence_head == {"activation_name": "relu", "drops_input": True}
    assert config.with_dropout(0.3).pooler_dropout == 0.1


# ---------------------------------------------------------------------- the head for replaced words, and a pair


def test_replaced_words_at_some_rows():
    """The loss at chosen rows is that of the same rows of all logits; each row also reads the first one."""
    model = scattered(DebertaV2(V3, (REPLACED,), dtype=np.float64))
    output, _ = model.forward(IDS, MASK)
    rows, targets = np.array([4, 9, 9, 0]), np.array([1, 0, 1, 1])
    loss, cache = model.loss_of(model.check_inputs(IDS, MASK), [Term(REPLACED, rows, targets)])
    z = output.replaced.reshape(-1)[rows]
    assert loss == pytest.approx(np.mean(np.log1p(np.exp(np.where(targets, -z, z)))))
    dx = model.loss_backward(cache)
    assert dx[0, 0].any() and dx[1, 0].any()  # the first tokens


def test_a_pair_shares_its_table_but_not_the_gradient():
    """The discriminator reads the generator's table plus its own difference, and its gradient goes to the latter."""
    pair = scattered(DebertaV2(PAIR, (REPLACED,), dtype=np.float64))
    generator = pair.generator
    assert pair.tokens.shared is generator.tokens.table and generator.flat is pair.flat
    assert pair.flat.data.size == pair.get_parameter_count() == PAIR.sizes().parameters
    assert "generator.tokens.table" in pair.named_params() and "tokens.shared" not in pair.named_params()
    table = generator.tokens.table.data + pair.tokens.difference.data
    np.testing.assert_allclose(pair.embed_tokens(IDS), table[IDS])

    one, other = pair.alone(), generator.alone()
    np.testing.assert_array_equal(one.tokens.table.data, table)
    for model in (one, other, generator, pair):
        inputs = model.check_inputs(IDS, MASK, TYPES)
        _, cache = model.loss_of(inputs, terms_of(model), Run())
        model.loss_backward(cache, run=Run())
    found = {name: param.grad for name, param in pair.named_params().items()}
    for name, param in one.named_params().items():
        np.testing.assert_allclose(found[name.replace("tokens.table", "tokens.difference")], param.grad, atol=1e-12)
    for name, param in other.named_params().items():
        np.testing.assert_allclose(found[f"generator.{name}"], param.grad, atol=1e-12)


def test_a_new_pair_starts_without_a_difference():
    pair = DebertaV2(PAIR, (REPLACED,))
    np.testing.assert_array_equal(pair.embed_tokens(IDS), pair.generator.embed_tokens(IDS))
    assert DebertaV2(PAIR).generator is None


def test_a_usual_generator_has_half_the_blocks():
    """As published; the width is that of the discriminator. A model of one block has a generator of one."""
    for depth, expected in ((12, 6), (3, 1), (1, 1)):
        own = replace(V3, num_hidden_layers=depth).with_generator().generator_config
        assert (own.depth, own.width, own.generator) == (expected, V3.width, None)


def test_a_new_generator_starts_from_the_table_of_the_discriminator():
    """The difference is 0, as in a new pair, and the discriminator computes the same."""
    pair = scattered(DebertaV2(PAIR, (REPLACED,)))
    one = pair.alone()
    again = one.with_new_generator(DebertaV2(PAIR, (REPLACED,), seed=5).generator)
    assert not again.tokens.difference.data.any() and again.config == PAIR
    np.testing.assert_array_equal(again.forward(IDS)[0].replaced, one.forward(IDS)[0].replaced)


def test_copies_of_a_pair():
    """A replica shares the weights, a copy and a pickle have their own; the table belongs to each one's generator."""
    pair = scattered(DebertaV2(PAIR, (REPLACED,)))
    wanted = pair.encode(IDS, MASK)[0]
    replica, copied, again = pair.replica(), deepcopy(pair), pickle.loads(pickle.dumps(pair))
    for twin in (replica, copied, again):
        assert twin.tokens.shared is twin.generator.tokens.table and twin.generator is not pair.generator
        np.testing.assert_array_equal(twin.encode(IDS, MASK)[0], wanted)
    pair.generator.tokens.table.data[...] *= 2
    assert not np.array_equal(replica.encode(IDS, MASK)[0], wanted)
    for twin in (copied, again):
        np.testing.assert_array_equal(twin.encode(IDS, MASK)[0], wanted)


def test_a_discriminator_has_two_scores_for_each_token():
    """The planner counts them, not those of a vocabulary; the generator before it has these."""
    sizes = preset("deberta-v3").sizes()
    assert (sizes.classes, sizes.before.classes) == (2, 8192)
    assert preset("deberta-v2").sizes().classes == 8192
