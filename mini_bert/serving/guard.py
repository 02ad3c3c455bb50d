"""The guard of the server: hosts, other pages, the key, and bounds of a body. See common/web.py.

A server that only this computer can reach (127.0.0.1) must be called by its own name, or by one of `names`, else a web
page elsewhere could use it through DNS rebinding. One that is open to a network goes by any name. Requests of other web
pages are refused, unless their origin was allowed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from mini_bert.common import web
from mini_bert.common.web import Refused, local_names
from mini_bert.serving.calls import Limits
from mini_bert.serving.failures import BY_STATUS, body_of
from mini_bert.serving.routes import is_openai

PUBLIC = ("/health", "/ping", "/metrics", "/docs", "/docs.css", "/openapi.json")  # also without a key
REMEDY = {
    413: "; send less at once, or start the server with another --payload-limit",
    421: "; if it has another name, start it with --allowed-host NAME",
}
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Guard(web.Guard):
    headers = {  # noqa: RUF012
        "x-content-type-options": "nosniff",
        "content-security-policy": POLICY,
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }

    def __init__(
        self,
        app: Any,
        limits: Limits,
        on_refused: Callable[[str], None] = lambda kind: None,
        hosts: set[str] | None = None,
        origins: Sequence[str] = (),
        key: str | None = None,
    ):
        """hosts: the names that this server goes by; None: any"""
        super().__init__(app)
        self.hosts, self.origins = hosts, {*origins, *(f"http://{host}" for host in hosts or ())}
        self.key = None if key is None else key.encode()
        self.most_bytes, self.patience = limits.payload_limit, limits.patience
        self.most_active = limits.max_concurrent_requests
        self.active = 0  # requests with a body, from their first lines to the end of the answer
        self.on_refused = on_refused

    async def __call__(self, scope: MutableMapping[str, Any], receive: web.Receive, send: web.Send) -> None:
        posted = scope.get("method") == "POST"
        self.active += posted
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.active -= posted

    def admit(self, request: web.Request) -> None:
        if self.hosts is not None:
            request.check_host(self.hosts)
        request.check_origin(self.origins)
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refused(405, f"the method {request.method[:20]} is not supported")
        if self.key is not None and request.path not in PUBLIC:
            self.check_key(request.header("authorization") or "")
        if request.method == "POST":
            request.check_json()
            if self.active > self.most_active:  # before the body, which takes memory
                raise Refused(429, "Model is overloaded")

    def check_key(self, given: str) -> None:
        """The comparison takes as long for a wrong key as for a right one, so that nothing can be learnt from it."""
        assert self.key is not None
        scheme, _, key = given.partition(" ")
        right = hmac.compare_digest(key.strip().encode("latin-1", "replace"), self.key)
        if scheme.lower() != "bearer" or not right:
            given = "the key that was sent is another one" if given else "none was sent"
            raise Refused(401, f"this server needs a key, and {given}: send the header `Authorization: Bearer KEY`")

    def refusal(self, request: web.Request, refused: Refused) -> tuple[dict[str, Any], dict[str, str]]:
        kind = BY_STATUS.get(refused.status, "Validation")
        self.on_refused(kind)
        more = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}.get(refused.status, {})
        sentence = refused.sentence + REMEDY.get(refused.status, "")
        return body_of(refused.status, kind, sentence, is_openai(request.path)), more


def hosts_of(host: str, port: int, names: Sequence[str]) -> set[str] | None:
    """The names of a server that only this computer can reach; None for one that is open to a network"""
    if host not in ("127.0.0.1", "localhost", "::1"):
        return None
    return {*local_names(port), f"[::1]:{port}", *names, *(f"{name}:{port}" for name in names)}
