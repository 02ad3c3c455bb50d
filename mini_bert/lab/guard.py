"""The guard of the lab: which requests are let in, and the headers of every response.

A web page that the user visits elsewhere can send requests to 127.0.0.1, too. So a request must name this server as its
host (else DNS rebinding would make a foreign page "ours": 421), must not come from another origin (403), and if it asks
for work it must be JSON, which a foreign page cannot send without asking first (415). Bodies are bounded in
size (413) and time (408), and so is the number of requests to /api/ per second (429).

The content security policy lets the page load only files of this server: no inline script, no inline style, no eval,
nothing from elsewhere; and no other page may frame it. `require-trusted-types-for` forbids innerHTML and its relatives,
so a text can only be shown as text.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST_BYTES = 64 << 10  # of a body
PATIENCE = 10.0  # seconds in which a body must arrive
RATE, BURST = 40.0, 80.0  # requests per second for a while, and at once
TOO_MANY = "too many requests at once; wait a second"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",  # files are asked for again after an update; answers are never kept
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Rate:
    """A bucket that holds BURST tokens and gains RATE of them per second; each request takes one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.tokens, self.last = clock, BURST, clock()

    def allows(self) -> bool:
        now = self.clock()
        self.tokens = min(BURST, self.tokens + RATE * (now - self.last))
        self.last = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Refused(Exception):
    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Guard:
    """An ASGI application around another one. port: the one that the server listens on."""

    def __init__(self, app: Any, port: int, rate: Rate | None = None):
        self.app, self.rate = app, rate or Rate()
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self.hosts |= {"127.0.0.1", "localhost"}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        try:
            body = await self.admit(scope, receive)
        except Refused as refusal:
            await refuse(refusal, send_with_headers)
            return

        async def receive_again() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        await self.app(scope, receive_again, send_with_headers)

    async def admit(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """The body of a request that is let in. Raises Refused for others."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)

        def one(name: bytes) -> str | None:
            values = headers.get(name, [])
            if len(values) > 1:
                raise Refused(400, f"the request has {len(values)} headers {name.decode()}, expected one")
            return values[0].decode("latin-1") if values else None

        if one(b"host") not in self.hosts:
            raise Refused(421, f"this server is {sorted(self.hosts)[0]}, not another host")
        origin = one(b"origin")
        if origin is not None and origin not in self.origins:
            raise Refused(403, "requests from other pages are refused")
        posted = scope["method"] == "POST"
        works = posted or scope["path"].startswith("/api/")
        if works and (one(b"sec-fetch-site") or "").lower() in ("cross-site", "same-site"):
            raise Refused(403, "requests from other pages are refused")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(405, f"the method {scope['method'][:20]} is not supported")
        if not posted:
            if works and not self.rate.allows():
                raise Refused(429, TOO_MANY)
            return b""
        if (one(b"content-type") or "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "the body must be JSON: set the content type to application/json")
        if not self.rate.allows():
            raise Refused(429, TOO_MANY)
        length = one(b"content-length")
        if length is not None and (not length.isdecimal() or int(length[:20]) > MOST_BYTES):
            raise Refused(413, f"the body has more than {MOST_BYTES:,} bytes")
        try:
            return await asyncio.wait_for(bounded_body(receive), PATIENCE)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {PATIENCE:.0f} seconds") from None


async def bounded_body(receive: Receive) -> bytes:
    """The whole body, if it is not too long, whatever its content-length says."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the connection was closed before the request was complete")
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise Refused(413, f"the body has more than {MOST_BYTES:,} bytes")
        if not message.get("more_body"):
            return body


async def refuse(refusal: Refused, send: Send) -> None:
    text = json.dumps({"error": refusal.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if refusal.status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
