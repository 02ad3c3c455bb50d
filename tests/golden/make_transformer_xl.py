"""Makes tests/golden/transformer_xl/: tiny random models of the last `transformers` with Transformer-XL, in float64.

    python -m venv xl && xl/bin/pip install torch==2.13.0 transformers==4.57.6
    xl/bin/python tests/golden/make_transformer_xl.py
    xl/bin/python tests/golden/make_transformer_xl.py FOLDER …       instead: open folders that we saved, and compare

Each folder holds a model as `transformers` writes it; expected.safetensors holds inputs, every hidden state, attention
weights, log-probabilities, the memory for the next segment, the loss and the gradient of every weight. With folders as
arguments (copies of these that Mini-BERT has loaded and saved), the same numbers are computed from them.

Two lines of that version are repaired here: it fails on a call of `type_as`, and it would round scores to float32.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)  # before the model computes the frequencies of its waves
torch.Tensor.type_as = lambda self, other=None, dtype=None: self.to(other.dtype if dtype is None else dtype)
torch.Tensor.float = lambda self: self

from transformers.models.deprecated.transfo_xl import (  # noqa: E402
    TransfoXLConfig,
    TransfoXLForSequenceClassification,
    TransfoXLLMHeadModel,
)

HERE = Path(__file__).parent / "transformer_xl"
SMALL = {"vocab_size": 19, "d_model": 6, "n_head": 2, "d_head": 5, "d_inner": 7, "n_layer": 2, "dropout": 0.1,
         "dropatt": 0.1, "tgt_len": 5}  # fmt: skip
VARIANTS = {
    "adaptive": SMALL | {"cutoffs": [7, 13], "d_embed": 8, "div_val": 2, "mem_len": 4, "clamp_len": 3,
                         "same_length": True},
    "projected": SMALL | {"cutoffs": [7, 13], "d_embed": 4, "div_val": 1, "mem_len": 7, "clamp_len": -1,
                          "same_length": False, "untie_r": False},
    "pre_norm": SMALL | {"cutoffs": [], "d_embed": 6, "div_val": 1, "mem_len": 3, "clamp_len": 6, "same_length": False,
                         "pre_lnorm": True},
    "untied": SMALL | {"cutoffs": [11], "d_embed": 6, "div_val": 2, "mem_len": 6, "clamp_len": -1, "same_length": True,
                       "proj_share_all_but_first": False, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-2,
                       "n_layer": 1},
    "no_memory": SMALL | {"cutoffs": [9], "d_embed": 6, "div_val": 1, "mem_len": 0, "same_length": False,
                          "n_layer": 1},
}  # fmt: skip
REMEMBERED = {"projected": 4, "pre_norm": 3, "untied": 6}  # M; the others start without a memory
B, T = 2, 5


def make(name: str) -> None:
    torch.manual_seed(len(name))
    config = TransfoXLConfig(**VARIANTS[name])
    model = randomised(TransfoXLLMHeadModel(config))
    inputs = {"ids": torch.randint(0, config.vocab_size, (B, T)), "labels": torch.randint(0, config.vocab_size, (B, T))}
    inputs["labels"][1, 3:] = -100  # padding
    for block in range(config.n_layer if name in REMEMBERED else 0):
        inputs[f"memory.{block}"] = torch.randn(B, REMEMBERED[name], config.d_model)
    save(name, model, inputs | compute(model, inputs))


def make_classifier(name: str) -> None:
    """A TransfoXLForSequenceClassification, whose texts end with padding"""
    torch.manual_seed(len(name))
    config = TransfoXLConfig(**SMALL | {"vocab_size": 39, "cutoffs": [11], "d_embed": 6, "div_val": 1, "mem_len": 3,
                                        "n_layer": 1, "pad_token_id": 0, "num_labels": 3})  # fmt: skip
    model = randomised(TransfoXLForSequenceClassification(config))
    ids, labels = torch.randint(1, config.vocab_size, (B, T)), torch.tensor([2, 0])
    ids[1, 3:] = 0
    output = model(ids, labels=labels)
    output.loss.backward()
    found = {"ids": ids, "labels": labels, "loss": output.loss[None], "logits": output.logits}
    save(name, model, found | {f"grad.{key}": p.grad for key, p in model.named_parameters()})


def randomised(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def save(name: str, model, expected: dict[str, torch.Tensor]) -> None:
    config, folder = model.config, HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, safe_serialization=config.untie_r)  # it refuses to write shared biases safely
    (folder / "generation_config.json").unlink(missing_ok=True)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    save_file({key: array.detach().clone().contiguous() for key, array in expected.items()},
              folder / "expected.safetensors")  # fmt: skip
    for path in folder.iterdir():
        path.chmod(0o644)
    print(f"{name}: loss {expected['loss'].item():.6f}, {sum(p.stat().st_size for p in folder.iterdir()) / 1e3:.0f} kB")


def compute(model, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    memory = [array.transpose(0, 1) for key, array in inputs.items() if key.startswith("memory.")] or None
    output = model(inputs["ids"], mems=memory, output_hidden_states=True, output_attentions=True)
    loss = model(inputs["ids"], mems=memory, labels=inputs["labels"].clone()).loss
    model.zero_grad()
    loss.backward()
    found = {"loss": loss[None], "log_p": output.prediction_scores}
    found |= {f"hidden.{index}": state for index, state in enumerate(output.hidden_states)}
    found |= {f"attention.{index}": weights for index, weights in enumerate(output.attentions)}
    found |= {f"next_memory.{index}": state.transpose(0, 1) for index, state in enumerate(output.mems or ())}
    return found | {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}


def compare(folder: Path) -> None:
    """Open a folder that we saved, whose name is that of a variant."""
    model, info = TransfoXLLMHeadModel.from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
    model = model.double().eval()  # it reads projections and biases as float32
    expected = load_file(HERE / folder.name / "expected.safetensors")
    found = compute(model, expected)
    apart = {
        name: (array - expected[name]).abs().max().item()
        for name, array in found.items()
        if name in expected and array is not None  # from_pretrained separates biases that blocks share
    }
    odd = {name: names for name, names in info.items() if names} or "all tensors used"
    print(f"{folder.name}: {len(apart)} arrays, largest difference {max(apart.values()):.1e}; {odd}")


if __name__ == "__main__":
    if sys.argv[1:]:
        for folder in sys.argv[1:]:
            compare(Path(folder))
    else:
        for variant in VARIANTS:
            make(variant)
        make_classifier("classifier")
