"""Makes the reference numbers in tests/golden/: tiny random models, computed by PyTorch in float64.

    python tests/golden/make_models.py            (needs torch and transformers: `python run.py test --peers`)

bert/       a BertForPreTraining of `transformers`, with config.json and model.safetensors in the published format;
            expected.safetensors holds inputs, outputs, the loss (masked words + next sentence), and the
            gradient of every tensor by autograd
mini_bert/  the same for Mini-BERT's mathematics, written here with PyTorch's own functions; training.json holds the
            losses of 20 steps of training

The default tests compare our forward and backward with these files, without torch.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from recipe import training_batch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import BertConfig, BertForPreTraining

HERE = Path(__file__).parent
B, T = 3, 7


def batch(vocab: int, types: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, 4:] = 0
    mask[2, 6:] = 0
    return {
        "input_ids": torch.randint(1, vocab, (B, T)) * mask,  # 0 is padding: PyTorch keeps its row's gradient at 0
        "token_type_ids": torch.randint(0, types, (B, T)),
        "attention_mask": mask,
        "rows": torch.tensor([1, 3, 5, 8, 10, 14, 19]),
        "targets": torch.randint(0, vocab, (7,)),
        "next_sentence": torch.tensor([0, 1, 0]),
    }


def randomise(parameters) -> None:
    """Biases and norms are initialised to 0 and 1, where mistakes can hide; move all weights away from their initial
    values."""
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.3 * torch.randn_like(parameter))


def make_bert(folder: Path) -> None:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=31, hidden_size=10, num_hidden_layers=2, num_attention_heads=2, intermediate_size=13,
        max_position_embeddings=11, type_vocab_size=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    model = BertForPreTraining(config).double()
    randomise(model.parameters())
    model.tie_weights()
    data = batch(config.vocab_size, config.type_vocab_size)
    encoder_inputs = {name: data[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    hidden, pooled = model.bert(**encoder_inputs, return_dict=False)
    output = model(**encoder_inputs)
    chosen = output.prediction_logits.reshape(B * T, -1)[data["rows"]]
    loss = F.cross_entropy(chosen, data["targets"]) + F.cross_entropy(
        output.seq_relationship_logits, data["next_sentence"]
    )
    loss.backward()
    expected = {
        **data,
        "hidden": hidden,
        "pooled": pooled,
        "masked_words": output.prediction_logits,
        "next_sentence_logits": output.seq_relationship_logits,
        "loss": loss[None],
        **{f"grad.{name}": p.grad for name, p in model.named_parameters()},
    }
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")  # the same weights in the older kind of file
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save(expected, folder)


def make_mini_bert(folder: Path) -> None:
    """Mini-BERT's formulas (SPEC: post-norm, no attention bias, ReLU, final norm, untied head), in PyTorch."""
    torch.manual_seed(2)
    V, H, L, A, I = 31, 10, 2, 2, 13
    config = {
        "model_type": "mini_bert", "vocab_size": V, "hidden_size": H, "num_layers": L, "num_heads": A,
        "intermediate_size": I, "max_seq_length": 11,
    }  # fmt: skip

    def weight(*shape: int) -> torch.Tensor:
        return (0.4 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()

    w = {"tokens.table": weight(V, H), "positions.table": weight(11, H)}
    for index in range(L):
        name = f"encoder.blocks.{index}"
        w |= {
            f"{name}.attention.qkv.w": weight(H, 3 * H), f"{name}.attention.output.w": weight(H, H),
            f"{name}.attention_norm.gamma": weight(H), f"{name}.attention_norm.beta": weight(H),
            f"{name}.feed_forward.expand.w": weight(H, I), f"{name}.feed_forward.expand.b": weight(I),
            f"{name}.feed_forward.contract.w": weight(I, H), f"{name}.feed_forward.contract.b": weight(H),
            f"{name}.output_norm.gamma": weight(H), f"{name}.output_norm.beta": weight(H),
        }  # fmt: skip
    w |= {
        "final_norm.gamma": weight(H),
        "final_norm.beta": weight(H),
        "head.w": weight(H, V),
        "head.b": weight(V),
    }

    data = batch(V, 2)
    hidden, logits = mini_bert(w, L, A, data["input_ids"], data["attention_mask"])
    loss = F.cross_entropy(logits.reshape(B * T, V)[data["rows"]], data["targets"])
    loss.backward()

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({name: array.detach() for name, array in w.items()}, folder / "model.safetensors")
    grads = {f"grad.{name}": array.grad for name, array in w.items()}
    save({**data, "hidden": hidden, "logits": logits, "loss": loss[None], **grads}, folder)
    losses = make_training(w, L, A)
    (folder / "training.json").write_text(json.dumps(losses, indent=1) + "\n")


def mini_bert(w: dict[str, torch.Tensor], L: int, A: int, ids: torch.Tensor, mask: torch.Tensor):
    """Returns hidden (B,T,H) and logits (B,T,V)"""
    B, T = ids.shape
    H = w["tokens.table"].shape[1]
    visible = mask.bool()[:, None, None, :]
    x = w["tokens.table"][ids] + w["positions.table"][:T]
    for index in range(L):
        name = f"encoder.blocks.{index}"
        q, k, v = (
            part.reshape(B, T, A, H // A).transpose(1, 2) for part in (x @ w[f"{name}.attention.qkv.w"]).chunk(3, -1)
        )
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).reshape(B, T, H)
        attended = context @ w[f"{name}.attention.output.w"]
        x = F.layer_norm(x + attended, (H,), w[f"{name}.attention_norm.gamma"], w[f"{name}.attention_norm.beta"], 1e-5)
        inner = torch.relu(x @ w[f"{name}.feed_forward.expand.w"] + w[f"{name}.feed_forward.expand.b"])
        thought = inner @ w[f"{name}.feed_forward.contract.w"] + w[f"{name}.feed_forward.contract.b"]
        x = F.layer_norm(x + thought, (H,), w[f"{name}.output_norm.gamma"], w[f"{name}.output_norm.beta"], 1e-5)
    hidden = F.layer_norm(x, (H,), w["final_norm.gamma"], w["final_norm.beta"], 1e-5)
    return hidden, hidden @ w["head.w"] + w["head.b"]


def make_training(w: dict[str, torch.Tensor], L: int, A: int, steps: int = 20) -> list[float]:
    """The losses of 20 steps of AdamW from these weights, with warm-up and decay, clipping, and two micro-batches per
    step."""
    w = {name: array.detach().clone().requires_grad_() for name, array in w.items()}
    groups = [
        {"params": [array for array in w.values() if array.ndim > 1], "weight_decay": 0.01},
        {"params": [array for array in w.values() if array.ndim == 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=1.0)
    losses = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 0.02 * min((step + 1) / 5, 1 - step / steps)
        optimiser.zero_grad()
        parts = training_batch(step, len(w["tokens.table"]))
        count = sum(len(rows) for _, rows, _ in parts)
        total = 0.0
        for ids, rows, targets in parts:
            _, logits = mini_bert(w, L, A, torch.tensor(ids), torch.ones(ids.shape))
            chosen = logits.reshape(ids.size, -1)[torch.tensor(rows)]
            loss = F.cross_entropy(chosen, torch.tensor(targets), reduction="sum") / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        optimiser.step()
        losses.append(total)
    return losses


def save(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()},
        folder / "expected.safetensors",
    )
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"{folder.name}: loss {tensors['loss'].item():.6f}, {size / 1e3:.0f} kB in {len(list(folder.iterdir()))} files"
    )


if __name__ == "__main__":
    make_bert(HERE / "bert")
    make_mini_bert(HERE / "mini_bert")
