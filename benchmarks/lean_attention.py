"""Plain and lean attention: time and memory of a forward and backward pass of one layer, by length.

    python benchmarks/lean_attention.py                          both sizes, 128 to 4,096 tokens; about 2 minutes
    python benchmarks/lean_attention.py --lengths 512 1024 --dropout 0.1 --sizes 192x4
    python benchmarks/lean_attention.py --tiles 128 256 512      lean only, by tile size
    python benchmarks/lean_attention.py --model                  Mini-BERT with 8,192 positions, one step at T = 8,192

Memory is measured in a separate process that makes a single pass: its peak minus what it held before (VmHWM on Linux;
NumPy's peak allocation elsewhere). Times are CPU times, the best of several rounds in which the methods alternate, so
that other work on the machine affects them less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.layers.base import Pool, Run, bind
from mini_bert.layers.lean_attention import LONG, TILE, LeanAttention
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT


def attention(
    method: str, tokens: int, width: int, heads: int, p: float, tile: int = TILE, batch: int = 1
) -> Callable[[], None]:
    """Returns a function that makes one forward and backward pass."""
    layer = LeanAttention(width, heads, bias=False, p=p)
    layer.method, layer.tile = method, tile
    bind(layer, seed=0)
    x, dy = np.random.default_rng(1).normal(size=(2, batch, tokens, width)).astype(np.float32)
    pool = Pool()

    def both() -> None:
        run = Run(2, train=True, pool=pool)
        _, cache = layer.forward(x, run)
        layer.backward(dy, cache, run)

    return both


def model(tokens: int) -> Callable[[], None]:
    """Returns a function that computes loss and gradients of a long Mini-BERT, with 15 % of the tokens masked."""
    network = MiniBERT(MiniBertConfig(max_seq_length=tokens))
    rng = np.random.default_rng(1)
    ids = rng.integers(5, network.config.vocab_size, (1, tokens))
    rows = np.sort(rng.choice(tokens, tokens * 15 // 100, replace=False))

    def both() -> None:
        _, cache = network.loss(ids, rows, ids[0, rows])
        network.loss_backward(cache)

    return both


def held() -> int | None:
    """This process's peak memory so far, in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def peak(work: Callable[[], None]) -> int:
    """The peak memory of `work`, minus the memory already in use."""
    before = held()
    if before is None:
        tracemalloc.start()
        work()
        return tracemalloc.get_traced_memory()[1]
    work()
    return (held() or 0) - before


def peak_alone(what: str, *arguments: object) -> float:
    """`peak` in a separate process, in MB."""
    command = [sys.executable, __file__, "--alone", json.dumps([what, *arguments])]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout) / 1e6


def best_times(works: dict[str, Callable[[], None]], rounds: int, seconds: float = 0.4) -> dict[str, float]:
    """The milliseconds of each function, measured alternately; short ones are repeated."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            start, count = time.process_time(), 0
            while count == 0 or time.process_time() - start < seconds / rounds:
                work()
                count += 1
            best[name] = min(best[name], 1e3 * (time.process_time() - start) / count)
    return best


def by_length(lengths: list[int], width: int, heads: int, p: float, batch: int, rounds: int) -> None:
    print(f'\nH = {width}, A = {heads}, batch {batch}, dropout {p}; "auto" uses lean above T = {LONG}')
    print(f"{'T':>6} {'plain ms':>10} {'lean ms':>10} {'ratio':>8} {'plain MB':>10} {'lean MB':>9} {'ratio':>9}")
    for tokens in lengths:
        sizes = (tokens, width, heads, p, TILE, batch)
        memory = {method: peak_alone("attention", method, *sizes) for method in ("plain", "lean")}
        times = best_times({method: attention(method, *sizes) for method in memory}, rounds)
        print(
            f"{tokens:6,} {times['plain']:10.1f} {times['lean']:10.1f} {times['lean'] / times['plain']:7.2f}×"
            f" {memory['plain']:10.1f} {memory['lean']:9.1f}   1/{memory['plain'] / memory['lean']:.1f}",
            flush=True,
        )


def by_tile(tiles: list[int], lengths: list[int], width: int, heads: int, p: float, rounds: int) -> None:
    print(f"\nH = {width}, A = {heads}, dropout {p}: milliseconds of lean attention by tile size")
    print(f"{'T':>6}" + "".join(f"{tile:9}" for tile in tiles))
    for tokens in lengths:
        works = {str(tile): attention("lean", tokens, width, heads, p, tile) for tile in tiles}
        print(f"{tokens:6,}" + "".join(f"{ms:9.1f}" for ms in best_times(works, rounds).values()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--sizes", nargs="+", default=["192x4", "384x8"], help="width x heads")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiles", type=int, nargs="+")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):  # as in training, where each thread has its own batch
        if options.alone:
            what, *arguments = json.loads(options.alone)
            print(peak({"attention": attention, "model": model}[what](*arguments)))
            return
        print(f"forward and backward, one thread, float32; {os.cpu_count()} cores, numpy {np.__version__}")
        if options.model:
            tokens, work = 8192, model(8192)
            ms = best_times({"model": work}, 1)["model"]
            memory = peak_alone("model", tokens)
            print(f"Mini-BERT at T = {tokens:,}: {ms / 1e3:.1f} s; peak memory {memory:.0f} MB, not counting the model")
            return
        for size in options.sizes:
            width, heads = map(int, size.split("x"))
            if options.tiles:
                by_tile(options.tiles, options.lengths, width, heads, options.dropout, options.rounds)
            else:
                by_length(options.lengths, width, heads, options.dropout, options.batch, options.rounds)


if __name__ == "__main__":
    main()
