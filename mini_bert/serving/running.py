"""Run the server: load the models, open a port, and end on Ctrl-C or SIGTERM after the requests that were accepted."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from mini_bert.common.extras import extra
from mini_bert.common.memory import keep_freed_memory
from mini_bert.common.web import open_port, run_server
from mini_bert.serving.app import Server
from mini_bert.serving.calls import Limits
from mini_bert.serving.guard import hosts_of
from mini_bert.serving.metrics import NEEDED
from mini_bert.serving.shelf import named

logger = logging.getLogger(__name__)
SWITCH = 0.0005  # seconds after which Python's lock goes to another thread: a batch should not wait for JSON


class Patient(asyncio.Protocol):
    """A connection that is closed if its client is too slow: in sending the first lines of a request, or in taking an
    answer. (The guard bounds the time for bodies.) inner: uvicorn's protocol, which does everything else"""

    def __init__(self, inner: Any, patience: float):
        self.inner, self.patience = inner, patience
        self.late: asyncio.TimerHandle | None = None  # for the first lines
        self.stuck: asyncio.TimerHandle | None = None  # for an answer that is not taken

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.inner.connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
        self._watch()

    def _watch(self) -> None:
        cycle = self.inner.cycle
        if cycle is not None and not cycle.response_complete:
            _cancel(self.late)  # but not `stuck`: a client may send more without taking its answer
            self.late = None
        elif self.late is None:
            self.late = asyncio.get_running_loop().call_later(self.patience, self._too_late)

    def _too_late(self) -> None:
        self.late = None
        cycle = self.inner.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()

    def pause_writing(self) -> None:
        self.inner.pause_writing()
        self.stuck = asyncio.get_running_loop().call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        self.inner.resume_writing()
        _cancel(self.stuck)

    def eof_received(self) -> None:
        self.inner.eof_received()  # a half-closed connection is closed

    def connection_lost(self, error: Exception | None) -> None:
        _cancel(self.late)
        _cancel(self.stuck)
        self.inner.connection_lost(error)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def uvicorn_server(app: Any, patience: float, grace: int) -> Any:
    """uvicorn around an application. Requests are not logged: they contain what people write."""
    uvicorn: Any = extra("uvicorn", *NEEDED)
    protocol: Any = extra("uvicorn.protocols.http.auto", *NEEDED).AutoHTTPProtocol
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=grace, server_header=False,
        date_header=False, ws="none", lifespan="on", timeout_keep_alive=30,
        http=lambda **given: Patient(protocol(**given), patience),
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(
    models: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8080,
    limits: Limits = Limits(),  # noqa: B008 (a tuple)
    threads: int = 2,
    engine: str = "numpy",
    pooling: str | None = None,
    key: str | None = None,
    names: Sequence[str] = (),
    origins: Sequence[str] = (),
    grace: int = 30,
) -> None:
    """Serve models until Ctrl-C or SIGTERM. grace: seconds for the requests that were accepted before that"""
    for package in ("uvicorn", "orjson"):  # now, not at the first request
        extra(package, *NEEDED)
    if key is not None and not (key := key.strip()):
        raise ValueError("the API key is empty; give one, or leave --api-key and MINI_BERT_API_KEY out")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    keep_freed_memory()
    sys.setswitchinterval(SWITCH)
    shown = f"[{host}]" if ":" in host else host
    with threadpool_limits(1, "blas"):
        sources = named(models)
        server = Server(sources, limits, threads, engine, pooling, f"http://{shown}:{port}")
        listening = open_port(host, [port])
        port = listening.getsockname()[1]
        server.address = f"http://{shown}:{port}"
        hosts = hosts_of(host, port, names)
        if hosts is None and key is None:
            logger.warning("every computer that reaches %s can use the server; set a key: MINI_BERT_API_KEY", host)
        app = server.app(hosts, origins, key)
        print(
            f"Serving {', '.join(sources)} at {server.address}/ ({server.address}/docs). End with Ctrl-C.", flush=True
        )
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as for Ctrl-C
        try:  # uvicorn handles signals while it runs, and raises them again after it has shut down
            run_server(uvicorn_server(app, limits.patience, grace), listening)
        finally:
            signal.signal(signal.SIGTERM, before)
    print("The server is closed.", flush=True)
