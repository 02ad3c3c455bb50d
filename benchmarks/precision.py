"""What 16 bits save and what they cost: the same training, with weights, caches and moments kept in different ways.

    python benchmarks/precision.py                            500 steps of Mini-BERT for each choice, built-in corpus
    python benchmarks/precision.py --model larger --steps 500 --choices float32 moments+activations

Every run has the same first weights, text and masks. Memory is counted from the arrays themselves: weights, Adam's two
moments, and the caches that one micro-batch of 16 sequences keeps between forward and backward. The loss is that of
held-out text at the end; the ratio is to float32.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from mini_bert.config import TrainingConfig, load_config
from mini_bert.data import MLMDataGenerator
from mini_bert.layers.base import Run
from mini_bert.model import MiniBERT
from mini_bert.optim import Adam, course
from mini_bert.parallel import Team
from mini_bert.pretraining import TOKENIZERS, default_learning_rate
from mini_bert.switches import apply
from mini_bert.tokenizer import WordPieceTokenizer
from mini_bert.train import held_out_loss

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
    """Of the arrays in a cache, each counted once, however many views of it there are"""
    seen = set() if seen is None else seen
    if isinstance(tree, np.ndarray):
        while isinstance(tree.base, np.ndarray):
            tree = tree.base
        known = id(tree) in seen
        seen.add(id(tree))
        return 0.0 if known else tree.nbytes / 1e6
    return sum(megabytes(branch, seen) for branch in tree) if isinstance(tree, tuple | list) else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", nargs="+", default=["builtin"])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, help="default: that of `mini-bert train` for the model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    options = parser.parse_args()
    config = load_config(options.model)
    tokenizer = WordPieceTokenizer.load(TOKENIZERS[config.vocab_size])
    peak = options.lr or default_learning_rate(config)
    print(f"{options.model}, {options.steps} steps, learning rate {peak:g}\n")
    print("| kept in 16 bits | weights, MB | moments, MB | caches, MB | held-out loss | ratio | ms a step |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    reference = None
    for name in options.choices:
        settings = TrainingConfig(steps=options.steps, **CHOICES[name])
        batches = MLMDataGenerator(
            options.corpus, tokenizer, config.max_seq_length, 16, held_out=0.05, progress=False, seed=0
        )
        validation = batches.validation(batch_size=32)
        model = MiniBERT(config)
        apply(model, settings)
        adam = Adam(model.flat, moments=settings.moments)
        batch = batches.batch(0)
        _, cache = model.loss(*batch[:4], run=Run(0, train=True))
        caches = megabytes(cache.encoded)
        del cache
        with Team(model, options.threads) as team:
            start = time.perf_counter()
            for step in range(1, options.steps + 1):
                outcome = team.gradient([next(batches) for _ in range(2)], seed=(0, step))
                lr = peak * course(step / (options.steps + 1), 0.3)
                adam.step(lr, scale=min(1.0, 1 / outcome.norm), each=team.each)
            seconds = time.perf_counter() - start
            loss = held_out_loss(team, validation, 1024).loss
        reference = loss if reference is None else reference
        print(
            f"| {name} | {model.flat.data.nbytes / 1e6:.1f} | {2 * adam.m.nbytes / 1e6:.1f} | {caches:.1f} "
            f"| {loss:.4f} | {loss / reference:.4f} | {1e3 * seconds / options.steps:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
