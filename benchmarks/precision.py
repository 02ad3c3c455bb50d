"""Cost and benefit of 16 bits: the same training with weights, activations and moments in float32 or in 16 bits.

    python benchmarks/precision.py                            500 steps of Mini-BERT for each choice, built-in corpus
    python benchmarks/precision.py --seeds 3 --choices float32 moments+activations
    python benchmarks/precision.py --model larger --steps 500 --choices float32 moments+activations

All runs have the same initial weights, text and masks. Memory is counted from the arrays: weights, Adam's two
moments, and the caches that one micro-batch of 16 sequences keeps between forward and backward. The loss is the final
loss on held-out text; the ratio is to the first choice with the same seed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.progress import counted
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.inference.loading import bundled_tokenizer
from mini_bert.layers.base import Run
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import load_config
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.defaults import default_learning_rate
from mini_bert.training.loop import held_out_loss
from mini_bert.training.optim import Adam, lr_schedule
from mini_bert.training.parallel import Team
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import apply

PARTS = ("weights", "activations", "moments")
CHOICES: dict[str, dict[str, Any]] = {  # as in a TrainingConfig
    "float32": {},
    "moments": {"moments": "bfloat16"},
    "activations": {"activations": "bfloat16"},
    "weights": {"weights": "bfloat16"},
    "moments+activations": {"activations": "bfloat16", "moments": "bfloat16"},
    "all": dict.fromkeys(PARTS, "bfloat16"),
    "all, float16": dict.fromkeys(PARTS, "float16"),
}


def megabytes(tree: Any, seen: set[int] | None = None) -> float:
    """The size of the arrays in a cache; several views of one array count once."""
    seen = set() if seen is None else seen
    if isinstance(tree, np.ndarray):
        while isinstance(tree.base, np.ndarray):
            tree = tree.base
        known = id(tree) in seen
        seen.add(id(tree))
        return 0.0 if known else tree.nbytes / 1e6
    return sum(megabytes(branch, seen) for branch in tree) if isinstance(tree, tuple | list) else 0.0


class Measured(NamedTuple):
    weights: float  # MB
    moments: float
    caches: float
    loss: float  # on held-out text, at the end
    ms: float  # per step


def train(config: MiniBertConfig, choice: str, seed: int, options: argparse.Namespace) -> Measured:
    settings = TrainingConfig(steps=options.steps, **CHOICES[choice])
    tokenizer = WordPieceTokenizer.load(bundled_tokenizer(MiniBERT, config.vocab_size))
    batches = MLMDataGenerator(
        options.corpus, tokenizer, config.max_seq_length, 16, held_out=0.05, progress=False, seed=seed
    )
    validation = batches.validation(batch_size=32)
    model = MiniBERT(config, seed=seed)
    apply(model, settings)
    adam = Adam(model.flat, moments=settings.moments)
    _, cache = model.loss(*batches.batch(0)[:4], run=Run(0, train=True))
    caches = megabytes(cache.encoded)
    del cache
    with Team(model, options.threads) as team:
        start = time.perf_counter()
        for step in range(1, options.steps + 1):
            outcome = team.gradient([next(batches) for _ in range(2)], seed=(seed, step))
            lr = options.lr * lr_schedule(step / (options.steps + 1), 0.3)
            adam.step(lr, scale=min(1.0, 1 / outcome.norm), map=team.map)
        seconds = time.perf_counter() - start
        loss = held_out_loss(team, validation, 1024)["masked_words"].loss
    weights, moments = model.flat.data.nbytes / 1e6, 2 * adam.m.nbytes / 1e6
    return Measured(weights, moments, caches, loss, 1e3 * seconds / options.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", nargs="+", default=["builtin"])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, help="default: that of `mini-bert train`")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    options = parser.parse_args()
    config = load_config(options.model)
    options.lr = options.lr or default_learning_rate(config)
    print(f"{options.model}, {options.steps} steps, learning rate {options.lr:g}; {counted(options.seeds, 'seed')}\n")
    print("| stored in 16 bits | weights, MB | moments, MB | caches, MB | held-out loss | ratio | ms per step |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    first: list[float] = []
    for name in options.choices:
        runs = [train(config, name, seed, options) for seed in range(options.seeds)]
        losses = [run.loss for run in runs]
        first = first or losses
        ratios = [loss / reference for loss, reference in zip(losses, first, strict=True)]
        weights, moments, caches, loss, ms = (statistics.fmean(column) for column in zip(*runs, strict=True))
        each = f" ({', '.join(f'{ratio:.4f}' for ratio in ratios)})" if options.seeds > 1 else ""
        print(
            f"| {name} | {weights:.1f} | {moments:.1f} | {caches:.1f} | {loss:.4f} "
            f"| {statistics.fmean(ratios):.4f}{each} | {ms:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
