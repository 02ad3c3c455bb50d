"""Small random models of every kind, and a server with all of them on a real port of this process."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from typing import Any

import numpy as np
import pytest

from mini_bert.common.web import open_port
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.serving.app import Server
from mini_bert.serving.calls import Limits
from mini_bert.serving.guard import hosts_of
from mini_bert.serving.running import uvicorn_server
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from tests.lab.client import Answer as Answered

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    ".",
    "##s",
    "dog",
    "and",
    "ran",
    "far",
    "ada",
    "lives",
    "in",
    "london",
    "where",
    "does",
    "live",
    "?",
    "rain",
    "is",
    "wet",
]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *dict.fromkeys(WORDS)])
LENGTH = 31
JSON = {"content-type": "application/json"}


def encoder(seed: int = 0) -> Bert:
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=20, num_hidden_layers=2, num_attention_heads=2, intermediate_size=28,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    return spread(Bert(config, seed=seed))


def spread(model: Any) -> Any:
    """Weights far enough from 0 that texts get different answers"""
    model.flat.data[...] += 0.3 * np.random.default_rng(1).normal(size=model.flat.data.size)
    return model


TASKS = {
    "sentiment": Classify(["bad", "good", "so-so"]),
    "entailment": Classify(["no", "yes"], ("cls",), pairs=True),
    "ranker": Similarity(0.0, 5.0),
    "judge": Similarity(0.0, 5.0, pooling=("cls",), dense=True, pairs=None),  # as published: of one text, or two
    "vectors": Similarity(vectors=True, pooling=("all",)),
    "tagger": Tag(["O", "B-PER", "I-PER", "B-LOC"]),
    "reader": Answer(),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, str]:
    """A folder of each kind of model, by name"""
    for package in ("starlette", "uvicorn", "prometheus_client", "orjson"):
        pytest.importorskip(package, reason="the server is an extra: pip install -e '.[serve]'")
    top = tmp_path_factory.mktemp("models")
    encoder().save_pretrained(top / "base")
    TOKENIZER.save(top / "base")
    config = GPT2Config(len(TOKENIZER), 32, 12, 2, 3, tie_word_embeddings=False)
    spread(GPT2(config)).save_pretrained(top / "writer")
    TOKENIZER.save(top / "writer")
    for name, task in TASKS.items():
        model = spread(with_task(encoder(), task))
        save(top / name, model, task, TOKENIZER, LENGTH)
    return {name: str(top / name) for name in ("base", "writer", *TASKS)}


class Client:
    """Requests to a server on this computer, one connection each"""

    def __init__(self, server: Server, port: int):
        self.server, self.port = server, port
        self.address = f"http://127.0.0.1:{port}"
        self.listening: Any = None  # its socket

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, JSON if headers is None and body is not None else headers or {})
            answer = connection.getresponse()
            return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def get(self, path: str, **headers: str) -> Answered:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answered:
        return self.call("POST", path, body, headers)


@contextlib.contextmanager
def running(sources: dict[str, str], limits: Limits = Limits(), engine: str = "numpy", **options: Any):  # noqa: B008
    """A client of a server that runs in a thread of this process."""
    server = Server(sources, limits, threads=2, engine=engine)
    with open_port("127.0.0.1", [0]) as listening:
        port = listening.getsockname()[1]
        uvicorn = uvicorn_server(server.app(hosts_of("127.0.0.1", port, ()), **options), limits.patience, 5)
        thread = threading.Thread(target=uvicorn.run, kwargs={"sockets": [listening]})
        thread.start()
        while not uvicorn.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            client = Client(server, port)
            client.listening = listening
            yield client
        finally:
            uvicorn.should_exit = True
            thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def client(folders):
    with running(folders) as one:
        yield one
