"""What every HTTP server here needs: a guard in front of the application, a bounded body, an open port.

    class Guard(web.Guard):                # lab/guard.py, serving/guard.py
        def admit(self, request): …         # raises Refused for a request that is not let in

A guard is an ASGI application around another one. It reads the whole body before the application sees the request, so
that no work starts for a client that sends slowly (408) or too much (413).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

DISCARDED = 32 << 20  # bytes of a body that is too long: read, so that the client gets the answer, but not kept

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refused(Exception):
    """A request that is not let in: the status of the answer, and a sentence that says why."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Request:
    """The first lines of a request: method, path, headers."""

    def __init__(self, scope: MutableMapping[str, Any]):
        self.method, self.path = scope["method"], scope["path"]
        self._headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.lower(), []).append(value)

    def header(self, name: str) -> str | None:
        """Its only value; None without one. Two are refused: another program on the way may have read the other one."""
        values = self._headers.get(name.encode(), ())
        if len(values) > 1:
            raise Refused(400, f"the request has {len(values)} headers {name}, expected one")
        return values[0].decode("latin-1") if values else None

    def check_host(self, hosts: set[str]) -> None:
        """A page elsewhere could make its own name lead here (DNS rebinding); its requests carry that name."""
        if self.header("host") not in hosts:
            raise Refused(421, f"this server is {min(hosts)}, not another host")

    def check_origin(self, origins: set[str]) -> None:
        origin = self.header("origin")
        if origin is not None and origin not in origins:
            raise Refused(403, "requests from other pages are refused")

    def check_json(self) -> None:
        """A foreign page can send a form or plain text without asking first, but not JSON."""
        if (self.header("content-type") or "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "the body must be JSON: set the content type to application/json")


class Guard:
    """Lets requests in, or refuses them; adds `headers` to every answer."""

    most_bytes: int = 64 << 10  # of a body
    patience: float = 10.0  # seconds in which a body must arrive
    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, app: Any):
        self.app = app

    def admit(self, request: Request) -> None:
        """Raise Refused for a request that is not let in."""

    def refusal(self, request: Request, refused: Refused) -> tuple[dict[str, Any], dict[str, str]]:
        """The body and the headers of the answer to a request that was refused."""
        return {"error": refused.sentence}, {"retry-after": "1"} if refused.status == 429 else {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        own = [(name.encode(), value.encode()) for name, value in self.headers.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        request = Request(scope)
        body: bytes | None = b""
        try:
            self.admit(request)
            if request.method == "POST":
                body = await self.body(request, receive)
        except Refused as refused:
            await send_json(send_with_headers, refused.status, *self.refusal(request, refused))
            return

        async def receive_again() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        await self.app(scope, receive_again, send_with_headers)

    async def body(self, request: Request, receive: Receive) -> bytes:
        """The whole body, if it is not too long, whatever its content-length says, and if it arrives in time."""
        too_long = Refused(413, f"the body has more than {self.most_bytes:,} bytes")
        try:
            async with asyncio.timeout(self.patience):
                length = request.header("content-length")
                if length is not None and (not length.isdecimal() or int(length[:20]) > self.most_bytes):
                    if length.isdecimal() and int(length[:20]) <= DISCARDED:
                        await bounded_body(receive, 0, DISCARDED)
                    raise too_long
                body = await bounded_body(receive, self.most_bytes, DISCARDED)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {self.patience:g} seconds") from None
        if body is None:
            raise too_long
        return body


async def bounded_body(receive: Receive, most: int, discarded: int) -> bytes | None:
    """The body; None if it has more than `most` bytes. Of these, at most `discarded` are read."""
    body, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the connection was closed before the request was complete")
        piece = message.get("body", b"")
        size += len(piece)
        if size <= most:
            body += piece
        if not message.get("more_body") or size > discarded:
            return bytes(body) if size <= most else None


async def send_json(send: Send, status: int, value: Any, headers: Mapping[str, str]) -> None:
    text = json.dumps(value).encode()
    own = {"content-type": "application/json", "content-length": str(len(text)), **headers}
    named = [(name.encode(), text_of.encode()) for name, text_of in own.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": text})


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body whose size is bounded."""
    try:
        value = json.loads(body, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise ValueError("the body of the request is not valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"the body of the request is a {type(value).__name__}, expected an object")
    return value


def _not_a_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def local_names(port: int) -> set[str]:
    """What a client on this computer calls a server on this port."""
    names = ("127.0.0.1", "localhost")
    return {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())


def run_server(server: Any, listening: socket.socket) -> None:
    """Run a uvicorn server on an open port until Ctrl-C. A second Ctrl-C does not wait for requests; then uvicorn
    reports its own cancelled task as an error, which is not shown."""

    def wanted(record: logging.LogRecord) -> bool:
        return not server.force_exit

    log = logging.getLogger("uvicorn.error")
    log.addFilter(wanted)
    try:
        with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):  # raised after it has shut down
            server.run(sockets=[listening])
    finally:
        log.removeFilter(wanted)


def open_port(host: str, ports: Sequence[int]) -> socket.socket:
    """A socket that listens on the first of these ports that is free; 0: any."""
    problem: OSError | None = None
    for port in ports:
        with contextlib.ExitStack() as undo:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            if sys.platform != "win32":  # there, it would let two servers share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((host, port))
                listening.listen(1024)
            except OSError as error:
                problem = error
                continue
            undo.pop_all()
            return listening
    assert problem is not None
    if isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL:
        why = f"the host {host} is not a name or address of this computer ({problem.strerror})"
        raise ValueError(f"{why}; choose another with --host, or leave --host out") from None
    why = "is in use" if problem.errno == errno.EADDRINUSE else f"cannot be used ({problem.strerror})"
    raise ValueError(f"port {ports[-1]} {why}; choose another with --port; 0 takes any that is free") from None
