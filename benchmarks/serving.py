"""Throughput and latency of the server under 64 clients, beside the library itself and beside PyTorch.

    python benchmarks/serving.py                       all contestants that can be started: about five minutes
    python benchmarks/serving.py --requests 500        faster, less precise

Each request is one sentence of 4 to 40 words, for a vector of MiniLM (all-MiniLM-L6-v2, 22 million published weights).
64 clients each send the next request when they have the answer to the last. All contestants get the same sentences, in
turns; each has two threads; all run on the same computer as the clients. The library gets all sentences at once,
as full batches: nothing is faster. Every vector of our servers is compared with the library's.
"CPU ms" is the processor time per request, without that of the clients; it depends less on what else is running.

The alternative is what one would write in ten lines: FastAPI, and sentence-transformers on PyTorch.

Needs the peers (`python run.py test --peers` installs them), and pip install fastapi sentence-transformers.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from inference import minilm_folder
from threadpoolctl import threadpool_limits

from mini_bert.common.memory import keep_freed_memory
from mini_bert.export.engine import ENGINES
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load

CLIENTS = 64
THREADS = 2
LIBRARY = "the library, full batches"
AGREE = 1e-5  # largest difference allowed between the server's numbers and the library's
WORDS = Path(__file__).parents[1].joinpath("LICENSE").read_text(encoding="utf-8").lower().split()
ALTERNATIVE = """
import torch, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

torch.set_num_threads({threads})
model = SentenceTransformer({folder!r})
app = FastAPI()

class Request(BaseModel):
    inputs: str | list[str]

@app.post("/embed")
def embed(request: Request):
    inputs = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    return model.encode(inputs, normalize_embeddings=True, show_progress_bar=False).tolist()

@app.get("/health")
def health():
    return "ok"

uvicorn.run(app, port={port}, log_level="warning")
"""


def sentences(count: int) -> list[str]:
    numbers = random.Random(0)
    return [" ".join(numbers.choices(WORDS, k=numbers.randint(4, 40))) for _ in range(count)]


# ---------------------------------------------------------------------- clients


class Load(NamedTuple):
    seconds: float
    latencies: list[float]
    bodies: list[bytes]


async def run_clients(port: int, texts: Sequence[str], clients: int = CLIENTS) -> Load:
    """Send every text once. Answers that are not 200 are an error."""
    latencies, bodies = [0.0] * len(texts), [b""] * len(texts)
    waiting = iter(enumerate(texts))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place, text in waiting:
            body = json.dumps({"inputs": text}).encode()
            began = time.perf_counter()
            writer.write(
                b"POST /embed HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (port, len(body), body)
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            bodies[place] = await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
            latencies[place] = time.perf_counter() - began
            if not head.startswith(b"http/1.1 200"):
                raise SystemExit(f"{head!r} {bodies[place]!r:.200}")
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(time.perf_counter() - began, latencies, bodies)


def difference(load: Load, wanted: np.ndarray) -> float:
    """The largest difference of any number of any answer"""
    return max(
        float(np.abs(np.array(json.loads(body)[0]) - row).max()) for body, row in zip(load.bodies, wanted, strict=True)
    )


# ---------------------------------------------------------------------- contestants


def send(port: int, texts: Sequence[str], clients: int) -> Load:
    """Clients in this process; with uvloop, they leave more of the processor to the server."""
    if importlib.util.find_spec("uvloop"):
        import uvloop

        return uvloop.run(run_clients(port, texts, clients))
    return asyncio.run(run_clients(port, texts, clients))


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def commands(folder: Path) -> Iterator[tuple[str, int, list[str]]]:
    """The servers that can be started: a name, a port and a command each"""
    for engine in ENGINES:
        port = free_port()
        serve = [sys.executable, "-m", "mini_bert", "serve", f"minilm={folder}", "--port", str(port)]
        yield f"our server, {engine}", port, [*serve, "--engine", engine, "--threads", str(THREADS)]
    if importlib.util.find_spec("fastapi") and importlib.util.find_spec("sentence_transformers"):
        port = free_port()
        code = ALTERNATIVE.format(folder=str(folder), port=port, threads=THREADS)
        yield "FastAPI, PyTorch", port, [sys.executable, "-c", code]
    else:
        print("without the alternative: pip install fastapi sentence-transformers")


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("a server has ended before it answered")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("a server does not answer")


def processor_time(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time that a process has used so far; NaN where the system does not say"""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="requests per contestant and round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="clients at the same time")
    arguments = parser.parse_args()
    folder, texts = minilm_folder(), sentences(arguments.requests)
    keep_freed_memory()
    threadpool_limits(1, "blas")
    model, tokenizer = load(folder)

    def directly() -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time()
        embed(model, tokenizer, texts, "all", 32, THREADS)
        return time.perf_counter() - began, time.process_time() - used

    vectors = embed(model, tokenizer, texts, "all", 32, THREADS)
    wanted = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    servers = list(commands(folder))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd=Path(__file__).parents[1])
        for _, _, command in servers
    ]
    taken: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    worst: dict[str, float] = {}
    try:
        for (_, port, _), process in zip(servers, processes, strict=True):
            wait_for(port, process)
            send(port, texts[:128], arguments.clients)
        for _ in range(arguments.rounds):
            seconds, processor = directly()
            taken.setdefault(LIBRARY, []).append(seconds)
            used.setdefault(LIBRARY, []).append(processor)
            for (name, port, _), process in zip(servers, processes, strict=True):
                before = processor_time(process)
                one = send(port, texts, arguments.clients)
                used.setdefault(name, []).append(processor_time(process) - before)
                taken.setdefault(name, []).append(one.seconds)
                waits.setdefault(name, []).extend(one.latencies)
                worst[name] = max(worst.get(name, 0.0), difference(one, wanted))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
    best = statistics.median(taken[LIBRARY])
    print(f"{arguments.clients} clients, {len(texts):,} requests, median of {arguments.rounds} rounds, MiniLM")
    print(f"{'':28}{'requests/s':>12}{'of library':>12}{'CPU ms':>9}{'p50 ms':>9}{'p99 ms':>9}{'difference':>12}")
    for name, rounds in taken.items():
        took, processor = statistics.median(rounds), 1e3 * statistics.median(used[name]) / len(texts)
        line = f"{name:28}{len(texts) / took:12.1f}{best / took:12.2f}{processor:9.2f}"
        if name in waits:
            p50, p99 = np.percentile(waits[name], (50, 99)) * 1e3
            line += f"{p50:9.0f}{p99:9.0f}{worst[name]:12.1e}"
        print(line)
    if any(difference > AGREE for name, difference in worst.items() if name.startswith("our")):
        raise SystemExit(f"our server's numbers differ from the library's by more than {AGREE}")


if __name__ == "__main__":
    main()
