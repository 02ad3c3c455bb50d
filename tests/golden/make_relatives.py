"""Makes the reference numbers for BERT's relatives in tests/golden/: tiny random models of `transformers`, in float64.

    python tests/golden/make_relatives.py            (needs torch and transformers: `python run.py test --peers`)

roberta/, distilbert/, albert/, electra/ (a discriminator) and electra_generator/ each hold config.json and
model.safetensors in the published format, and expected.safetensors with inputs, outputs, the loss, and the gradient of
every tensor by autograd. The default tests compare our forward and backward with these files, without torch.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch
import transformers
from make_models import HERE, B, T, batch, randomise, save
from torch.nn import functional as F

SIZES = {"vocab_size": 31, "hidden_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 13}
NONE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("RobertaForMaskedLM", SIZES | NONE | {"max_position_embeddings": 12, "type_vocab_size": 1}),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": 31, "dim": 10, "n_layers": 2, "n_heads": 2, "hidden_dim": 13, "max_position_embeddings": 11,
         "dropout": 0.0, "attention_dropout": 0.0},
    ),
    "albert": (
        "AlbertForPreTraining",
        SIZES | NONE | {"embedding_size": 7, "num_hidden_layers": 5, "num_hidden_groups": 2,
                        "max_position_embeddings": 11, "type_vocab_size": 3, "classifier_dropout_prob": 0.0},
    ),
    "electra": (
        "ElectraForPreTraining",
        SIZES | NONE | {"embedding_size": 7, "max_position_embeddings": 11, "type_vocab_size": 3},
    ),
    "electra_generator": (
        "ElectraForMaskedLM",
        SIZES | NONE | {"embedding_size": 7, "max_position_embeddings": 11, "type_vocab_size": 3},
    ),
}  # fmt: skip


def make(name: str) -> None:
    torch.manual_seed(3)
    architecture, values = MODELS[name]
    kind = getattr(transformers, architecture)
    config = kind.config_class(**values)
    config._attn_implementation = "eager"
    model = kind(config).double().eval()
    randomise(model.parameters())
    model.tie_weights()

    data = inputs(config)
    given = {key: data[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in data}
    hidden = model.base_model(**given).last_hidden_state
    output = model(**given)
    words = output.get("prediction_logits", output.get("logits"))
    if name == "electra":
        real = data["attention_mask"].bool()
        loss = F.binary_cross_entropy_with_logits(output.logits[real], data["replaced"][real].double())
    else:
        loss = F.cross_entropy(words.reshape(B * T, -1)[data["rows"]], data["targets"])
    if name == "albert":
        loss = loss + F.cross_entropy(output.sop_logits, data["sentence_order"])
        data["sop_logits"] = output.sop_logits
    loss.backward()

    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    gradients = {f"grad.{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    save({**data, "hidden": hidden, "logits": words, "loss": loss[None], **gradients}, folder)


def inputs(config: Any) -> dict[str, torch.Tensor]:
    """As for BERT, but padding has the model's id, and no other token has it."""
    types = getattr(config, "type_vocab_size", 0)
    data = batch(config.vocab_size, max(types, 1))
    mask, ids, pad = data["attention_mask"].bool(), data["input_ids"], config.pad_token_id
    data["input_ids"] = torch.where(mask, torch.where(ids == pad, pad + 1, ids), pad)
    if not types:
        del data["token_type_ids"]
    data["sentence_order"] = data.pop("next_sentence")
    data["replaced"] = torch.randint(0, 2, (B, T)) * data["attention_mask"]
    return data


if __name__ == "__main__":
    for each in MODELS:
        make(each)
