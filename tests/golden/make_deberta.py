"""Makes the reference numbers for DeBERTa in tests/golden/: tiny random models of `transformers`, in float64.

    python tests/golden/make_deberta.py            (needs torch and transformers: `python run.py test --peers`)

deberta/, deberta_v2/ and deberta_v3/ each hold config.json and model.safetensors in the published format, and
expected.safetensors with inputs, outputs, the loss, and the gradient of every tensor by autograd. v3 has the head for
replaced words, too. The default tests compare our forward and backward with these files, without torch.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch
import transformers
from deberta_reference import ReplacedHead, compute_in_float64
from make_models import HERE, B, T, batch, randomise, save
from safetensors.torch import save_file
from torch.nn import functional as F

SIZES = {"vocab_size": 31, "hidden_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 13,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 11,
         "relative_attention": True}  # fmt: skip
BUCKETS = {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
           "position_biased_input": False}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta": (
        "DebertaForMaskedLM",
        SIZES | {"pos_att_type": "c2p|p2c", "max_relative_positions": 4, "type_vocab_size": 3, "embedding_size": 7},
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        SIZES | BUCKETS | {"share_att_key": False, "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2},
    ),
    "deberta_v3": ("DebertaV2ForMaskedLM", SIZES | BUCKETS | {"legacy": False}),
}


def make(name: str) -> None:
    torch.manual_seed(4)
    architecture, values = MODELS[name]
    kind = getattr(transformers, architecture)
    config = kind.config_class(**values)
    model = kind(config).double().eval()
    randomise(model.parameters())
    model.tie_weights()
    data = batch(config.vocab_size, max(config.type_vocab_size, 1))
    given = {key: data[key] for key in ("input_ids", "attention_mask", "token_type_ids")}
    hidden = model.deberta(**given).last_hidden_state
    words = model(**given).logits
    loss = F.cross_entropy(words.reshape(B * T, -1)[data["rows"]], data["targets"])
    parameters = dict(model.named_parameters())
    if name == "deberta_v3":
        head = ReplacedHead(config.hidden_size, config.layer_norm_eps).double()
        randomise(head.parameters())
        parameters |= {f"mask_predictions.{key}": p for key, p in head.named_parameters()}
        real, labels = data["attention_mask"].bool(), torch.randint(0, 2, (B, T))
        logits = head(hidden)[..., 0]
        loss = loss + 3 * F.binary_cross_entropy_with_logits(logits[real], labels[real].double())
        data |= {"replaced": labels, "replaced_logits": logits}
    loss.backward()

    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({key: p.detach().clone() for key, p in parameters.items()}, folder / "model.safetensors")
    gradients = {f"grad.{key}": p.grad for key, p in parameters.items() if p.grad is not None}
    save({**data, "hidden": hidden, "logits": words, "loss": loss[None], **gradients}, folder)


if __name__ == "__main__":
    compute_in_float64()
    for each in MODELS:
        make(each)
