"""A client that calls the lab's application directly, with full control over headers and the pieces of a body."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

PORT = 8642
HOST = ("host", f"127.0.0.1:{PORT}")
JSON = ("content-type", "application/json")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Runs an application within its lifespan; each call is one request."""

    def __init__(self, app: Any):
        self.app = app

    # pieces of the body; None: the rest never arrives
    def call(self, method: str, path: str, *headers: tuple[str, str], pieces: list[Any] | None = None) -> Answer:
        return asyncio.run(self._one(method, path, headers, pieces or [b""]))

    def get(self, path: str, *headers: tuple[str, str]) -> Answer:
        return self.call("GET", path, *(headers or (HOST,)))

    def post(self, path: str, body: Any, *headers: tuple[str, str]) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, *(headers or (HOST, JSON)), pieces=[data])

    async def _one(self, method: str, path: str, headers: Any, pieces: list[bytes]) -> Answer:
        started, ended = asyncio.Event(), asyncio.Event()

        async def lifespan_receive() -> dict[str, Any]:
            if not started.is_set():
                return {"type": "lifespan.startup"}
            await ended.wait()
            return {"type": "lifespan.shutdown"}

        async def lifespan_send(message: Any) -> None:
            started.set()

        life = asyncio.create_task(
            self.app({"type": "lifespan", "asgi": {}, "state": {}}, lifespan_receive, lifespan_send)
        )
        await started.wait()
        sent: list[Any] = []
        waiting = list(pieces)

        async def receive() -> dict[str, Any]:
            if waiting and waiting[0] is not None:
                return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path.partition("?")[0], "raw_path": path.encode(), "query_string": path.partition("?")[2].encode(),
            "root_path": "", "scheme": "http",
            "headers": raw, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
        }  # fmt: skip
        await asyncio.wait_for(self.app(scope, receive, send), 60)
        ended.set()
        await life
        start = next(message for message in sent if message["type"] == "http.response.start")
        body = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
        return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)
