"""The application: routes, limits on requests, errors, metrics. `running.py` starts it, tests call it directly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mini_bert
from mini_bert.common.extras import extra
from mini_bert.common.web import read_object
from mini_bert.serving import pages
from mini_bert.serving.answers import info
from mini_bert.serving.batching import Batcher
from mini_bert.serving.calls import LARGE, Call, Limits, too_slow
from mini_bert.serving.failures import Failure, body_of
from mini_bert.serving.guard import Guard
from mini_bert.serving.json_text import Json, as_text
from mini_bert.serving.metrics import NEEDED, Metrics
from mini_bert.serving.routes import ROUTES, Route, is_openai, main_route
from mini_bert.serving.schemas import checked
from mini_bert.serving.served import Served
from mini_bert.serving.shelf import Entry, Shelf
from mini_bert.serving.writing import Stream

WATCH = 0.1  # seconds after which a request also waits for its client to hang up
logger = logging.getLogger(__name__)


class Server:
    """The models and what is common to all requests. `app` is the ASGI application."""

    def __init__(
        self,
        sources: dict[str, str],
        limits: Limits = Limits(),  # noqa: B008 (a tuple)
        threads: int = 2,
        engine: str = "numpy",
        pooling: str | None = None,
        address: str = "http://127.0.0.1:8080",
    ):
        self.limits, self.threads, self.address = limits, threads, address
        self.metrics = Metrics()

        def load(name: str, source: str) -> Served:
            return Served.load(name, source, engine, pooling)

        def queue(name: str) -> Batcher:
            return Batcher(threads, limits.max_batch_tokens, seen=self.metrics.batch_of(name))

        def on_reload(name: str, result: str) -> None:
            self.metrics.reloads.labels(name, result).inc()

        self.shelf = Shelf(sources, load, queue, on_reload, limits.timeout + 1)
        for name in sources:
            self.metrics.queue.labels(name).set_function(
                lambda name=name: len(self.shelf.entries[name].batcher.waiting)
            )
        self.responses = extra("starlette.responses", *NEEDED)

    def app(self, hosts: set[str] | None = None, origins: Sequence[str] = (), key: str | None = None) -> Any:
        """The ASGI application behind its guard. origins: web pages that may use it"""
        starlette, routing = extra("starlette.applications", *NEEDED), extra("starlette.routing", *NEEDED)
        routes = [
            *(routing.Route(route.path, self.endpoint(route), methods=["POST"]) for route in ROUTES),
            *(routing.Route("/models/{name}" + route.path, self.endpoint(route), methods=["POST"]) for route in ROUTES),
            routing.Route("/", self.endpoint(None), methods=["POST"]),
            routing.Route("/models/{name}", self.endpoint(None), methods=["POST"]),
            *(routing.Route(path, self.health) for path in ("/health", "/ping", "/")),
            routing.Route("/info", self.info),
            routing.Route("/models/{name}/info", self.info),
            routing.Route("/metrics", self.show_metrics),
            routing.Route("/v1/models", self.openai_models),
            routing.Route("/v1/models/{name:path}", self.openai_model),
            routing.Route("/openapi.json", self.show_openapi(key is not None)),
            routing.Route("/docs", self.show_docs),
            routing.Route("/docs.css", self.show_style),
        ]
        handlers = {404: self.not_found, 405: self.not_found, Exception: self.internal_error}
        inner: Any = starlette.Starlette(routes=routes, lifespan=self.lifespan, exception_handlers=handlers)
        self.guard = guard = Guard(inner, self.limits, self.metrics.failed, hosts, origins, key)
        self.metrics.active.set_function(lambda: guard.active)
        if not origins:
            return guard
        cors = extra("starlette.middleware.cors", *NEEDED).CORSMiddleware
        return cors(guard, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"])

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        self.readers = ThreadPoolExecutor(1, thread_name_prefix="reading")
        self.writers = ThreadPoolExecutor(self.threads, thread_name_prefix="writing")
        watching = asyncio.create_task(self.shelf.watch())
        yield
        watching.cancel()
        for executor in (self.readers, self.writers):
            executor.shutdown(wait=False, cancel_futures=True)
        self.shelf.close()

    # ------------------------------------------------------------------ work

    def endpoint(self, route: Route | None) -> Any:
        """The function of a route; None: whatever the model was made for"""

        async def answer(request: Any) -> Any:
            body, began = await request.body(), time.perf_counter()
            try:
                read, name = self.read, request.path_params.get("name")
                if len(body) <= LARGE:
                    entry, chosen, fields = read(route, name, body)
                else:
                    reading = asyncio.get_running_loop().run_in_executor(self.readers, read, route, name, body)
                    entry, chosen, fields = await reading
                call = Call(entry.served, entry.batcher, self.limits, self.readers, self.writers, len(body), fields)
                call.began = began
                method = "batch" if isinstance(fields.get("inputs") or fields.get("input"), list) else "single"
                self.metrics.requests.labels(method).inc()
                value = await self.patient(self.answer(chosen, call), request)
                if isinstance(value, Stream):
                    return self.stream(value, call, method)
                self.metrics.answered(call, time.perf_counter() - began, method)
                return self.responses.Response(value, headers=call.headers(), media_type="application/json")
            except Failure as failure:
                return self.failed(failure, route is not None and route.openai)

        return answer

    async def answer(self, route: Route, call: Call) -> Json | Stream:
        value = await route.answer(call)
        if isinstance(value, (Json, Stream)):
            return value
        return await call.in_thread_if_large(call.size, as_text, value)

    def read(self, route: Route | None, name: str | None, body: bytes) -> tuple[Entry, Route, dict[str, Any]]:
        """The model, the route and the fields of a request."""
        try:
            given = read_object(body)
        except ValueError as problem:
            raise Failure("Validation", str(problem), 400) from None
        entry = self.shelf.find(given.get("model")) if name is None else self.shelf.named(name)
        chosen = route or main_route(entry.served)
        return entry, chosen, checked(given, chosen.request)

    async def patient(self, work: Any, request: Any) -> Any:
        """What `work` returns. It is cancelled when it takes too long, or when its client hangs up."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        failures: list[Failure] = []
        watched: list[Any] = []  # what is to be cancelled at the end; then it is empty

        def stop(failure: Failure) -> None:
            if watched:
                failures.append(failure)
                task.cancel()

        def watch() -> None:
            hanging_up = asyncio.ensure_future(request.receive())
            hanging_up.add_done_callback(gone)
            slow = loop.call_later(self.limits.timeout - WATCH, stop, too_slow(self.limits))
            watched.extend((hanging_up, slow))

        def gone(hanging_up: asyncio.Future[Any]) -> None:
            if not hanging_up.cancelled():
                stop(Failure("Gone", "the client has closed the connection"))

        watched.append(loop.call_later(WATCH, watch))  # most requests are answered before that
        try:
            return await work
        except asyncio.CancelledError:
            if not failures:
                raise  # the server is closing
            task.uncancel()
            raise failures[0] from None
        finally:
            for one in watched:
                one.cancel()
            watched.clear()

    def stream(self, value: Stream, call: Call, method: str) -> Any:
        """Events as they come. The last one may be an error, in the form that OpenAI's client notices, too."""

        async def events() -> AsyncIterator[str]:
            try:
                async for event in value.events:
                    yield event
                self.metrics.answered(call, time.perf_counter() - call.began, method)
            except Exception as error:
                failure = error if isinstance(error, Failure) else Failure("Backend", str(error))
                if failure is not error:
                    logger.exception("a stream failed")
                self.metrics.failed(failure.kind)
                yield f"data: {json.dumps(body_of(failure.status, failure.kind, failure.sentence, False))}\n\n"

        return self.responses.StreamingResponse(events(), media_type="text/event-stream")

    def failed(self, failure: Failure, openai: bool) -> Any:
        self.metrics.failed(failure.kind)
        headers = {"retry-after": "1"} if failure.kind == "Overloaded" else {}
        body = body_of(failure.status, failure.kind, failure.sentence, openai)
        return self.responses.JSONResponse(body, failure.status, headers)

    async def not_found(self, request: Any, error: Any) -> Any:
        known = "see /docs for the routes" if error.status_code == 404 else f"it takes {error.headers['Allow']}"
        sentence = f"{request.method[:20]} {request.url.path[:80]} is not possible; {known}"
        return self.failed(Failure("NotFound", sentence, error.status_code), is_openai(request.url.path))

    async def internal_error(self, request: Any, error: Exception) -> Any:
        failure = Failure("Internal", "this is a mistake in the server; its log shows more")
        return self.failed(failure, is_openai(request.url.path))

    # ------------------------------------------------------------------ about the server

    async def health(self, request: Any) -> Any:
        limit = self.limits.timeout
        problems = {name: await entry.problem(limit) for name, entry in self.shelf.entries.items()}
        models = {
            name: {"problem": problems[name], "replacement": entry.replacement, "loaded": entry.served.loaded,
                   "waiting": len(entry.batcher.waiting)}
            for name, entry in self.shelf.entries.items()
        }  # fmt: skip
        if any(problems.values()):
            error = body_of(503, "Unhealthy", "unhealthy", False)
            return self.responses.JSONResponse({**error, "status": "unhealthy", "models": models}, 503)
        return self.responses.JSONResponse({"status": "ok", "models": models})

    async def info(self, request: Any) -> Any:
        try:
            name = request.path_params.get("name")
            entry = self.shelf.find(None) if name is None else self.shelf.named(name)
        except Failure as failure:
            return self.failed(failure, False)
        return self.responses.JSONResponse(info(self.limits, entry.served, mini_bert.__version__))

    async def show_metrics(self, request: Any) -> Any:
        return self.responses.Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def described(self, name: str) -> dict[str, Any]:
        created = self.shelf.entries[name].served.loaded
        return {"id": name, "object": "model", "created": created, "owned_by": "mini-bert"}

    async def openai_models(self, request: Any) -> Any:
        return self.responses.JSONResponse(
            {"object": "list", "data": [self.described(name) for name in self.shelf.entries]}
        )

    async def openai_model(self, request: Any) -> Any:
        name = request.path_params["name"]
        if name not in self.shelf.entries:
            return self.failed(Failure("NotFound", f"there is no model {name!r:.80}"), True)
        return self.responses.JSONResponse(self.described(name))

    def show_openapi(self, needs_key: bool) -> Any:
        async def show(request: Any) -> Any:
            return self.responses.JSONResponse(pages.openapi(needs_key))

        return show

    async def show_docs(self, request: Any) -> Any:
        return self.responses.HTMLResponse(pages.docs(list(self.shelf.entries), self.address))

    async def show_style(self, request: Any) -> Any:
        return self.responses.Response(pages.STYLE, media_type="text/css")
