"""Many requests of 64 clients: not one wrong or lost answer, and memory that does not grow."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load
from tests.serving.conftest import TOKENIZER
from tests.serving.test_process import process

pytestmark = pytest.mark.slow
CLIENTS = 64
WORDS = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8").lower().split()
Ask = Callable[[int], tuple[str, dict[str, Any], Callable[[Any], None]]]  # a path, a body, a check of the answer


async def load_with(port: int, count: int, ask: Ask) -> None:
    """Send requests 0 … count−1, and check each answer."""
    numbers = iter(range(count))
    answered = 0

    async def client() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for number in numbers:
            path, body, check = ask(number)
            data = json.dumps(body).encode()
            writer.write(
                f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(data)}\r\n\r\n".encode()
                + data
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            assert head.startswith(b"HTTP/1.1 200"), answer
            check(json.loads(answer))
            answered += 1
        writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert answered == count


def test_twenty_thousand_answers_are_those_of_the_library():
    """Single texts and several, of 1 to 60 words, as numbers and as base64: every number of each vector is compared."""
    numbers = random.Random(0)
    texts = [" ".join(numbers.choices(WORDS, k=numbers.choice((1, 3, 7, 12, 20, 40, 60)))) for _ in range(1000)]
    vectors = embed(*load("mini-bert"), texts)
    wanted = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    worst = 0.0

    def compare(answer: Any, own: list[int]) -> None:
        nonlocal worst
        assert np.shape(answer) == (len(own), wanted.shape[1])
        worst = max(worst, float(np.abs(np.asarray(answer) - wanted[own]).max()))

    def ask(number: int) -> tuple[str, dict[str, Any], Callable[[Any], None]]:
        own = [(number * 7 + 13 * place) % 1000 for place in range((1, 1, 1, 2, 5)[number % 5])]
        given = [texts[i] for i in own]
        if number % 3:
            return "/embed", {"inputs": given if len(own) > 1 else given[0]}, lambda answer: compare(answer, own)
        request = {"input": given, "model": "mini-bert", "encoding_format": "base64"}

        def unpacked(answer: Any) -> None:
            compare([np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in answer["data"]], own)

        return "/v1/embeddings", request, unpacked

    with process("mini-bert") as (_, port):
        asyncio.run(load_with(port, 20_000, ask))
    assert worst < 1e-5


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_is_flat_over_a_hundred_thousand_requests(folders):
    numbers = random.Random(1)
    words = [word for word in TOKENIZER.tokens[5:] if word.isalpha()]

    def ask(number: int) -> tuple[str, dict[str, Any], Callable[[Any], None]]:
        text = " ".join(numbers.choices(words, k=1 + number % 25))
        routes: list[tuple[str, dict[str, Any]]] = [
            ("/embed", {"inputs": text}),
            ("/embed", {"inputs": [text] * (1 + number % 4)}),
            ("/models/sentiment/predict", {"inputs": text}),
            ("/fill-mask", {"inputs": f"{text} [MASK]"}),
            ("/v1/embeddings", {"input": f"{text} {number}"}),
        ]
        path, body = routes[number % len(routes)]
        return path, body, lambda answer: None

    def memory(pid: int) -> int:
        """MB in use"""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1000

    with process(folders["base"], folders["sentiment"]) as (started, port):
        sizes = []
        for _ in range(5):
            asyncio.run(load_with(port, 20_000, ask))
            sizes.append(memory(started.pid))
    print("MB after 20,000, 40,000, … requests:", sizes)
    assert sizes[-1] - sizes[0] <= 8, sizes
