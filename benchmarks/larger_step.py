"""The time of one optimiser step of Larger-BERT, compared with PyTorch; the effect of checkpointing; peak memory.

    python benchmarks/larger_step.py                    5 rounds of one step each; needs torch (run.py test --peers)
    python benchmarks/larger_step.py --rounds 3 --no-compile
    python benchmarks/larger_step.py --no-torch         ours only: plain and checkpointed
    python benchmarks/larger_step.py --memory           peak memory of real runs at batch 1, 4 and 8 instead (Linux)

A step is 4 × 8 × 128 tokens, 15 % of them chosen, dropout 0.1 in both: forward, backward, clipping, Adam with decoupled
decay. PyTorch runs the model of train_step.py at Larger-BERT's sizes: fused AdamW, scaled dot-product attention, the
head on the chosen rows only. Before timing, the losses of two steps are compared with dropout off, from the same
weights; with dropout, each draws its own masks, so the losses are only similar.

The activations are the peak memory that one micro-batch of 8 sequences allocates on top of weights, gradients and
moments.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from dataclasses import replace

import numpy as np
from peak_memory import peak_of_training
from train_step import CLIP, LR, PARTS, Step, batches, joined, numbers_of_a_step, peak, peer

from mini_bert.common.memory import share_memory_among_threads
from mini_bert.data.generator import Batch
from mini_bert.layers.base import Run
from mini_bert.models.config import LARGER_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.training.optim import Adam
from mini_bert.training.parallel import Team
from mini_bert.training.plan import Choice, best_choice, describe, predicted_peak, train_options
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import Wanted
from mini_bert.training.switches import apply

PLAIN, AGAIN = "Larger-BERT", "Larger-BERT, checkpointing"


def ours(threads: int, config: MiniBertConfig, checkpointing: bool = False) -> tuple[Step, MiniBERT, Team]:
    model = MiniBERT(config)
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    adam, team, count = Adam(model.flat, LR), Team(model, threads), iter(range(1 << 60))

    def step(parts: list[Batch], lr: float = LR) -> float:
        with team:
            outcome = team.gradient(parts, seed=(0, next(count)))
            adam.step(lr, scale=min(1.0, CLIP / outcome.norm), map=team.map)
        return outcome.loss

    return step, model, team


def same_function(threads: int, data: list[Batch], grouped: list[Batch]) -> None:
    """Take a step without dropout from the same weights; the second loss shows whether the weights changed in
    the same way."""
    config = replace(LARGER_BERT_CONFIG, dropout=0.0)
    step, model, _ = ours(threads, config)
    rival = peer(model, False, False)
    for number in (1, 2):
        mine, theirs = step(grouped), rival(data)
        print(f"step {number} without dropout: loss {mine:.4f} (ours), {theirs:.4f} (PyTorch)")
        if abs(mine - theirs) > 2e-3:
            raise SystemExit("PyTorch computes a different function, so the speeds are not compared")


def activations(checkpointing: bool, sequences: int = 8) -> float:
    """Peak bytes that one forward and backward pass allocates"""
    model = MiniBERT(LARGER_BERT_CONFIG)
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    (part,) = batches(1, 1, sequences, LARGER_BERT_CONFIG)[0]
    tracemalloc.start()
    try:
        _, cache = model.loss(*part[:3], run=Run(0, train=True, pool=model.run.pool))
        model.loss_backward(cache)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory_table(threads: int) -> None:
    """Peaks with one thread, with the settings that `mini-bert plan` picks for 1 GB, and with smaller settings."""
    print("| batch | settings | predicted, MB | measured, MB |\n|---:|---|---:|---:|")
    for batch in (1, 4, 8):
        plain = Choice(batch, 1)
        lean = best_choice(describe(LARGER_BERT_CONFIG), batch, threads, 1e9)
        small = Choice(1, 1, True, moments="bfloat16")
        for name, choice in {"plain": plain, "fits 1 GB": lean, "smaller still": small}.items():
            if choice is None:
                print(f"| {batch} | {name}: impossible | | |")
                continue
            words = train_options(Wanted("larger"), batch, choice)
            measured = peak_of_training(*words, steps=3)
            predicted = predicted_peak(describe(LARGER_BERT_CONFIG), choice)
            shown = " ".join(words[4:])
            print(f"| {batch} | {name}: `{shown}` | {predicted / 1e6:.0f} | {measured / 1e6:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", type=int, default=2, help="micro-batches of 8 that we process at once")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.memory:
        memory_table(options.threads)
        return

    share_memory_among_threads()  # as training does
    held, held_again = activations(False), activations(True)
    print(f"activations of 8 × 128 tokens: {held / 1e6:.0f} MB plain, {held_again / 1e6:.0f} MB with checkpointing, "
          f"{held_again / held:.0%}", flush=True)  # fmt: skip
    (data,) = batches(1, c=LARGER_BERT_CONFIG)
    grouped = [joined(data[i : i + options.group]) for i in range(0, PARTS, options.group)]
    if not options.no_torch:
        import torch

        torch.set_num_threads(options.threads)
        same_function(options.threads, data, grouped)
        gc.collect()
    steps: dict[str, tuple[Step, list[Batch]]] = {}
    mine, model, team = ours(options.threads, LARGER_BERT_CONFIG)
    steps[PLAIN] = mine, grouped
    steps[AGAIN] = ours(options.threads, LARGER_BERT_CONFIG, checkpointing=True)[0], grouped
    if not options.no_torch:
        for compiled in (False,) if options.no_compile else (False, True):
            for whole in (False, True):
                name = f"PyTorch{' compiled' if compiled else ''}, {'32 at once' if whole else '4 × 8'}"
                steps[name] = peer(model, compiled, whole), data
    for step, parts in steps.values():  # warm-up: compilation, first use of memory
        step(parts)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(options.rounds):
        order = list(steps) if number % 2 else list(reversed(steps))
        for name in order:
            step, parts = steps[name]
            start = time.perf_counter()
            step(parts)
            times[name].append(time.perf_counter() - start)
        print(f"round {number + 1}: " + ", ".join(f"{name} {times[name][-1]:.2f} s" for name in order), flush=True)
    report(times, data, options.threads, team)


def report(times: dict[str, list[float]], data: list[Batch], threads: int, team: Team) -> None:
    tokens = sum(part.input_ids.size for part in data)
    print(f"\n{'':30}{'s per step':>10}{'tokens/s':>10}{'ours takes':>12}")
    ratios = {}
    for name, found in times.items():
        ratios[name] = statistics.median(own / other for own, other in zip(times[PLAIN], found, strict=True))
        median = statistics.median(found)
        print(f"{name:30}{median:10.2f}{tokens / median:10,.0f}" + ("" if name == PLAIN else f"{ratios[name]:11.2f}×"))
    rivals = [name for name in times if name.startswith("PyTorch")]
    if rivals:
        fastest = min(rivals, key=lambda name: statistics.median(times[name]))
        print(f"\nLarger-BERT takes {ratios[fastest]:.2f}× the time of {fastest}, the fastest PyTorch variant")
    print(f"checkpointing costs {1 / ratios[AGAIN] - 1:.0%} more time")
    with team:
        best = peak(threads)
    work = numbers_of_a_step(data, LARGER_BERT_CONFIG) / statistics.median(times[PLAIN])
    print(
        f"matrix products: {work / best:.0%} of this machine's peak of {best / 1e9:.0f} billion operations per second"
    )
    print(f"numpy {np.__version__}, {threads} threads, {len(times[PLAIN])} rounds")


if __name__ == "__main__":
    main()
