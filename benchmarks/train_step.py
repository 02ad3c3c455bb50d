"""The time of one optimiser step of Mini-BERT, compared with PyTorch and transformers in the same run.

    python benchmarks/train_step.py                      9 rounds of 10 steps; needs torch (run.py test --peers)
    python benchmarks/train_step.py --rounds 3 --no-compile --no-transformers
    python benchmarks/train_step.py --memory             peak memory of a real training run instead (Linux)

A step is 4 × 8 × 64 tokens, 15 % of them masked: forward, backward, clipping, Adam with decoupled weight decay. We
process two micro-batches at a time, as training does (--group). PyTorch computes the same function from the same
weights on the same batches, with fused AdamW, scaled dot-product attention and the head on the masked rows only, with
the same number of threads, as four micro-batches or one batch of 32, eager or compiled; the fastest variant counts.
`transformers` is a BertForMaskedLM of the same size, trained in the usual way: logits for every token, label −100 for
tokens that are not masked.

Before timing, the losses of the first steps are compared. The machine's peak is its fastest matrix product: the best of
ten rounds of 1024 × 1024 products, on all threads at once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from peak_memory import peak_of_training

from mini_bert.data.generator import Batch
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masking import mask_tokens
from mini_bert.training.optim import Adam
from mini_bert.training.parallel import Team

PARTS, SEQUENCES, LR, CLIP = 4, 8, 1e-3, 1.0
Step = Callable[..., float]


def batches(
    count: int, parts: int = PARTS, sequences: int = SEQUENCES, c: MiniBertConfig = MINI_BERT_CONFIG
) -> list[list[Batch]]:
    """Random words with Zipf frequencies, masked as in training."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, c.vocab_size - 4)
    found = []
    for number in range(count * parts):
        ids = rng.choice(np.arange(5, c.vocab_size), (sequences, c.max_seq_length), p=share / share.sum())
        ids[:, 0], ids[:, -1] = 2, 3
        masked, targets, rows = mask_tokens(ids, 4, c.vocab_size, 0.15, seed=number)
        found.append(Batch(masked, rows, targets))
    return [found[i * parts : (i + 1) * parts] for i in range(count)]


def numbers_of_a_step(parts: list[Batch], c: MiniBertConfig = MINI_BERT_CONFIG) -> float:
    """Multiplications and additions in the matrix products of a step, counting only the rows that we compute."""
    H, inner, V, T = c.hidden_size, c.intermediate_size, c.vocab_size, c.max_seq_length
    total = 0.0
    for part in parts:
        B, N = len(part.input_ids), part.rows.size
        M = int(np.bincount(part.rows // T).max())
        full = B * T * (4 * H * H + 2 * H * inner) + 2 * B * T * T * H
        last = B * T * 2 * H * H + N * (2 * H * H + 2 * H * inner) + 2 * B * M * T * H
        total += (c.num_layers - 1) * full + last + N * H * V
    return 2 * 3 * total  # forward, and twice as much backward


def ours(threads: int, dtype: type = np.float32) -> tuple[Step, MiniBERT, Team]:
    model = MiniBERT(dtype=dtype)
    adam = Adam(model.flat, LR)
    team = Team(model, threads)

    def step(parts: list[Batch], lr: float = LR) -> float:
        outcome = team.gradient(parts)
        adam.step(lr, scale=min(1.0, CLIP / outcome.norm), map=team.map)
        return outcome.loss

    return step, model, team


def peer(model: MiniBERT, compiled: bool, whole: bool) -> Step:
    """Mini-BERT in PyTorch, with the weights and dropout of `model`."""
    import torch
    from torch_mini_bert import Loss, TorchMiniBert

    network = Loss(TorchMiniBert(model))
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=LR, fused=True)
    forward = torch.compile(network) if compiled else network

    def step(parts: list[Batch], lr: float = LR) -> float:
        for group in optimiser.param_groups:
            group["lr"] = lr
        if whole:
            parts = [joined(parts)]
        count = sum(part.rows.size for part in parts)
        optimiser.zero_grad()
        total = 0.0
        for part in parts:
            loss = forward(*(torch.from_numpy(array) for array in part[:3])) / count
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        return total

    return step


def ordinary(whole: bool) -> Step:
    """A BertForMaskedLM of the same size, trained in the usual way."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    c = MINI_BERT_CONFIG
    config = BertConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, num_hidden_layers=c.num_layers,
        num_attention_heads=c.num_heads, intermediate_size=c.intermediate_size,
        max_position_embeddings=c.max_seq_length, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    network = BertForMaskedLM(config)
    network.train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=LR)

    def step(parts: list[Batch]) -> float:
        if whole:
            parts = [joined(parts)]
        optimiser.zero_grad()
        total = 0.0
        for part in parts:
            labels = np.full(part.input_ids.size, -100)
            labels[part.rows] = part.targets
            ids = torch.from_numpy(part.input_ids)
            loss = network(ids, labels=torch.from_numpy(labels.reshape(ids.shape))).loss / len(parts)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        return total

    return step


def joined(parts: list[Batch]) -> Batch:
    """The micro-batches as one batch."""
    sizes = np.cumsum([0, *(part.input_ids.size for part in parts)])
    rows = [part.rows + before for part, before in zip(parts, sizes, strict=False)]
    return Batch(
        np.concatenate([part.input_ids for part in parts]),
        np.concatenate(rows),
        np.concatenate([part.targets for part in parts]),
    )


def peak(threads: int) -> float:
    """Multiplications and additions per second in this machine's fastest matrix product."""
    n = 1024
    arrays = [np.ones((3, n, n), np.float32) for _ in range(threads)]
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(10):
            start = time.perf_counter()
            list(pool.map(lambda x: np.matmul(x[0], x[1], out=x[2]), arrays))
            best = min(best, time.perf_counter() - start)
    return threads * 2 * n**3 / best


def memory(threads: int) -> None:
    """The peak of RssAnon while the `train` command trains, evaluates and saves Mini-BERT in its own process."""
    options = f"--threads {threads} --held-out 0.01 --eval-every 50 --save-every 50".split()
    most = peak_of_training("--optimizer", "adam", *options, steps=120)
    print(f"peak anonymous memory of a Mini-BERT training run on {threads} threads: {most / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", type=int, default=2, help="micro-batches that we process at once")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-transformers", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.memory:
        memory(options.threads)
        return
    import torch

    torch.set_num_threads(options.threads)
    data = batches(options.steps)
    grouped = [[joined(parts[i : i + options.group]) for i in range(0, PARTS, options.group)] for parts in data]
    mine, model, team = ours(options.threads)
    rivals = {"PyTorch, 4 × 8": peer(model, False, False), "PyTorch, 32 at once": peer(model, False, True)}
    if not options.no_compile:
        rivals["PyTorch compiled, 4 × 8"] = peer(model, True, False)
        rivals["PyTorch compiled, 32 at once"] = peer(model, True, True)
    if not options.no_transformers:
        rivals["transformers, 4 × 8"] = ordinary(False)
        rivals["transformers, 32 at once"] = ordinary(True)

    with team:
        losses = {"Mini-BERT": [mine(parts) for parts in grouped]}
    losses |= {name: [rival(parts) for parts in data] for name, rival in rivals.items()}
    print(f"{'':30}" + "".join(f"{f'step {i}':>9}" for i in (1, 2, 3, options.steps)) + "    losses, before timing")
    for name, values in losses.items():
        print(f"{name:30}" + "".join(f"{values[i - 1]:9.4f}" for i in (1, 2, 3, options.steps)))
        if name.startswith("PyTorch") and max(abs(np.subtract(values, losses["Mini-BERT"]))) > 1e-3:
            raise SystemExit(f"{name} does not compute the same losses, so the speeds are not compared")

    times: dict[str, list[float]] = {name: [] for name in ("Mini-BERT", *rivals)}

    def timed(name: str, step: Step, steps: list[list[Batch]]) -> None:
        start = time.perf_counter()
        for parts in steps:
            step(parts)
        times[name].append((time.perf_counter() - start) / len(steps))

    for number in range(options.rounds):
        order = list(rivals) if number % 2 else list(reversed(rivals))
        with team:
            timed("Mini-BERT", mine, grouped)
        for name in order:
            timed(name, rivals[name], data)
    with team:
        best = peak(options.threads)
    work = statistics.mean(numbers_of_a_step(parts) for parts in data)

    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"\n{'':30}{'ms/step':>10}{'tokens/s':>10}{'ours takes':>12}   range over rounds")
    for name, found in times.items():
        ratios = sorted(own / other for own, other in zip(times["Mini-BERT"], found, strict=True))
        shown = (
            "" if name == "Mini-BERT" else f"{statistics.median(ratios):11.2f}×   {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )
        tokens = sum(part.input_ids.size for part in data[0]) / medians[name]
        print(f"{name:30}{1e3 * medians[name]:10.1f}{tokens:10,.0f}{shown}")
    for group in ("PyTorch", "transformers"):
        names = [name for name in rivals if name.startswith(group)]
        if names:
            fastest = min(names, key=medians.__getitem__)
            ratios = [own / other for own, other in zip(times["Mini-BERT"], times[fastest], strict=True)]
            print(
                f"\nMini-BERT takes {statistics.median(ratios):.2f}× the time of {fastest}, the fastest {group} variant"
            )
    print(
        f"matrix products: {work / 1e9:.1f} billion operations per step, {work / medians['Mini-BERT'] / best:.0%} of "
        f"the peak of {best / 1e9:.0f} billion per second that this machine reaches on {options.threads} threads\n"
        f"{os.cpu_count()} cores; torch {torch.__version__}, numpy {np.__version__}; {options.rounds} rounds"
    )


if __name__ == "__main__":
    main()
