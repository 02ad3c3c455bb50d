"""RoBERTa, DistilBERT, ALBERT and ELECTRA: the numbers of `transformers`, and all that every model can do."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.info import architecture
from mini_bert.files.model_folder import read_tensors, write_folder
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.albert import PRESET as ALBERT_PRESET
from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.base import MASKED_WORDS, POOLER, REPLACED, SENTENCE_ORDER
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.loss import Term
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.models.roberta import Roberta, RobertaConfig
from mini_bert.models.sizes import Shape
from mini_bert.models.xlnet import XLNetConfig
from mini_bert.training.plan import Choice, caches
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import apply
from tests.models import relatives as tiny
from tests.models.family import agree, agree_on_gradients, stored_gradients
from tests.models.relatives import IDS, MASK, MODELS, TYPES, build, scattered
from tests.training.test_plan import distinct

GOLDEN = Path(__file__).parent.parent / "golden"
every_model = pytest.mark.parametrize("name", MODELS)
WRITTEN = ["roberta", "distilbert", "albert", "electra", "electra_generator"]


# ---------------------------------------------------------------------- the numbers of transformers


@pytest.mark.parametrize("name", WRITTEN)
def test_golden_outputs_loss_and_every_gradient(name):
    """Hidden states and logits equal those of `transformers`, and the gradient of every tensor equals autograd's."""
    expected = read_tensors(GOLDEN / name / "expected.safetensors")
    model = load_model(GOLDEN / name, np.float64)
    ids, mask, types = (expected.get(key) for key in ("input_ids", "attention_mask", "token_type_ids"))
    real = mask.astype(bool)
    output, _ = model.forward(ids, mask, types)
    agree(output.hidden[real], expected["hidden"][real], "hidden")
    terms = []
    if MASKED_WORDS in model.output_heads:
        agree(output.masked_words[real], expected["logits"][real], "logits")
        terms.append(Term(MASKED_WORDS, expected["rows"], expected["targets"]))
    if SENTENCE_ORDER in model.output_heads:
        agree(output.sentence_order, expected["sop_logits"], "sentence order")
        terms.append(Term(SENTENCE_ORDER, np.arange(3) * 7, expected["sentence_order"]))
    if REPLACED in model.output_heads:
        agree(output.replaced[real][:, 0], expected["logits"][real], "replaced")
        terms.append(Term(REPLACED, np.flatnonzero(mask), expected["replaced"][real]))
    loss, cache = model.loss_of(model.check_inputs(ids, mask, types), terms)
    assert abs(loss - expected["loss"][0]) < 1e-9 * expected["loss"][0]
    model.loss_backward(cache)

    wanted = stored_gradients(expected)
    assert agree_on_gradients(model, wanted) == set(wanted)


def test_positions_of_roberta_count_tokens():
    """From p + 1, where p is the id and the position of padding, on either side."""
    model = Roberta(replace(tiny.ROBERTA, pad_token_id=1))
    assert model.positions_of(np.array([[5, 6, 7], [5, 1, 1], [1, 1, 9]])).tolist() == [[2, 3, 4], [2, 1, 1], [1, 1, 2]]
    assert model.max_length == 11
    with pytest.raises(ValueError, match="12 tokens, but this model is configured for at most 11"):
        model.encode(np.full((1, 12), 5))
    model.encode(np.full((1, 11), 5))


def test_padding_on_the_left_moves_nothing_in_roberta():
    """Positions count real tokens, so padding before a text changes nothing."""
    model = scattered(Roberta(tiny.ROBERTA))
    alone, _ = model.encode(IDS[:1, :4])
    padded, _ = model.encode(np.concatenate([[[1, 1, 1]], IDS[:1, :4]], 1), np.array([[0, 0, 0, 1, 1, 1, 1]]))
    np.testing.assert_allclose(padded[:, 3:], alone, atol=1e-6)


def test_a_tokenizer_with_another_padding_id():
    """The longest text stays as long."""
    config = tiny.ROBERTA.with_padding(0)
    assert (config.pad_token_id, config.max_length, config.max_position_embeddings) == (0, 11, 12)


def test_albert_uses_its_blocks_again():
    """Layers of a group are one block, each with the blocks of its inner group; gradients are sums over all uses."""
    blocks = Albert(tiny.ALBERT).encoder.blocks
    assert [blocks.index(block) for block in blocks] == [0, 1, 2, 3]  # two groups of one layer, with two blocks each
    shared = Albert(replace(tiny.ALBERT, num_hidden_layers=5, inner_group_num=1)).encoder.blocks
    assert [shared.index(block) for block in shared] == [0, 0, 0, 3, 3]
    model = Albert(tiny.SHARED)
    assert len({id(block) for block in model.encoder.blocks}) == 1 and model.depth == 3
    weights = len({id(param) for param in model.encoder.named_params().values()})
    assert weights == len(Albert(replace(tiny.SHARED, num_hidden_layers=1)).encoder.named_params())
    assert Albert(tiny.SHARED).heights()["encoder.blocks.0.output_norm.gamma"] == 2  # the mean of 1, 2 and 3
    saved = model_class(ALBERT_PRESET.to_dict())(ALBERT_PRESET, seed=None).get_parameter_count()
    assert saved == ALBERT_PRESET.sizes().parameters


def test_one_type_leaves_nothing_to_tell_apart():
    """A tokenizer may number the texts of a pair; RoBERTa has one type, DistilBERT none."""
    for model in (Roberta(replace(tiny.ROBERTA, type_vocab_size=1)), DistilBert(tiny.DISTILBERT)):
        np.testing.assert_array_equal(model.encode(IDS, MASK, TYPES)[0], model.encode(IDS, MASK)[0])
    two = Roberta(tiny.ROBERTA)
    assert not np.array_equal(two.encode(IDS, MASK, TYPES)[0], two.encode(IDS, MASK)[0])


def test_distilbert_can_start_with_waves():
    """Columns 2i and 2i+1 of the table are the sine and the cosine of one frequency."""
    table = DistilBert(replace(tiny.DISTILBERT, sinusoidal_pos_embds=True)).positions.table.data
    places = np.arange(11)[:, None] / 10000 ** (2 * np.arange(5) / 10)
    np.testing.assert_allclose(table[:, ::2], np.sin(places), atol=1e-6)
    np.testing.assert_allclose(table[:, 1::2], np.cos(places), atol=1e-6)


# ---------------------------------------------------------------------- what every model can do


@every_model
def test_the_cache_has_the_names_of_every_model(name):
    """Each block turns one hidden state into the next; named arrays have their shapes."""
    model = scattered(build(name))
    hidden, cache = model.encode(IDS, MASK, TYPES)
    states = cache.hidden_states()
    assert len(states) == model.depth + 1 and {state.shape for state in states} == {(3, 7, 10)}
    np.testing.assert_array_equal(states[-1], hidden)
    for block, before, after in zip(model.encoder.blocks, states, states[1:], strict=False):
        np.testing.assert_allclose(block.forward(before, Run(), mask=MASK[:, None, None])[0], after, rtol=1e-12)
    assert cache["embedding_norm"].shape == (3, 7, model.norm.gamma.size)
    assert cache[f"attention_weights_{model.depth - 1}"].shape == (3, 2, 7, 7)
    dx = model.encode_backward(np.ones_like(hidden), cache)
    assert dx.shape == model.embed_tokens(IDS).shape


@every_model
@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
@pytest.mark.parametrize("checkpointing", [False, (1,)])
def test_the_plan_counts_its_arrays(name, activation, checkpointing):
    """The predicted floats and mask bytes match, part by part, for the loss on words or on every token."""
    config, kind, _ = MODELS[name]
    config = replace(config, **{"activation" if name == "distilbert" else "hidden_act": activation})
    generator = name == "electra, generator"
    model = kind(config, (MASKED_WORDS,) if REPLACED not in MODELS[name][2] else (REPLACED,))
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    term = Term(MASKED_WORDS, np.array([1, 4, 9, 20]), np.arange(4))
    if REPLACED in model.output_heads:
        term = Term(REPLACED, None, IDS.ravel() % 2)
    _, cache = model.loss_of(model.check_inputs(IDS), [term], Run(train=True))
    sizes = replace(config, generator={}).sizes().before if generator else config.sizes()
    predicted = caches(sizes, Shape(3, 7, 4, 2), Choice(3, 1, checkpointing))
    seen: dict = {}
    embedding = cache.encoded.embedding
    found = [distinct(embedding, seen), *(distinct(block, seen) for block in cache.encoded.blocks)]
    assert [*found, distinct(cache.terms, seen)] == predicted


HEADS = {
    "roberta": [(MASKED_WORDS,), (MASKED_WORDS, POOLER), (POOLER,), ()],
    "distilbert": [(MASKED_WORDS,), ()],
    "albert": [(MASKED_WORDS, POOLER, SENTENCE_ORDER), (MASKED_WORDS,), (POOLER,), ()],
    "electra": [(REPLACED,), (MASKED_WORDS,), (MASKED_WORDS, REPLACED), ()],
}
COMBINATIONS = [(name, heads, tied) for name, some in HEADS.items() for heads in some for tied in (True, False)]


@pytest.mark.parametrize(("name", "heads", "tied"), COMBINATIONS, ids=str)
@pytest.mark.filterwarnings("error::UserWarning")
def test_folders_come_back(name, heads, tied, tmp_path):
    """Every combination of heads survives exactly, tied or not, and the folder names the class that opens it."""
    config, kind, _ = MODELS[name]
    model = scattered(kind(replace(config, tie_word_embeddings=tied), heads))
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config and loaded.output_heads == model.output_heads
    np.testing.assert_array_equal(loaded.flat.data, model.flat.data)
    (architecture,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    expected = {(MASKED_WORDS, POOLER, SENTENCE_ORDER): "ForPreTraining", (): "Model", (POOLER,): "Model"}
    replaced = "ForPreTraining" if REPLACED in heads else "ForMaskedLM"
    assert architecture == model.family + expected.get(heads, replaced)


@pytest.mark.parametrize("name", WRITTEN)
def test_old_spellings_are_understood(name, tmp_path):
    """Without the prefix, with gamma and beta, with copies of what is shared, and with the positions 0, 1, 2, …"""
    model = load_model(GOLDEN / name)
    tensors = {}
    for key, array in read_tensors(GOLDEN / name / "model.safetensors").items():
        key = key.removeprefix(model.prefix)
        tensors[key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = array
    tensors["embeddings.position_ids"] = np.arange(11)[None]
    if MASKED_WORDS in model.output_heads:
        tensors[f"{model.decoder}.weight"] = tensors["embeddings.word_embeddings.weight"]
        tensors[f"{model.decoder}.bias"] = tensors[model.decoder_bias]
    write_folder(tmp_path, json.loads((GOLDEN / name / "config.json").read_text()), tensors)
    np.testing.assert_array_equal(load_model(tmp_path).flat.data, model.flat.data)


def test_a_bias_under_its_other_name_is_enough(tmp_path):
    """`lm_head.decoder.bias` alone gives the weights of a file with `lm_head.bias`."""
    tensors = read_tensors(GOLDEN / "roberta/model.safetensors")
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")
    write_folder(tmp_path, json.loads((GOLDEN / "roberta/config.json").read_text()), tensors)
    np.testing.assert_array_equal(load_model(tmp_path).flat.data, load_model(GOLDEN / "roberta").flat.data)


# ---------------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (RobertaConfig, {"is_decoder": True}, "is_decoder is True, but only False is supported for RoBERTa"),
        (RobertaConfig, {"position_embedding_type": "relative_key"}, "only 'absolute' is supported for RoBERTa"),
        (RobertaConfig, {"max_position_embeddings": 2}, "max_position_embeddings is 2, expected at least 3"),
        (RobertaConfig, {"pad_token_id": -1}, "pad_token_id is -1"),
        (RobertaConfig, {"hidden_act": "mish"}, "hidden_act is 'mish', expected one of the activations"),
        (DistilBertConfig, {"tie_weights_": False}, "tie_weights_ is False, but only True is supported"),
        (DistilBertConfig, {"n_heads": 5}, r"dim \d+ cannot be split among 5 heads: n_heads, 5, must divide"),
        (ElectraConfig, {"alibi": 3}, "alibi is 3, but an ELECTRA here has no such field"),
        (RobertaConfig, {"position_embedding_type": None}, "position_embedding_type is None, but only 'absolute'"),
        (XLNetConfig, {"summary_activation": None}, "summary_activation is None, but only 'tanh' is supported"),
        (DistilBertConfig, {"activation": "mish"}, "activation is 'mish', expected one of the activations"),
        (AlbertConfig, {"net_structure_type": 1}, "net_structure_type is 1, but only 0 is supported for ALBERT"),
        (AlbertConfig, {"num_hidden_groups": 13}, "num_hidden_groups is 13, expected at most 12"),
        (AlbertConfig, {"inner_group_num": 100}, "is 1200, expected at most 256 blocks"),
        (ElectraConfig, {"add_cross_attention": True}, "add_cross_attention is True"),
        (ElectraConfig, {"generator": {"vocab_size": 7}}, "generator is .*, expected the sizes in which it differs"),
        (ElectraConfig, {"generator": 3}, "generator is 3, expected the sizes"),
        (ElectraConfig, {"generator": {"hidden_size": 7}}, "generator: hidden_size 7 cannot be split among 4 heads"),
    ],
)
def test_what_would_change_the_result_is_refused_by_name(kind, change, message):
    """The error has the field, its value, and what is supported."""
    with pytest.raises(ValueError, match=message):
        kind.from_dict({"model_type": kind.model_type, **change})


@pytest.mark.filterwarnings("error::UserWarning")
def test_published_configs_are_read():
    """The fields of published files, some of which say nothing about the results, and DistilBERT's other names."""
    roberta = {"architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
               "hidden_act": "gelu", "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "type_vocab_size": 1,
               "model_type": "roberta"}  # fmt: skip
    assert RobertaConfig.from_dict(roberta).max_length == 512
    distilbert = {"model_type": "distilbert", "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2,
                  "tie_weights_": True, "qa_dropout": 0.3, "output_past": True}  # fmt: skip
    config = DistilBertConfig.from_dict(distilbert)
    assert (config.width, config.heads, config.depth, config.qa_dropout) == (24, 3, 2, 0.3)
    albert = {"model_type": "albert", "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0,
              "down_scale_factor": 1, "layers_to_keep": [], "eos_token_ids": 0, "pruned_heads": {}}  # fmt: skip
    assert AlbertConfig.from_dict(albert) == AlbertConfig()
    electra = {"model_type": "electra", "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu",
               "summary_last_dropout": 0.1, "embedding_size": 128}  # fmt: skip
    assert ElectraConfig.from_dict(electra) == ElectraConfig()


def test_presets_are_about_as_large_as_mini_bert():
    """Each has some million parameters, as its config counts them, and survives JSON."""
    for name in ("roberta", "distilbert", "albert", "electra"):
        assert name in PRESETS
        config = preset(name)
        model = model_class(config.to_dict())(config, seed=None)
        assert model.config_class.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        assert model.max_length == 64 and model.vocab_size == 8192 and 1.5e6 < model.get_parameter_count() < 4.5e6
        if name != "roberta":  # its pooler is optional
            assert config.sizes().parameters == model.get_parameter_count()


def test_missing_heads_are_named():
    """The error says why there is none, and what to do."""
    with pytest.raises(ValueError, match=r"it is a discriminator.*the folder `generator`"):
        Electra(tiny.ELECTRA).loss(IDS, [1], [2])
    with pytest.raises(ValueError, match="ALBERT predicts the order of sentences instead"):
        Albert(tiny.ALBERT).loss(IDS, [1], [2], next_sentence=[0, 1, 0])
    with pytest.raises(ValueError, match="RoBERTa is trained on masked words only"):
        Roberta(tiny.ROBERTA).output_head("next_sentence")


# ---------------------------------------------------------------------- ELECTRA's pair


def test_a_pair_shares_tables_and_memory():
    """One flat memory, in which tokens and positions are once."""
    pair = Electra(tiny.PAIR)
    generator = pair.generator
    assert generator.tokens.table is pair.tokens.table and generator.positions.table is pair.positions.table
    assert generator.flat is pair.flat and generator.dtype == pair.dtype and generator.run is pair.run
    tables = pair.tokens.table.size + pair.positions.table.size
    alone = pair.alone().get_parameter_count(), generator.alone().get_parameter_count()
    assert pair.flat.data.size == pair.get_parameter_count() == sum(alone) - tables == tiny.PAIR.sizes().parameters
    assert generator.output_heads == (MASKED_WORDS,) and pair.output_heads == (REPLACED,)
    assert generator.config == replace(tiny.ELECTRA, **tiny.GENERATOR)
    assert Electra(tiny.PAIR, ()).generator is None


def test_gradients_of_a_pair_add_up():
    """What both models add to the shared tables is the sum of what each adds alone."""
    pair = scattered(Electra(tiny.PAIR, dtype=np.float64))
    one, other = pair.alone(), pair.generator.alone()
    for model in (one, other, pair.generator, pair):
        inputs = model.check_inputs(IDS, MASK, TYPES)
        _, cache = model.loss_of(inputs, tiny.terms_of(model), Run())
        model.loss_backward(cache, run=Run())
    found = {name: param.grad for name, param in pair.named_params().items()}
    for name, param in one.named_params().items():
        extra = other.named_params()[name].grad if name in ("tokens.table", "positions.table") else 0
        np.testing.assert_allclose(found[name], param.grad + extra, rtol=1e-10, atol=1e-14)
    for name, param in other.named_params().items():
        if f"generator.{name}" in found:
            np.testing.assert_allclose(found[f"generator.{name}"], param.grad, rtol=1e-10, atol=1e-14)


def test_copies_of_a_pair():
    """A replica shares the weights, a copy and a pickle have their own; the generator belongs to each."""
    pair = scattered(Electra(tiny.PAIR))
    wanted = pair.generator.encode(IDS, MASK)[0]
    replica, copied, again = pair.replica(), deepcopy(pair), pickle.loads(pickle.dumps(pair))
    for twin in (replica, copied, again):
        assert twin.generator.tokens.table is twin.tokens.table and twin.generator is not pair.generator
        assert twin.generator.flat is twin.flat and twin.flat.grad is not pair.flat.grad
        np.testing.assert_array_equal(twin.generator.encode(IDS, MASK)[0], wanted)
    pair.generator.types.table.data[...] += 1
    assert not np.array_equal(replica.generator.encode(IDS, MASK)[0], wanted)
    for twin in (copied, again):
        np.testing.assert_array_equal(twin.generator.encode(IDS, MASK)[0], wanted)
    alone = deepcopy(pair.generator)
    np.testing.assert_array_equal(alone.encode(IDS, MASK)[0], pair.generator.encode(IDS, MASK)[0])
    assert alone.tokens.table is not pair.tokens.table


def test_info_shows_both_models():
    """The generator follows its discriminator, and arrays that they share are marked."""
    rows = architecture(Electra(tiny.PAIR))
    places = [name.strip() for name, _, _ in rows].index("generator:")
    shown = {name.strip(): (shape, weights) for name, shape, weights in rows[places:]}
    assert shown["embeddings: tokens"] == ("(B,11,5)", "table (31,5) (shared)")
    assert (
        shown["embeddings: project"] == ("(B,11,6)", "w (5,6)  b (6,)") and "(shared)" not in shown["masked_words"][1]
    )
    assert rows[1] == ("embeddings: tokens", "(B,11,5)", "table (31,5)")


def test_a_generator_is_a_share_of_its_discriminator():
    """A quarter of the width, the same depth; the rest follows the discriminator."""
    config = ElectraConfig().with_generator()
    assert config.generator == {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}
    assert config.generator_config.num_hidden_layers == 12 and config.generator_config.embedding_size == 128
    assert replace(config, vocab_size=99).generator_config.vocab_size == 99
    assert config.with_dropout(0.3).generator_config.hidden_dropout_prob == 0.3
    assert config.sizes().before.width == 64 and ElectraConfig().sizes().before is None


# ---------------------------------------------------------------------- memory

SMALL = {"vocab_size": 6000, "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 384}  # fmt: skip
