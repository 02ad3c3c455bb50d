"""The time to make a batch, and the time and memory to prepare text.

    python benchmarks/data.py                    batches, and preparing 200 MB
    python benchmarks/data.py --gigabytes 2      the size to which the 400 MB limit applies; takes several minutes
    python benchmarks/data.py --gigabytes 0      batches only

Batches: the time to make one of 32 sequences × 64 tokens, as a share of a training step's forward and backward on the
same 32 sequences (Mini-BERT, 4 micro-batches of 8 on two threads), measured alternately. Preparing: throughput,
CPU time and the resident memory of all processes together, sampled from /proc (Linux only). The text is that in
../shared/data/pretrain, or else the built-in corpus, repeated until it is long enough; it is deleted afterwards.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.corpora.reading import read
from mini_bert.data.generator import Batch, MLMDataGenerator
from mini_bert.data.shards import prepare
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer

PRETRAIN = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "pretrain"
MODES = {
    "packed": {},
    "packed, 5 % held out": {"held_out": 0.05},
    "packed, whole words": {"whole_word": True},
    "packed, spans": {"span": True},
    "sentences": {"mode": "sentences"},
    "pairs, next sentence": {"mode": "pairs"},
    "pairs, sentence order": {"mode": "pairs", "task": "order"},
}


def forward_backward(model: MiniBERT, parts: list[Batch]) -> None:
    for part in parts:
        _, cache = model.loss(*part[:4])
        model.loss_backward(cache)


def batches(folder: Path, rounds: int) -> None:
    """Time batches and training steps alternately."""
    tokenizer = WordPieceTokenizer.load("8k")
    models = (MiniBERT(), MiniBERT())  # one for each thread, as in training
    options = {"cache_dir": folder, "progress": False}
    generators = {
        name: MLMDataGenerator("builtin", tokenizer, 64, 32, **options, **mode) for name, mode in MODES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in ("step", *MODES)}
    threadpool_limits(1)  # one BLAS thread for each of our two threads
    threads = ThreadPoolExecutor(2)
    for turn in range(rounds + 2):
        for name, generator in generators.items():
            began = time.perf_counter()
            batch = next(generator)
            if turn >= 2:
                times[name].append(time.perf_counter() - began)
            if name == "packed":
                parts = batch.split(4)
                began = time.perf_counter()
                list(threads.map(forward_backward, models, (parts[:2], parts[2:])))
                if turn >= 2:
                    times["step"].append(time.perf_counter() - began)
    threads.shutdown()
    step = statistics.median(times.pop("step"))
    print(f"Forward and backward on 32 × 64 tokens: {step * 1e3:.1f} ms (median of {rounds})\n")
    print(f"{'one batch of 32 × 64':26} {'median':>9} {'90th percentile':>16} {'of a step':>10}")
    for name, taken in times.items():
        median, worst = statistics.median(taken), statistics.quantiles(taken, n=10)[-1]
        print(f"{name:26} {median * 1e3:6.2f} ms {worst * 1e3:13.2f} ms {median / step:10.2%}")


def write_text(path: Path, size: int) -> str:
    """Write `size` bytes of documents, repeated in different orders; returns where they are from."""
    sources = sorted(map(str, PRETRAIN.glob("*.txt.xz")))
    documents: list[bytes] = []
    for text, first in read(sources or "builtin"):
        if first:
            documents.append(text.encode())
        else:
            documents[-1] += b"\n" + text.encode()
    random, written = np.random.default_rng(0), 0
    with open(path, "wb") as file:
        while written < size:
            for index in random.permutation(len(documents)):
                written += file.write(documents[index] + b"\n\n")
                if written >= size:
                    break
    return ", ".join(Path(source).name for source in sources) or "the built-in corpus"


def memory(root: int) -> dict[int, int]:
    """Resident bytes of a process and its descendants, by process id."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            found[int(path.parent.name)] = int(fields[21]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError):
            continue
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: found[pid] for pid in family if pid in found}


def idle_seconds() -> float:
    """Idle time of all cores since the machine started; shows how busy the machine is with other work."""
    fields = Path("/proc/stat").read_text().split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def preparing(folder: Path, gigabytes: float) -> None:
    """Tokenize a long text in a new process; measure its time and memory."""
    path = folder / "text.txt"
    origin = write_text(path, int(gigabytes * 1e9))
    size = path.stat().st_size
    print(f"\nPreparing {size / 1e9:.2f} GB of text from {origin}, 8k vocabulary")
    peak, peak_each, samples = 0, {}, 0
    before, idle, began = os.times(), idle_seconds(), time.perf_counter()
    with subprocess.Popen([sys.executable, __file__, "--prepare", str(path), str(folder / "cache")]) as child:
        while child.poll() is None:
            now = memory(child.pid)
            samples += 1
            if sum(now.values()) > peak:
                peak, peak_each = sum(now.values()), now
            time.sleep(0.2)
    seconds, after, idle = time.perf_counter() - began, os.times(), idle_seconds() - idle
    if child.returncode:
        raise SystemExit(f"preparing failed with exit code {child.returncode}")
    processor = sum(after[2:4]) - sum(before[2:4])  # of finished children and their descendants
    each = " + ".join(f"{value / 1e6:.0f}" for value in sorted(peak_each.values(), reverse=True))
    print(
        f"{seconds:.0f} s, {size / 1e6 / seconds:.1f} MB/s, {size / 1e6 / processor:.1f} MB per CPU second; "
        f"on average it kept {processor / seconds:.2f} of {os.cpu_count()} cores busy; {idle / seconds:.2f} were idle"
    )
    print(f"peak resident memory of all processes: {peak / 1e6:.0f} MB ({each}), from {samples:,} samples")
    began = time.perf_counter()
    shards = prepare(path, WordPieceTokenizer.load("8k"), cache_dir=folder / "cache", progress=False)
    print(f"{shards}; a second run opened it in {time.perf_counter() - began:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=0.2, help="amount of text to prepare; 0: none")
    parser.add_argument("--rounds", type=int, default=100, help="batches and steps to time")
    parser.add_argument("--folder", help="where to put the temporary text (default: the system's temporary folder)")
    parser.add_argument("--prepare", nargs=2, metavar=("TEXT", "CACHE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare[0], WordPieceTokenizer.load("8k"), cache_dir=arguments.prepare[1])
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        batches(Path(name) / "builtin", arguments.rounds)
        if arguments.gigabytes and not Path("/proc/self/stat").exists():
            print("\nMemory is measured on Linux only.")
        elif arguments.gigabytes:
            preparing(Path(name), arguments.gigabytes)


if __name__ == "__main__":
    main()
