"""The server of the lab: static files, and POST /api/ROOM/ACTION with JSON in and JSON out.

    app = create_app(Loading("mini-bert"), port=8642)

Only this computer can reach it, because it listens on 127.0.0.1, and only our own page may use it (guard.py). The model
loads in a thread while the page appears with answers that were computed beforehand (first_view.py). Actions run in two
worker threads. After TIME seconds a request gets an error; texts are bounded, so its thread ends soon after.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mini_bert.common.extras import extra
from mini_bert.lab.fields import Unable
from mini_bert.lab.guard import Guard
from mini_bert.lab.shelf import Shelf

STATIC = Path(__file__).parent / "static"
FIRST_VIEW = "first_view.json"
DEFAULT = "mini-bert"  # the model that the first view was computed with
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".json": "application/json", ".svg": "image/svg+xml",
}  # fmt: skip
TIME = 20.0  # seconds for one action, including the wait for the model
WORKERS = 2
NEEDED = "the lab needs Starlette and uvicorn (the extra `lab`), which are not installed"
logger = logging.getLogger(__name__)


class Loading:
    """A bench that loads in a thread. `bench` waits for it, and raises the error if it could not be loaded."""

    def __init__(self, name: str, load: Callable[[str], Any] | None = None):
        self.name, self.load = name, load
        self._bench: Any = None
        self._error: Exception | None = None
        self._starting = threading.Lock()  # two requests may begin at the same time
        self._thread = threading.Thread(target=self._run, name="loading the model", daemon=True)

    def start(self) -> None:
        with self._starting:
            if not self._thread.ident:
                self._thread.start()

    def _run(self) -> None:
        try:
            from threadpoolctl import threadpool_limits

            if self.load is None:  # imported here: the page need not wait for NumPy
                from mini_bert.lab.bench import Bench

                self.load = Bench.load
            threadpool_limits(1, "blas")  # for the whole lab: a second thread gains nothing for one sentence
            self._bench = self.load(self.name)
        except Exception as error:
            self._error = error

    @property
    def ready(self) -> bool:
        return self._bench is not None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def bench(self) -> Any:
        self.start()
        self._thread.join()
        if self._error is not None:
            raise ValueError(f"the model {self.name} could not be loaded: {self._error}")
        return self._bench


def create_app(models: Loading | Shelf, port: int, on_close: Callable[[], None] = lambda: None) -> Any:
    """The application, for a page at http://127.0.0.1:port. on_close is called when the lab ends."""
    shelf = models if isinstance(models, Shelf) else Shelf(models)
    loading = shelf.first
    starlette = extra("starlette.applications", NEEDED)
    responses, routing = extra("starlette.responses", NEEDED), extra("starlette.routing", NEEDED)
    Response, JSONResponse, Route = responses.Response, responses.JSONResponse, routing.Route
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
    workers: ThreadPoolExecutor | None = None  # while the server runs

    async def static(request: Any) -> Any:
        name = request.path_params.get("path") or "index.html"
        path = files.get(name)
        if path is None or path.suffix not in TYPES:
            return error(404, f"there is no file {name!r:.80}")
        if name == FIRST_VIEW and loading.name != DEFAULT:
            return JSONResponse({})
        return Response(path.read_bytes(), media_type=TYPES[path.suffix])

    async def about(request: Any) -> Any:
        return JSONResponse({"model": loading.name, "ready": loading.ready, "models": shelf.names()})

    async def act(request: Any) -> Any:
        try:
            wanted = await read_object(request)
            chosen = shelf.loading(request.query_params.get("model"))
            parts = (chosen, request.path_params["room"], request.path_params["action"], wanted)
            text = await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(workers, answer, *parts), TIME)
        except KeyError as problem:
            return error(404, str(problem.args[0]))
        except ValueError as problem:
            return error(400, str(problem))
        except TimeoutError:
            return error(503, f"this took longer than {TIME:.0f} seconds; try a shorter sentence")
        except Exception:
            logger.exception("an action of the lab failed")
            return error(500, "this is a mistake in the lab; the terminal in which it runs shows more")
        return Response(text, media_type="application/json")

    def error(status: int, sentence: str) -> Any:
        return JSONResponse({"error": sentence}, status)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        nonlocal workers
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="lab")
        loading.start()
        yield
        workers.shutdown(wait=False, cancel_futures=True)
        on_close()

    routes = [
        Route("/", static),
        Route("/api/about", about),
        Route("/api/{room}/{action}", act, methods=["POST"]),
        Route("/{path:path}", static),
    ]
    return Guard(starlette.Starlette(routes=routes, lifespan=lifespan), port)


async def read_object(request: Any) -> dict[str, Any]:
    """The JSON object in the body of a request. Guard has bounded its size."""
    try:
        value = json.loads(await request.body(), parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise ValueError("the body of the request is not valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"the body of the request is a {type(value).__name__}, expected an object")
    return value


def _not_a_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def answer(loading: Loading, room: str, action: str, request: dict[str, Any]) -> str:
    """The answer of an action as JSON. Runs in a worker thread."""
    from mini_bert.lab import rooms

    chosen, bench = rooms.action(room, action), loading.bench()
    try:
        found = chosen(bench, request)
    except Unable as problem:
        found = {"unable": str(problem)}
    return json.dumps(found, allow_nan=False, separators=(",", ":"))
