"""Run the lab: open a port on this computer, start the server, open the browser, and end on Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_bert.common.extras import extra
from mini_bert.common.web import open_port, run_server
from mini_bert.lab.server import DEFAULT, NEEDED, Loading, create_app
from mini_bert.lab.shelf import Shelf

HOST = "127.0.0.1"  # only this computer
PORT = 8642  # if it is free
CONNECTIONS = 100  # open at the same time: many tabs
GRACE = 3  # seconds in which running requests may end


def end_training() -> None:
    """End a run that the page has started; it saves a checkpoint first."""
    for name in ("training", "breaking"):
        room = sys.modules.get(f"mini_bert.lab.{name}")
        if room is not None:
            room.TRAINER.close()


def run_lab(model: str = DEFAULT, port: int | None = None, browser: bool = True, more: Sequence[str] = ()) -> None:
    """Serve the lab until Ctrl-C. more: other models that the page may choose, besides runs in ./runs"""
    uvicorn: Any = extra("uvicorn", *NEEDED)
    for name in (model, *more):
        if name != DEFAULT:
            from mini_bert.files.model_folder import locate

            locate(name)  # a wrong path is an error here, not only on the page
    shelf = Shelf(Loading(model), more, Path("runs"))
    listening = open_port(HOST, [PORT, 0] if port is None else [port])
    with contextlib.closing(listening):
        used = listening.getsockname()[1]
        app = create_app(shelf, used, end_training)
        address = f"http://{HOST}:{used}/"
        print(f"The lab is open at {address} (only from this computer). End it with Ctrl-C.", flush=True)
        if browser:  # the port is open: a request waits until the server is ready
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE, server_header=False,
            date_header=False, ws="none", h11_max_incomplete_event_size=32 << 10, limit_concurrency=CONNECTIONS,
        )  # fmt: skip
        run_server(uvicorn.Server(config), listening)
        print("The lab is closed.")
