"""A tiny vocabulary, and records of a training run that never happened."""

import math

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "cats",
    "purr",
    "dogs",
    "bark",
    "birds",
    "sing",
    "fish",
    "swim",
    ".",
]


def made_up_run(steps: int = 4000, every: int = 50) -> list[dict]:
    """The loss falls to the unigram baseline, stays there for a while, and falls again."""
    records: list[dict] = [{"kind": "start", "step": 0, "unigram_loss": 6.51, "steps": steps, "tokens_per_step": 2048}]
    for step in range(every, steps + 1, every):
        loss = 6.35 + 2.7 * math.exp(-step / 150) - 2.2 / (1 + math.exp(-(step - 2200) / 350)) + 0.05 * math.sin(step)
        records.append(
            {
                "kind": "train",
                "step": step,
                "loss": loss,
                "accuracy": 0.5 * math.exp(-loss / 4),
                "lr": 1e-3 * min(step / 400, (steps - step) / (steps - 400)),
                "grad_norm": 1.3 + 0.2 * math.sin(step / 70),
                "tokens_per_second": 34_000.0,
                "seconds": 0.06 * step,
                "eta": 0.06 * (steps - step),
                "memory_mb": 180.2,
            }
        )
        if step % 500 == 0:
            held = {"loss": loss + 0.08, "perplexity": math.exp(loss + 0.08), "top1": 0.2, "top5": 0.4}
            records.append({"kind": "eval", "step": step, **held})
    return records
