"""Folders of every architecture that are damaged or contradict themselves: one line per case."""
# One line per case, however long:
# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

import numpy as np
from making import PIECES, Case, file
from making_family import KINDS, SIZES, config_file, every, of, one, with_files_of, without
from making_hostile import ESCAPE, Harm, pickled, short

NAN, INF = float("nan"), float("inf")
EMBED = "embed --model {it} cat 'the dog ran'"
V = len(PIECES)
ODD: list[Any] = [0, -1, 10**12, 1e308, NAN, True, "12", [], {"a": {"b": 1}}]
# fmt: off

# Kind, change of config.json, what must be said.
CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    # layers, heads and widths that are not those of the weights
    ("bert", {"num_hidden_layers": 1}, "has weights for which this model .*num_hidden_layers 1, .* has no place: encoder.layer.1.*copy both from the same place"),
    ("bert", {"num_hidden_layers": 3}, "lacks encoder.layer.2.*num_hidden_layers 3.*copy both from the same place"),
    ("roberta", {"num_hidden_layers": 1}, "has no place: encoder.layer.1"),
    ("distilbert", {"n_layers": 1}, "n_layers 1, .*has no place: transformer.layer.1"),
    ("electra", {"num_hidden_layers": 1}, "has no place: encoder.layer.1"),
    ("deberta", {"num_hidden_layers": 1}, "has no place: encoder.layer.1"),
    ("deberta-v2", {"num_hidden_layers": 1}, "has no place: encoder.layer.1"),
    ("gpt2", {"n_layer": 1}, "has no place: h.1"),
    ("modernbert", {"num_hidden_layers": 1, "layer_types": None}, "has no place: layers.1"),
    ("transfo-xl", {"n_layer": 1}, "has no place: layers.1"),
    ("xlnet", {"n_layer": 1}, "has no place: layer.1"),
    ("xlnet", {"n_layer": 3}, "lacks layer.2"),
    ("gpt2", {"n_layer": 3}, "lacks h.2.*n_layer 3"),
    ("albert", {"inner_group_num": 2}, "lacks encoder.albert_layer_groups.0.albert_layers.1"),
    ("albert", {"num_hidden_groups": 2}, "lacks encoder.albert_layer_groups.1"),
    ("albert", {"num_hidden_groups": 3}, "num_hidden_groups is 3, expected at most 2, the number of layers"),
    ("albert", {"embedding_size": 8}, r"has shape \(21, 4\).*embedding_size 8.*needs \(21, 8\)"),
    ("electra", {"embedding_size": 8}, r"has shape \(21, 4\).*needs \(21, 8\)"),
    ("deberta", {"embedding_size": 4}, "shape|lacks"),
    ("bert", {"num_attention_heads": 3}, "8 cannot be split among 3 heads"),
    ("transfo-xl", {"d_head": 3}, r"qkv_net.weight has shape \(24, 8\).*needs \(18, 8\)"),
    ("xlnet", {"d_head": 3}, "d_head is 3, expected 4, d_model / n_head"),
    ("deberta-v2", {"attention_head_size": 5}, "attention_head_size is 5, but 2 heads of a width of 8 have 4"),
    ("modernbert", {"hidden_size": 6}, "heads of width 3, but rotary positions need an even width"),
    ("transfo-xl", {"d_model": 7}, "d_model is 7, expected an even number"),
    *((kind, {"vocab_size": V - 1}, f"{V}|tokens|cutoffs|vocab_size {V - 1}") for kind in KINDS),
    *((kind, {"vocab_size": V + 9}, "shape") for kind in KINDS),
    # layers of their own kind
    ("modernbert", {"layer_types": ["full_attention"]}, r"layer_types is \['full_attention'\], expected .* for each of the 2 layers"),
    ("modernbert", {"layer_types": ["full_attention"] * 3}, "for each of the 2 layers"),
    ("modernbert", {"layer_types": ["full_attention", "none"]}, "layer_types is"),
    ("modernbert", {"layer_types": "full_attention"}, "layer_types is"),
    ("modernbert", {"layer_types": [[], {}]}, "layer_types is"),
    ("modernbert", {"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
    ("modernbert", {"layer_types": None, "global_attn_every_n_layers": "3"}, "global_attn_every_n_layers is '3'"),
    ("modernbert", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters is .*expected an object with 'full_attention'"),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_theta": 5.0, "factor": 2}}}, "rope_parameters is .*for full_attention"),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'.*only 'default'"),
    ("modernbert", {"global_rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": NAN}}}, "global_rope_theta is nan"),
    ("modernbert", {"global_rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": 10**400}}}, "global_rope_theta is 1"),
    ("modernbert", {"global_rope_theta": 5.0}, "global_rope_theta is 5.0, but rope_parameters says rope_theta 160000.0 for full_attention.*Leave out"),
    ("modernbert", {"global_attn_every_n_layers": 1}, "global_attn_every_n_layers is 1, but layer_types says"),
    ("gpt2", {"n_ctx": 5}, "n_positions is .* and n_ctx is 5, but both are names of the same field; leave out one"),
    ("modernbert", {"rope_parameters": [5]}, "rope_parameters is"),
    ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling is 'max'"),
    ("modernbert", {"decoder_bias": False}, "decoder_bias is false.*the weights have decoder.bias"),
    ("modernbert", {"norm_bias": True}, "lacks .*norm.bias.*norm_bias true"),
    ("modernbert", {"attention_bias": True}, "lacks .*Wqkv.bias|lacks .*Wo.bias"),
    # distances
    ("deberta", {"pos_att_type": ["p2p"]}, r"pos_att_type is \['p2p'\], expected some of 'c2p', 'p2c'"),
    ("deberta", {"pos_att_type": ["c2p", "c2p"]}, "pos_att_type is .*each once"),
    ("deberta", {"pos_att_type": [{}]}, "pos_att_type is"),
    ("deberta", {"pos_att_type": ["c2p"]}, "pos_att_type ..c2p...*has no place: encoder.layer.0.attention.self.pos_q_proj"),
    ("deberta", {"relative_attention": False}, "relative_attention false, .*has no place: encoder.*(pos_proj|rel_embeddings)"),
    ("deberta", {"talking_head": True}, "lacks .*head_logits_proj"),
    ("deberta", {"position_buckets": 8}, "position_buckets is 8, but only -1 is supported for DeBERTa"),
    ("deberta", {"max_relative_positions": 10**18}, "max_relative_positions is 1000000000000000000, expected at most"),
    ("deberta-v2", {"position_buckets": 1}, "position_buckets is 1, but distances go up to 16"),
    ("deberta-v2", {"position_buckets": 100}, r"position_buckets 100.*needs \(200, 8\)"),
    ("deberta-v2", {"position_buckets": -1}, r"rel_embeddings.weight has shape \(16, 8\).*needs \(32, 8\)"),
    ("deberta-v2", {"conv_kernel_size": 2}, "conv_kernel_size is 2, expected an odd number"),
    ("deberta-v2", {"conv_kernel_size": 0}, "has no place: encoder.conv"),
    ("deberta-v2", {"conv_kernel_size": 5}, r"conv.weight has shape \(8, 8, 3\).*needs \(8, 8, 5\)"),
    ("deberta-v2", {"conv_groups": 3}, "conv_groups is 3, which does not divide hidden_size 8"),
    ("deberta-v2", {"conv_act": "os.system"}, "conv_act is 'os.system', expected one of the activations relu"),
    ("deberta-v2", {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd is 'batch_norm'"),
    ("deberta-v2", {"norm_rel_ebd": "none"}, "norm_rel_ebd .none.*has no place: encoder.LayerNorm"),
    ("deberta-v2", {"share_att_key": False}, "lacks .*pos_key_proj.*share_att_key false"),
    ("deberta-v2", {"type_vocab_size": 2}, "lacks embeddings.token_type_embeddings"),
    # generators
    ("electra", {"generator": {"hidden_size": 3, "num_attention_heads": 2}}, "generator: hidden_size 3 cannot be split among 2 heads"),
    ("electra", {"generator": {"hidden_size": 0}}, "generator: hidden_size is 0"),
    ("electra", {"generator": {"num_hidden_layers": 10**9}}, "generator: num_hidden_layers is 1000000000, expected at most 256"),
    ("electra", {"generator": {"vocab_size": 5}}, "generator is .*it shares the rest"),
    ("electra", {"generator": {"hidden_size": 4}}, "lacks generator."),
    ("electra", {"generator": "electra/generator"}, "generator is 'electra/generator'"),
    ("electra", {"generator": [[[]]]}, "generator is"),
    # clusters and memory
    ("transfo-xl", {"cutoffs": [8, 99]}, r"cutoffs are \[8, 99\], expected increasing ids below vocab_size, 21"),
    ("transfo-xl", {"cutoffs": [12, 8]}, "cutoffs are .*increasing"),
    ("transfo-xl", {"cutoffs": [8, 8]}, "cutoffs are .*increasing"),
    ("transfo-xl", {"cutoffs": [8]}, "tie_projs has 3 entries, but there are 1 cutoffs"),
    ("transfo-xl", {"cutoffs": [10**12]}, "cutoffs is 1000000000000, expected at most"),
    ("transfo-xl", {"cutoffs": "8,12"}, "cutoffs is '8,12', expected a list"),
    ("transfo-xl", {"cutoffs": [[8], 12]}, r"cutoffs is \[8\]"),
    ("transfo-xl", {"tie_projs": [True]}, "tie_projs has 1 entries"),
    ("transfo-xl", {"tie_projs": [1, 0, 0]}, "tie_projs is"),
    ("transfo-xl", {"div_val": 3}, "d_embed is 8, too small to be divided by div_val, 3"),
    ("transfo-xl", {"mem_len": -1}, "mem_len is -1"),
    ("transfo-xl", {"mem_len": 10**7}, "mem_len is 10000000, expected at most 100,000"),
    ("transfo-xl", {"mem_len": 0, "same_length": True}, "same_length is true, but mem_len is 0"),
    ("transfo-xl", {"clamp_len": 1.5}, "clamp_len is 1.5, expected a whole number"),
    ("transfo-xl", {"untie_r": False}, "r_w_bias.* are shared, but they differ.*untie_r"),
    ("transfo-xl", {"tie_word_embeddings": False}, "lacks crit.out_layers"),
    ("transfo-xl", {"adaptive": False}, r"adaptive is false, but cutoffs are \[8, 12\]"),
    ("transfo-xl", {"attn_type": 2}, "attn_type is 2, but only 0 is supported"),
    ("xlnet", {"attn_type": "tri"}, "attn_type is 'tri', expected 'bi' or 'uni'"),
    ("xlnet", {"reuse_len": -1}, "reuse_len is -1"),
    ("xlnet", {"summary_type": "mean"}, "summary_type is 'mean', expected 'first' or 'last'"),
    ("xlnet", {"untie_r": False}, "are shared, but they differ"),
    # the same field under two names
    ("xlnet", {"hidden_size": 16}, "d_model is 8 and hidden_size is 16, but both are names of the same field"),
    ("transfo-xl", {"n_token": 5}, "vocab_size is 21 and n_token is 5"),
    ("gpt2", {"num_hidden_layers": 1}, "n_layer is 2 and num_hidden_layers is 1"),
    ("distilbert", {"hidden_size": 16}, "dim is 8 and hidden_size is 16"),
    # numbers that are none
    ("bert", {"layer_norm_eps": 1e308}, r"layer_norm_eps is 1e\+308, expected a small positive number"),
    ("gpt2", {"layer_norm_epsilon": 5}, "layer_norm_epsilon is 5, expected a small positive number"),
    ("modernbert", {"norm_eps": 1e-320}, "norm_eps is 1e-320, expected a small positive number"),
    ("xlnet", {"layer_norm_eps": NAN}, "layer_norm_eps is nan"),
    ("albert", {"initializer_range": 1e308}, r"initializer_range is 1e\+308, expected a positive number of at most 100"),
    ("transfo-xl", {"init_std": INF}, "init_std is inf"),
    ("gpt2", {"attn_pdrop": 1}, "attn_pdrop is 1, expected a probability"),
    ("distilbert", {"qa_dropout": NAN}, "qa_dropout is nan"),
    ("electra", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ("roberta", {"pad_token_id": V}, f"pad_token_id is {V}, expected an id from 0 to {V - 1}, because vocab_size is {V}"),
    ("roberta", {"pad_token_id": -1}, "pad_token_id is -1"),
    ("roberta", {"pad_token_id": 16}, "max_position_embeddings is 17, expected at least 18"),
    ("roberta", {"pad_token_id": 1}, r"\[PAD\] has the id 0 in its tokenizer, but pad_token_id is 1 in its config.json.*Use the tokenizer"),
    ("gpt2", {"eos_token_id": {"a": 1}}, "eos_token_id is {'a': 1}"),
    ("gpt2", {"eos_token_id": [[]]}, r"eos_token_id is \[\[\]\]"),
    ("gpt2", {"eos_token_id": "0"}, "eos_token_id is '0'"),
    # switches that we do not support
    ("bert", {"is_decoder": True}, "is_decoder is True, but only False is supported for BERT"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True, but only False"),
    ("gpt2", {"is_causal": False}, "is_causal is False, but only True"),
    ("roberta", {"position_embedding_type": "relative_key_query"}, "position_embedding_type is 'relative_key_query'"),
    ("albert", {"net_structure_type": 1}, "net_structure_type is 1, but only 0"),
    ("distilbert", {"tie_weights_": False}, "tie_weights_ is False, but only True"),
    ("bert", {"pruned_heads": {"0": [1]}}, r"pruned_heads is {'0': \[1\]}"),
    # another architecture's name
    ("bert", {"model_type": "roberta"}, "model_type is 'roberta', but architectures says BertForPreTraining, which is of the type 'bert'; set model_type to 'bert'"),
    ("roberta", {"model_type": "bert"}, "model_type is 'bert', but architectures says RobertaForMaskedLM"),
    ("gpt2", {"model_type": "transfo-xl"}, "architectures says GPT2LMHeadModel"),
    ("deberta", {"model_type": "deberta-v2"}, "architectures says DebertaForMaskedLM, which is of the type 'deberta'"),
    ("xlnet", {"model_type": "xlm-roberta"}, "model_type is 'xlm-roberta', expected one of"),
    ("bert", {"architectures": ["T5ForConditionalGeneration"]}, "model_type is 'bert', but architectures says T5For.*neither a Bert nor another.*leave out architectures"),
    ("electra", {"architectures": 5}, "architectures in config.json is 5, expected a list"),
    ("electra", {"architectures": [["ElectraModel"]]}, "architectures in config.json is"),
    ("electra", {"architectures": [ESCAPE]}, "" ),
    ("bert", {"model_type": "roberta", "architectures": None}, "lacks embeddings.*and has bert.embeddings.*instead.*model_type roberta"),
    ("roberta", {"model_type": "electra", "architectures": None, "embedding_size": 8, "type_vocab_size": 1}, "lacks.*embeddings.*and has"),
    ("modernbert", {"model_type": "gpt2", "architectures": None}, "unknown field|has no such field|lacks|did you mean|does not use"),
]
SOUND = [("electra", {"architectures": [ESCAPE]})]

# Kind, what is done to the tensors, the change, what must be said.
WEIGHTS: list[tuple[str, str, Any, str]] = [
    *((kind, "one NaN", one("weight", lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 1, NAN, a).astype("f")), "values that are NaN") for kind in KINDS),
    *((kind, "3e38 everywhere", every(lambda a: np.full(a.shape, 3e38, "f")), r"has values of up to 3e\+38, expected at most") for kind in KINDS),
    *((kind, "integers", every(lambda a: a.astype(np.int64)), "dtype int64, expected floating-point") for kind in KINDS),
    *((kind, "half of the tensors", lambda arrays: [arrays.pop(name) for name in sorted(arrays)[::2]], "lacks|describes a model of.*but the weights file has only") for kind in KINDS),
    *((kind, "each tensor with an axis more", every(lambda a: a[None]), r"has shape \(1, .*needs \(") for kind in KINDS),
    *((kind, "each tensor flat", every(lambda a: a.reshape(-1)), "has shape") for kind in KINDS if kind != "gpt2"),
    *((kind, "each tensor empty", every(lambda a: a[:0]), "has only 0 numbers|has shape") for kind in KINDS),
    ("bert", "a query of one dimension", one("query.weight", lambda a: a[0]), r"query.weight has shape \(8,\).*needs \(8, 8\)"),
    ("deberta", "in_proj of another size", one("in_proj.weight", lambda a: a[:8]), r"in_proj.weight has shape \(8, 8\).*needs \(24, 8\)"),
    ("deberta", "in_proj as a single number", one("in_proj.weight", lambda a: a[0, :1]), r"in_proj.weight has shape \(1,\)"),
    ("deberta-v2", "a kernel of two dimensions", one("conv.conv.weight", lambda a: a[0]), r"conv.weight has shape \(8, 3\).*needs \(8, 8, 3\)"),
    ("gpt2", "weights the other way round", every(lambda a: a.T), "has shape"),
    ("xlnet", "heads side by side", one("rel_attn.q", lambda a: a.reshape(8, 8)), r"rel_attn.q has shape \(8, 8\).*needs \(8, 2, 4\)"),
    ("transfo-xl", "a cluster with words of the next", one("emb_layers.0.weight", lambda a: np.concatenate([a, a])), r"emb_layers.0.weight has shape \(16, 8\).*needs \(8, 8\)"),
    ("albert", "a third layer group", lambda arrays: arrays.update({"albert.encoder.albert_layer_groups.1.albert_layers.0.ffn.bias": np.ones(16, "f")}), "has no place: encoder.albert_layer_groups.1"),
    ("bert", "the same tensor under two names", lambda arrays: arrays.update({"embeddings.LayerNorm.bias": np.ones(8, "f")}), "two different tensors for embeddings.LayerNorm.bias"),
    ("electra", "a head without its matrix", without("dense_prediction.weight"), "lacks discriminator_predictions.dense_prediction.weight"),
    ("modernbert", "a name with escape codes", lambda arrays: arrays.update({"model.layers." + ESCAPE: np.ones(3, "f")}), "has no place"),
    ("xlnet", "a name of 100,000 characters", lambda arrays: arrays.update({"transformer.layer." + "9" * 100_000: np.ones(3, "f")}), "has no place"),
    ("gpt2", "100,000 more tensors", lambda arrays: arrays.update({f"transformer.h.{n}.x": np.ones(1, "f") for n in range(2, 100_002)}), "has no place: h.10.x.*and 99,995 more"),
]

# Two kinds, and the files that the folder of the first has from the second.
MIXED: list[tuple[str, str, str, str]] = [
    *((kind, other, "config.json", "lacks|shape|describes a model|no place") for kind, other in zip(KINDS, [*list(KINDS)[1:], "bert"], strict=True)),
    ("bert", "gpt2", "model.safetensors", "lacks embeddings.*and has transformer.h.0.*instead.*model_type bert"),
    ("gpt2", "bert", "model.safetensors", "lacks h.0.*and has bert.embeddings.*instead.*model_type gpt2"),
    ("xlnet", "transfo-xl", "model.safetensors", "lacks layer.0.*model_type xlnet"),
]

# Kind, sizes that are each allowed, but not all together.
HUGE: list[tuple[str, dict[str, Any]]] = [
    *((kind, {name: 10**7 for name in SIZES[kind] if "layer" not in name and "head" not in name and "group" not in name and name != "div_val"}) for kind in KINDS if kind != "electra"),
    ("electra", {"generator": {"hidden_size": 10**7}}),
    ("gpt2", {"n_inner": 10**7, "n_embd": 10**6}),
    ("albert", {"embedding_size": 10**7, "vocab_size": 10**7}),
    ("deberta-v2", {"conv_kernel_size": 9_999_999, "hidden_size": 4096}),
    ("deberta", {"max_relative_positions": 10**7, "hidden_size": 10**5}),
    ("modernbert", {"num_hidden_layers": 256, "hidden_size": 8192}),
]

FAMILY_HOSTILE = [
    *(Case(f"{kind}'s config.json: {short(change)}", EMBED, 0 if (kind, change) in SOUND else 1, says, it=of(kind, config=change)) for kind, change, says in CONFIGS),
    *(Case(f"{kind}'s weights: {what}", EMBED, 1, says, it=of(kind, weights=change)) for kind, what, change, says in WEIGHTS),
    *(Case(f"a folder of {kind} with the {name} of {other}", EMBED, 1, says, it=with_files_of(kind, other, name)) for kind, other, name, says in MIXED),
    *(Case(f"a huge {kind}, to load: {short(sizes)}", EMBED, 1, "describes a model of|expected|cutoffs|generator", it=of(kind, config=sizes)) for kind, sizes in HUGE),
    *(Case(f"a huge {kind}, to train: {short(sizes)}", "train --model {it} --corpus {x} --steps 1 --threads 1 --tokenizer 8k", 1, "not enough memory|expected", it=config_file(kind, **sizes), x=file("x.txt", "A cat sat. A dog ran.\n\n" * 300)) for kind, sizes in HUGE),
    *(Case(f"a huge {kind}, to plan: {short(sizes)}", "plan --model {it} --tokenizer 8k", 1, "not enough memory for this model of|Nothing fits|expected", it=config_file(kind, **sizes)) for kind, sizes in HUGE),
    Case("a GPT-2 of ten million layers", "info --model {it}", 1, "n_layer is 10000000, expected at most 256", it=config_file("gpt2", n_layer=10**7)),
    Case("an XLNet of a million layers", "plan --model {it}", 1, "n_layer is 1000000, expected at most 256", it=config_file("xlnet", n_layer=10**6)),
    Case("a generator's config.json that is damaged", "train --init {it} --corpus {x} --steps 1", 1, "generator.config.json.*not valid JSON", it=of("electra", write={"config.json": "{"}, inside="generator"), x=file("x.txt", "A cat sat.\n\n" * 300)),
    Case("a generator of another vocabulary", "train --init {it} --corpus {x} --steps 1", 1, "generator.*(vocab_size|differ)", it=of("electra", config={"vocab_size": 30}, inside="generator"), x=file("x.txt", "A cat sat.\n\n" * 300)),
    Case("a generator whose weights are NaN", "train --init {it} --corpus {x} --steps 1", 1, "generator: tensor .* NaN", it=of("electra", weights=every(lambda a: a * NAN), inside="generator"), x=file("x.txt", "A cat sat.\n\n" * 300)),
    Case("a generator without weights", "train --init {it} --corpus {x} --steps 1", 1, "generator has neither model.safetensors", it=of("electra", drop=("model.safetensors",), inside="generator"), x=file("x.txt", "A cat sat.\n\n" * 300)),
    Case("a generator that is a GPT-2", "train --init {it} --corpus {x} --steps 1", 1, "generator", it=of("electra", write={"config.json": json.dumps({"model_type": "gpt2", **KINDS["gpt2"]})}, inside="generator"), x=file("x.txt", "A cat sat.\n\n" * 300)),
    Case("a pickle beside the config of a GPT-2", "generate --model {it} cat", 1, "os.system|posix.system", it=of("gpt2", write={"pytorch_model.bin": pickled(Harm())}, drop=("model.safetensors",))),
]  # fmt: skip

# Every size of every architecture with every odd value: calls, which take milliseconds.
FAMILY_CALLS = [
    Case(f"{kind}: {name} of {short(value)}", "load_model(it)", ValueError, f"{name} is ", it=of(kind, config={name: value}))
    for kind in KINDS for name in SIZES[kind] for value in ODD
]
