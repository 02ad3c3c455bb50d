"""Let the current step finish after Ctrl-C, a signal to end, or the closing of the terminal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # the last is Ctrl-Break on Windows, which has no SIGHUP


@contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C, SIGTERM, SIGHUP or Ctrl-Break sets; a second one raises KeyboardInterrupt.

    A second SIGHUP does not: when a terminal is closed, both the system and the shell may send one.
    Signals that were ignored when we started (nohup, a shell's background job) stay ignored.
    """
    stop = threading.Event()
    # In its own thread: the signal may have interrupted this one in the middle of printing.
    speaker = threading.Thread(
        target=say, args=("finishing this step, then saving; a second Ctrl-C stops at once",), daemon=True
    )
    kept: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            if number == getattr(signal, "SIGHUP", None):
                return
            restore()
            raise KeyboardInterrupt
        stop.set()
        speaker.start()

    def restore() -> None:
        for name, handler in kept.items():
            signal.signal(name, handler)

    if threading.current_thread() is threading.main_thread():  # only the main thread may catch signals
        for name in (getattr(signal, name) for name in STOPPING if hasattr(signal, name)):
            if signal.getsignal(name) not in (signal.SIG_IGN, None):
                kept[name] = signal.signal(name, handle)
    try:
        yield stop
    finally:
        restore()
        if stop.is_set():
            speaker.join(timeout=1)  # so that the next message comes after it
