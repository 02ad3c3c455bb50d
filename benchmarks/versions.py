"""Two checkouts of this library side by side: is the newer one as fast, and does it compute the same bits?

    git worktree add ../old v0
    python benchmarks/versions.py ../old                 9 rounds; this checkout against ../old
    python benchmarks/versions.py ../old --bits          200 training steps with one thread and with two: same weights?

Each measurement runs in its own process with that checkout on the path, the two in turn, so that a busy machine slows
both. A training step is timed inside the ordinary `train` command, by the records it writes. Only names that have not
changed since the first version are used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.parent
BYTECODE = Path(tempfile.gettempdir()) / "mini-bert-bytecode"  # so that imports do not compile, whatever the settings
STEPS = 60

SENTENCE = """
import time, numpy as np
from mini_bert import MiniBERT, WordPieceTokenizer
model, tokenizer = MiniBERT.from_pretrained("mini-bert"), WordPieceTokenizer.load("8k")
ids = np.array([tokenizer.encode("The cat sat on the mat because it was tired of the rain.")])
for _ in range(50): model.forward(ids)
times = []
for _ in range(400):
    start = time.perf_counter(); model.forward(ids); times.append(time.perf_counter() - start)
print(float(np.median(times)))
"""

TOKENIZER = """
import time, random
from mini_bert import WordPieceTokenizer
from mini_bert.data import MLMDataGenerator
tokenizer = WordPieceTokenizer.load("8k")
words = [piece.removeprefix("##") for piece in list(tokenizer.vocab)[1000:]]
draw = random.Random(0)
lines = [" ".join(draw.choices(words, k=40)).capitalize() + "." for _ in range(8000)]
start = time.perf_counter(); tokenizer.ids(lines); print(time.perf_counter() - start)
"""

IMPORT = """
import time; start = time.perf_counter()
from mini_bert import MiniBERT, WordPieceTokenizer, Adam
print(time.perf_counter() - start)
"""


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder.resolve()), "PYTHONDONTWRITEBYTECODE": ""}
    environment["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    with tempfile.TemporaryDirectory() as elsewhere:  # so that only PYTHONPATH decides which version is imported
        done = subprocess.run([sys.executable, *words], env=environment, cwd=elsewhere, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{folder}: {' '.join(words)[:60]} failed: {done.stderr}")
    return done.stdout


def trained(folder: Path, out: Path, steps: int, threads: int) -> None:
    words = f"train --corpus builtin --steps {steps} --threads {threads} --seed 3 --held-out 0.01 --quiet".split()
    command = folder / "mini_bert/cli/training.py"
    if command.is_file() and "optimizer" in command.read_text(encoding="utf-8"):
        words += ["--optimizer", "adam"]  # which earlier versions always use
    run(folder, "-m", "mini_bert", *words, "--out", str(out))


def step_time(folder: Path) -> float:
    with tempfile.TemporaryDirectory() as place:
        trained(folder, Path(place) / "run", STEPS, 2)
        lines = (Path(place) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    speeds = [record["tokens_per_second"] for record in records if record["kind"] == "train"]
    return 32 * 64 / statistics.median(speeds)


def snippet(code: str):
    return lambda folder: float(run(folder, "-c", code))


MEASURES = {
    "training step": step_time,
    "one sentence": snippet(SENTENCE),
    "tokenizer": snippet(TOKENIZER),
    "import": snippet(IMPORT),
}


def compare_bits(old: Path) -> None:
    for threads in (1, 2):
        digests = []
        for folder in (old, HERE):
            with tempfile.TemporaryDirectory() as place:
                trained(folder, Path(place) / "run", 200, threads)
                weights = sorted((Path(place) / "run").rglob("model.safetensors"))
                digests.append(hashlib.sha256(weights[-1].read_bytes()).hexdigest()[:16])
        verdict = "the same bits" if digests[0] == digests[1] else "DIFFERENT"
        print(f"200 steps on {threads} thread(s): {digests[0]} and {digests[1]}: {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bits", action="store_true", help="compare weights after 200 steps instead of times")
    options = parser.parse_args()
    if options.bits:
        compare_bits(options.old)
        return
    print(f"{'':16}{'old':>10}{'new':>10}{'new/old':>9}   over {options.rounds} rounds")
    for name, measure in MEASURES.items():
        for folder in (options.old, HERE):  # once without counting: byte code is compiled, caches are filled
            measure(folder)
        rounds = []
        for number in range(options.rounds):
            order = (options.old, HERE) if number % 2 else (HERE, options.old)
            found = {folder: measure(folder) for folder in order}
            rounds.append((found[options.old], found[HERE]))
        ratios = sorted(new / old for old, new in rounds)
        old, new = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(ratios)
        print(f"{name:16}{old:8.2f}ms{new:8.2f}ms{ratio:8.2f}×   {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
