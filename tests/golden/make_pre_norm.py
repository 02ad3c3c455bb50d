"""Makes tests/golden/gpt2 and tests/golden/modernbert: tiny random models of `transformers`, computed in float64.

    python tests/golden/make_pre_norm.py          (needs torch and transformers: `python run.py test --peers`)

Each folder is a model folder, and expected.safetensors holds inputs, outputs, the gradient that arrives at the logits,
and the gradient of every tensor by autograd. For GPT-2 it also holds what `generate` writes after two prompts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

# ModernBERT computes some steps in float32, whatever its weights are. Here they are float64.
torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double

from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

HERE = Path(__file__).parent
B, T, V = 3, 9, 31


def make(folder: Path, model, **more: torch.Tensor) -> None:
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, 4:] = 0
    mask[2, 8:] = 0
    ids = torch.randint(4, V, (B, T)) * mask
    output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    dlogits = torch.randn(B, T, V, dtype=torch.float64) * mask[..., None]
    (output.logits * dlogits).sum().backward()
    expected = {
        "input_ids": ids,
        "attention_mask": mask,
        "hidden": output.hidden_states[-1],
        "logits": output.logits,
        "dlogits": dlogits,
        **more,
        **{f"grad.{name}": p.grad for name, p in model.named_parameters()},
    }
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in expected.items()},
        folder / "expected.safetensors",
    )
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)
    print(f"{folder.name}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e3:.0f} kB")


def randomised(model):
    """Biases and norms are initialised to 0 and 1, where mistakes can hide; move all weights away from there."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.tie_weights()
    return model


def make_gpt2() -> None:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=V, n_positions=11, n_embd=10, n_layer=2, n_head=2, n_inner=13, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model = randomised(GPT2LMHeadModel(config))
    prompts = torch.randint(4, V, (2, 3))
    with torch.no_grad():
        written = [
            model.generate(
                prompt[None], attention_mask=torch.ones(1, 3), max_new_tokens=8, do_sample=False, eos_token_id=None
            )[0]
            for prompt in prompts
        ]
    make(HERE / "gpt2", model, prompts=prompts, written=torch.stack(written))


def make_modernbert() -> None:
    torch.manual_seed(4)
    config = ModernBertConfig(
        vocab_size=V, hidden_size=12, intermediate_size=7, num_hidden_layers=3, num_attention_heads=2,
        max_position_embeddings=11, local_attention=4, global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2, attn_implementation="eager",
    )  # fmt: skip
    make(HERE / "modernbert", randomised(ModernBertForMaskedLM(config)))


if __name__ == "__main__":
    make_gpt2()
    make_modernbert()
