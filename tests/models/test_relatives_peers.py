"""RoBERTa, DistilBERT, ALBERT and ELECTRA agree with `transformers`: outputs and every gradient to 1e-9 in float64."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.files.model_folder import write_folder
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import save as save_tuned
from mini_bert.finetuning.tasks.base import Batch
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.electra import Electra
from tests.finetuning import tiny_tasks
from tests.models.family import Inputs, Peer, agree, compare, random_model, their_outputs
from tests.models.relatives import IDS, MASK, MODELS, PAIR, TYPES, scattered
from tests.models.test_bert import package_folder
from tests.models.test_relatives import COMBINATIONS

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("error::UserWarning")]

SIZES = {"vocab_size": 31, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17,
         "max_position_embeddings": 11, "type_vocab_size": 2}  # fmt: skip
OTHER = {"vocab_size": 37, "hidden_size": 14, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 11,
         "max_position_embeddings": 13, "type_vocab_size": 3}  # fmt: skip
WORDS = {"masked_words": "logits"}
BASE = {"hidden": "last_hidden_state", "pooler": "pooler_output"}
UNTIED = {"tie_word_embeddings": False}

ROBERTA = [
    Peer("RobertaForMaskedLM", SIZES | {"type_vocab_size": 1}, WORDS),
    Peer("RobertaForMaskedLM", SIZES | {"type_vocab_size": 1}, WORDS, left=True),
    Peer("RobertaForMaskedLM", OTHER | UNTIED | {"hidden_act": "relu", "layer_norm_eps": 1e-3}, WORDS, types=3),
    Peer("RobertaForMaskedLM", OTHER | {"pad_token_id": 4, "hidden_act": "gelu_new"}, WORDS, types=3, left=True),
    Peer("RobertaForMaskedLM", OTHER | {"pad_token_id": 0}, WORDS, shape=(2, 12)),
    Peer("RobertaModel", SIZES, BASE, types=2, shape=(5, 9)),
    Peer("RobertaModel", OTHER | {"hidden_act": "tanh"}, BASE, padded=False),
]

THEIR_NAMES = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
               "intermediate_size": "hidden_dim", "hidden_act": "activation"}  # fmt: skip


def distilled(values: dict) -> dict:
    return {THEIR_NAMES.get(name, name): value for name, value in values.items() if name != "type_vocab_size"}


DISTILBERT = [
    Peer("DistilBertForMaskedLM", distilled(SIZES), WORDS),
    Peer("DistilBertForMaskedLM", distilled(OTHER | UNTIED | {"hidden_act": "relu"}), WORDS),
    Peer("DistilBertForMaskedLM", distilled(OTHER | {"sinusoidal_pos_embds": True}), WORDS, shape=(2, 13)),
    Peer("DistilBertModel", distilled(SIZES | {"hidden_act": "gelu_new"}), {"hidden": "last_hidden_state"}),
    Peer("DistilBertModel", distilled(OTHER), {"hidden": "last_hidden_state"}, padded=False, shape=(1, 5)),
]

SOP = {"masked_words": "prediction_logits", "sentence_order": "sop_logits"}
ALBERT = [
    Peer("AlbertForPreTraining", SIZES | {"embedding_size": 5}, SOP, types=2),
    Peer("AlbertForMaskedLM", SIZES | {"embedding_size": 5, "num_hidden_layers": 5}, WORDS, types=2),
    Peer("AlbertForMaskedLM", OTHER | UNTIED | {"embedding_size": 19, "hidden_act": "gelu"}, WORDS, types=3),
    Peer("AlbertForMaskedLM", OTHER | {"embedding_size": 14, "num_hidden_groups": 3}, WORDS),
    Peer("AlbertForPreTraining", SIZES | {"embedding_size": 7, "num_hidden_layers": 5, "num_hidden_groups": 3}, SOP),
    Peer("AlbertForPreTraining", OTHER | {"embedding_size": 7, "inner_group_num": 2, "num_hidden_groups": 2}, SOP),
    Peer("AlbertModel", OTHER | {"embedding_size": 6, "inner_group_num": 3, "layer_norm_eps": 1e-4}, BASE, types=3),
    Peer("AlbertModel", SIZES | {"embedding_size": 3, "num_hidden_layers": 12}, BASE, padded=False, types=2),
]

DISCRIMINATOR = {"replaced": "logits"}
ELECTRA = [
    Peer("ElectraForPreTraining", SIZES | {"embedding_size": 7}, DISCRIMINATOR, types=2),
    Peer("ElectraForPreTraining", OTHER | {"embedding_size": 14, "hidden_act": "relu"}, DISCRIMINATOR, types=3),
    Peer("ElectraForPreTraining", SIZES | {"embedding_size": 19, "hidden_act": "tanh"}, DISCRIMINATOR, padded=False),
    Peer("ElectraForMaskedLM", SIZES | {"embedding_size": 7}, WORDS, types=2),
    Peer("ElectraForMaskedLM", OTHER | {"embedding_size": 14, "hidden_act": "relu"}, WORDS),
    Peer("ElectraForMaskedLM", OTHER | UNTIED | {"embedding_size": 5, "layer_norm_eps": 1e-3}, WORDS, types=3),
    Peer("ElectraModel", SIZES | {"embedding_size": 15}, {"hidden": "last_hidden_state"}, types=2, shape=(4, 11)),
    Peer("ElectraModel", OTHER | {"embedding_size": 3}, {"hidden": "last_hidden_state"}, padded=False),
]
EVERY = [*ROBERTA, *DISTILBERT, *ALBERT, *ELECTRA]


@pytest.mark.parametrize("peer", EVERY, ids=[f"{index}-{peer.theirs}" for index, peer in enumerate(EVERY)])
def test_outputs_and_gradients(peer, tmp_path):
    """The folder that `transformers` wrote loads without warnings, and everything agrees."""
    compare(peer, tmp_path)


# ---------------------------------------------------------------------- what we write

FIELDS = {"masked_words": "logits", "replaced": "logits", "hidden": "last_hidden_state", "pooler": "pooler_output"}
POOLERS = {"roberta.pooler.dense.weight", "roberta.pooler.dense.bias"}  # RobertaForMaskedLM has no place for one


@pytest.mark.parametrize(("name", "heads", "tied"), COMBINATIONS, ids=str)
def test_transformers_opens_what_we_write(name, heads, tied, tmp_path):
    """Without missing or unexpected tensors, and it computes the same."""
    config, kind, _ = MODELS[name]
    model = scattered(kind(replace(config, tie_word_embeddings=tied), heads))
    model.save_pretrained(tmp_path)
    both = {"generator_predictions", "generator_lm_head"} if len(heads) == 2 and name == "electra" else set()
    opened_alike(model, tmp_path, ignored=POOLERS, prefixes=both)


def opened_alike(model, folder, ignored=frozenset(), prefixes=frozenset()):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    theirs, report = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    unexpected = {key for key in report["unexpected_keys"] if key.split(".")[0] not in prefixes}
    assert not unexpected - ignored and not report["mismatched_keys"]
    headless = architecture in ("RobertaModel", "AlbertModel") and model.pooler is None
    assert not [key for key in report["missing_keys"] if not (headless and "pooler" in key)]
    given = {"input_ids": np.where(MASK, IDS, theirs.config.pad_token_id), "attention_mask": MASK.astype(int)}
    if "type_vocab_size" in theirs.config.to_dict():
        given["token_type_ids"] = TYPES
    ours, _ = model.forward(given["input_ids"], MASK, TYPES)
    with torch.no_grad():
        output = theirs.eval()(**{key: torch.tensor(array) for key, array in given.items()})
    fields = FIELDS | ({"masked_words": "prediction_logits", "sentence_order": "sop_logits"}
                       if architecture == "AlbertForPreTraining" else {})  # fmt: skip
    if "ForPreTraining" in architecture and model.model_type == "electra":
        del fields["masked_words"]
    compared = 0
    for head, field in fields.items():
        if getattr(ours, head) is not None and field in output:
            found, wanted = getattr(ours, head), output[field].numpy()
            real = MASK if found.ndim == 3 else slice(None)
            np.testing.assert_allclose(found[real], wanted.reshape(found.shape)[real], atol=2e-5)
            compared += 1
    assert compared >= 1


def test_both_models_of_a_pair_open(tmp_path):
    pair = scattered(Electra(PAIR))
    pair.save_pretrained(tmp_path)
    opened_alike(pair, tmp_path)
    opened_alike(pair.generator, tmp_path / "generator")


# ---------------------------------------------------------------------- published heads of tasks

TASKS = {
    "classify": ("ForSequenceClassification", {"num_labels": 3}, np.array([2, 0, 1])),
    "similarity": ("ForSequenceClassification", {"num_labels": 1}, np.array([1.5, 0.0, 4.0])),
    "tag": ("ForTokenClassification", {"num_labels": 3}, np.array([2, 0, 1, 1, 0, 2])),
    "qa": ("ForQuestionAnswering", {"num_labels": 2}, np.array([[1, 3], [2, 2], [0, 3]])),
}
PUBLISHED = {
    "Roberta": SIZES | {"max_position_embeddings": 24},
    "DistilBert": distilled(SIZES),
    "Albert": SIZES | {"embedding_size": 5, "num_hidden_layers": 3, "num_hidden_groups": 2},
    "Electra": SIZES | {"embedding_size": 7},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", PUBLISHED)
def test_published_task_heads(family, task, tmp_path):
    """For a folder written by `transformers`, loss and every gradient agree to 1e-9; what we save, it opens again."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    architecture, more, targets = TASKS[task]
    tokenizer = tiny_tasks.TOKENIZER
    values = PUBLISHED[family] | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_id} | more
    peer = random_model(Peer(family + architecture, values, {}), seed=1)
    peer.save_pretrained(tmp_path / "theirs")
    tiny_tasks.TOKENIZER.save(tmp_path / "theirs")
    tuned = load_tuned(tmp_path / "theirs", dtype=np.float64)
    assert tuned.task.name == task

    ids = np.where(MASK, IDS, peer.config.pad_token_id)
    batch = Batch(ids, MASK, TYPES, MASK if task == "qa" else TAGGED, targets)
    loss, _ = tuned.task.loss(tuned.model, batch, Run(), len(targets))
    given = Inputs(ids, MASK.astype(int), None if family == "DistilBert" else TYPES)
    wanted = their_loss(task, their_outputs(peer, given), batch, torch)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-9)
    params, found = tuned.model.named_params(), {}
    for entry in [*tuned.model.names(), *tuned.model.task_names(architecture)]:
        found |= entry.save(params[entry.ours].grad)
    gradients = {name: p.grad.numpy() for name, p in peer.named_parameters() if p.grad is not None}
    largest = max(np.abs(gradient).max() for gradient in gradients.values())
    for name, gradient in gradients.items():
        agree(found[name.removeprefix(tuned.model.prefix)], gradient, name, 1e-6 * largest)

    save_tuned(tmp_path / "ours", tuned.model, tuned.task, tiny_tasks.TOKENIZER, 11)
    again, report = getattr(transformers, family + architecture).from_pretrained(
        tmp_path / "ours", output_loading_info=True, dtype=torch.float64
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        one, other = their_outputs(peer.eval(), given), their_outputs(again.eval(), given)
    field = "start_logits" if task == "qa" else "logits"
    np.testing.assert_allclose(one[field], other[field], rtol=1e-12)


TAGGED = np.array([[0, 1, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0]], bool)


def their_loss(task, output, batch, torch):
    """The loss of each task, from the logits of transformers"""
    cross_entropy, targets = torch.nn.functional.cross_entropy, torch.tensor(batch.targets)
    if task == "classify":
        return cross_entropy(output.logits, targets)
    if task == "similarity":
        return ((output.logits[:, 0] - targets) ** 2).mean()
    if task == "tag":
        return cross_entropy(output.logits[torch.tensor(TAGGED)], targets)
    outside = torch.tensor(~MASK)
    both = (output.start_logits, output.end_logits)
    return sum(cross_entropy(part.masked_fill(outside, -1e30), targets[:, side]) for side, part in enumerate(both)) / 2


# ---------------------------------------------------------------------- real weights


def compare_real(folder, architecture):
    """The largest difference of the logits in float32, with and without padding"""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = load_model(folder)
    theirs = getattr(transformers, architecture).from_pretrained(folder).eval()
    rng = np.random.default_rng(0)
    ids = rng.integers(5, model.vocab_size, (4, 48))
    lengths = np.array([[48], [31], [7], [1]])
    differences = []
    for mask in (np.ones((4, 48), bool), np.arange(48) < lengths, np.arange(48) >= 48 - lengths):
        given = {"input_ids": np.where(mask, ids, theirs.config.pad_token_id), "attention_mask": mask.astype(int)}
        ours, _ = model.forward(given["input_ids"], mask)
        with torch.no_grad():
            output = theirs(**{key: torch.tensor(array) for key, array in given.items()})
        found, wanted = ours.masked_words[mask], output.logits.numpy()[mask]
        differences.append(np.abs(found - wanted).max())
        assert np.abs(wanted).max() > 5 and (found.argmax(-1) == wanted.argmax(-1)).mean() > 0.99
    print(f"{folder.name}: largest difference {max(differences):.1e} in logits up to {np.abs(wanted).max():.1f}")
    return max(differences)


@pytest.mark.filterwarnings("default::UserWarning")
def test_real_albert():
    """rxnmapper reads chemical reactions with an ALBERT of 12 layers, one block."""
    folder = package_folder("rxnmapper", "pytorch_model.bin", "albert_heads_8_uspto_all_1310k")
    assert compare_real(folder, "AlbertForMaskedLM") <= 1e-4


@pytest.mark.parametrize("chain", ["vh", "vl"])
def test_real_roberta(chain, tmp_path):
    """sapiens reads antibodies with a RoBERTa of 4 layers, in a file of fairseq, which has other names."""
    folder = package_folder("sapiens", f"checkpoint_{chain}.pt", "v1")
    from_fairseq(folder / f"checkpoint_{chain}.pt", tmp_path)
    assert compare_real(tmp_path, "RobertaForMaskedLM") <= 1e-4


FAIRSEQ = {
    "self_attn.q_proj": "attention.self.query", "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value", "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm", "fc1": "intermediate.dense", "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm", "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings", "emb_layer_norm": "embeddings.LayerNorm",
}  # fmt: skip


def from_fairseq(path, folder):
    """Write a model folder with the weights of a fairseq checkpoint, which holds the command-line arguments, too."""
    torch = pytest.importorskip("torch")
    torch.serialization.add_safe_globals([argparse.Namespace])
    checkpoint = torch.load(path, weights_only=True, map_location="cpu")
    given, tensors = checkpoint["args"], {}
    for name, tensor in checkpoint["model"].items():
        for old, new in {**FAIRSEQ, "decoder.sentence_encoder.layers": "roberta.encoder.layer",
                         "decoder.sentence_encoder": "roberta", "decoder.lm_head": "lm_head"}.items():  # fmt: skip
            name = name.replace(old, new)
        tensors[name.replace("lm_head.weight", "lm_head.decoder.weight")] = tensor.numpy()
    width = given.encoder_embed_dim
    tensors["roberta.embeddings.token_type_embeddings.weight"] = np.zeros((1, width), np.float32)  # it has no types
    config = {
        "model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": width,
        "vocab_size": len(tensors["lm_head.bias"]), "num_hidden_layers": given.encoder_layers,
        "num_attention_heads": given.encoder_attention_heads, "intermediate_size": given.encoder_ffn_embed_dim,
        "hidden_act": given.activation_fn, "max_position_embeddings": given.max_positions + 2, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "pad_token_id": 1,
    }  # fmt: skip
    write_folder(folder, config, tensors)
