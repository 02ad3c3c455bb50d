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

import time
from collections.abc import Callable
from typing import Any

from mini_bert.common import web
from mini_bert.common.web import Refused, local_names

MOST_BYTES = 64 << 10  # of a body
RATE, BURST = 40.0, 80.0  # requests per second for a while, and at once
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


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


class Guard(web.Guard):
    """port: the one that the server listens on"""

    most_bytes = MOST_BYTES
    headers = {  # noqa: RUF012
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-cache",  # files are asked for again after an update; answers are never kept
    }

    def __init__(self, app: Any, port: int, rate: Rate | None = None):
        super().__init__(app)
        self.rate = rate or Rate()
        self.hosts = local_names(port)
        self.origins = {f"http://{host}" for host in self.hosts}

    def admit(self, request: web.Request) -> None:
        request.check_host(self.hosts)
        request.check_origin(self.origins)
        posted = request.method == "POST"
        works = posted or request.path.startswith("/api/")
        if works and (request.header("sec-fetch-site") or "").lower() in ("cross-site", "same-site"):
            raise Refused(403, "requests from other pages are refused")
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refused(405, f"the method {request.method[:20]} is not supported")
        if posted:
            request.check_json()
        if works and not self.rate.allows():
            raise Refused(429, "too many requests at once; wait a second")
