"""Makes tests/golden/xlnet/: tiny random models of `transformers`, computed in float64.

    python tests/golden/make_xlnet.py            (needs torch and transformers: `python run.py test --peers`)

Each folder holds an XLNetLMHeadModel as `transformers` writes it; expected.safetensors holds inputs (with the order of
prediction), hidden states of both streams, logits, the memory for the next segment, the loss and every gradient.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import XLNetConfig, XLNetLMHeadModel

torch.Tensor.float = torch.Tensor.double  # or it would compute its waves in float32

HERE = Path(__file__).parent / "xlnet"
SMALL = {"vocab_size": 19, "d_model": 6, "n_layer": 2, "n_head": 3, "d_inner": 7}
VARIANTS = {
    "ordered": SMALL | {"mem_len": 5},  # memory, padding, two texts and an order of prediction
    "plain": SMALL | {"n_layer": 1, "mem_len": None, "ff_activation": "relu", "clamp_len": 2},
    "reversed": SMALL | {"n_layer": 1, "n_head": 2, "bi_data": True, "mem_len": 6, "reuse_len": 3},
}
B, T, M, N = 2, 6, 4, 2


def make(name: str) -> None:
    torch.manual_seed(len(name))
    config = XLNetConfig(**VARIANTS[name], dropout=0.0)
    model = XLNetLMHeadModel(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.tie_weights()
    V = config.vocab_size
    data = {"ids": torch.randint(0, V, (B, T)), "targets": torch.randint(0, V, (B * N,))}
    given: dict[str, object] = {"input_ids": data["ids"]}
    if name != "plain":
        data["order"] = torch.tensor([[0, 0, 2, 0, 1, 0], [0, 0, 0, 1, 0, 2]])
        data["chosen"] = torch.tensor([[2, 4], [3, 5]])
        later = data["order"][:, None, :] > data["order"][:, :, None]
        given["perm_mask"] = (later | torch.eye(T, dtype=torch.bool)).double()
        given["target_mapping"] = F.one_hot(data["chosen"], T).double()
        data |= {f"memory.{block}": torch.randn(B, M, config.d_model, dtype=torch.double)
                 for block in range(config.n_layer)}  # fmt: skip
        given["mems"] = [data[f"memory.{block}"].transpose(0, 1) for block in range(config.n_layer)]
    if name == "ordered":
        data["types"] = given["token_type_ids"] = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 2]])
        data["mask"] = given["attention_mask"] = torch.tensor([[1] * T, [0, 1, 1, 1, 1, 1]])
    output = model(**given, output_hidden_states=True)
    logits = output.logits if name != "plain" else output.logits[:, :N]
    loss = F.cross_entropy(logits.reshape(B * N, -1), data["targets"])
    loss.backward()
    expected = data | {"loss": loss[None], "logits": output.logits}
    expected |= {f"hidden.{index}": state for index, state in enumerate(output.hidden_states)}
    expected |= {f"next_memory.{index}": state.transpose(0, 1) for index, state in enumerate(output.mems)}
    expected |= {f"grad.{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    save_file({key: array.detach().clone().contiguous() for key, array in expected.items()},
              folder / "expected.safetensors")  # fmt: skip
    for path in folder.iterdir():
        path.chmod(0o644)
    print(f"{name}: loss {loss.item():.6f}, {sum(path.stat().st_size for path in folder.iterdir()) / 1e3:.0f} kB")


if __name__ == "__main__":
    for variant in VARIANTS:
        make(variant)
