"""Trains a deep model with two initialisations: plain, and with the outputs of all blocks scaled by 1/√(2L).

    python benchmarks/depth_init.py                              12 layers of width 96, 150 steps: a few minutes
    python benchmarks/depth_init.py --layers 24 --lr 2e-3
    python benchmarks/depth_init.py --model larger --steps 150   Larger-BERT itself: an hour on two cores

Text, masks, seed and learning rate are the same. Prints the held-out loss at intervals. The column "corr" is the
correlation of the final vectors with the embeddings, before the first step.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import word_counts
from mini_bert.inference.loading import bundled_tokenizer
from mini_bert.layers.base import Run
from mini_bert.models.config import INITS, MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import load_config
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.loop import held_out_loss
from mini_bert.training.optim import Adam, lr_schedule
from mini_bert.training.parallel import Team


def correlation_with_embeddings(model: MiniBERT, ids: np.ndarray) -> float:
    y, cache = model.encode(ids, run=Run())
    x, _ = model.final_norm.forward(cache.embedded, Run())
    return float((x * y).mean())


def train(config: MiniBertConfig, batches: MLMDataGenerator, options: argparse.Namespace, seed: int) -> list[float]:
    """Returns the held-out losses, every `--every` steps."""
    model = MiniBERT(config, seed=seed)
    batches.objective.start(model, word_counts(batches))
    adam, validation, losses = Adam(model.flat), batches.validation(batch_size=16), []
    correlation = correlation_with_embeddings(model, batches.batch(0).input_ids)
    start, clipped = time.perf_counter(), 0
    with Team(model, options.threads) as team:
        for step in range(options.steps):
            parts = [batches.batch(2 * step), batches.batch(2 * step + 1)]
            outcome = team.gradient(parts, seed=(seed, step))
            clipped += outcome.norm > 1
            lr = options.lr * lr_schedule((step + 1) / (options.steps + 1), options.warmup)
            adam.step(lr, scale=min(1.0, 1 / outcome.norm), map=team.map)
            if (step + 1) % options.every == 0:
                losses.append(held_out_loss(team, validation, options.measured)["masked_words"].loss)
    seconds = time.perf_counter() - start
    shown = "".join(f"{loss:8.3f}" for loss in losses)
    print(
        f"{config.init:14}{seed:5}{correlation:8.2f}{shown}{clipped / options.steps:8.0%}{seconds:7.0f} s", flush=True
    )
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="mini or larger; default: a small, deep model")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--measured", type=int, default=256, help="held-out sequences to evaluate on")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=8, help="sequences per thread")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--inits", nargs="+", default=list(INITS), choices=INITS)
    parser.add_argument("--corpus", nargs="+", default=["builtin"])
    options = parser.parse_args()
    small = MiniBertConfig(
        hidden_size=options.width, num_layers=options.layers, num_heads=max(1, options.width // 48),
        intermediate_size=4 * options.width, dropout=0.1,
    )  # fmt: skip
    config = load_config(options.model) if options.model else small
    tokenizer = WordPieceTokenizer.load(bundled_tokenizer(MiniBERT, config.vocab_size))
    batches = MLMDataGenerator(
        options.corpus, tokenizer, config.max_seq_length, options.batch, held_out=0.05, progress=False
    )
    steps = range(options.every, options.steps + 1, options.every)
    print(f"{config.num_layers} layers of width {config.hidden_size}, learning rate {options.lr:g}, held-out loss")
    print(f"{'init':14}{'seed':>5}{'corr':>8}" + "".join(f"{step:8}" for step in steps) + f"{'clipped':>8}")
    for seed in options.seeds:
        for init in options.inits:
            train(replace(config, init=init), batches, options, seed)


if __name__ == "__main__":
    main()
