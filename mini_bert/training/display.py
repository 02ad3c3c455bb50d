"""Shows a training run: a live board on a terminal (training/board.py), plain lines otherwise, on standard error.

    with Display(out, total_steps=4000, minutes=None) as display:
        display.note("training on the built-in corpus")
        display.record({"kind": "train", "step": 50, "loss": 7.31, ...})  # every record of metrics.jsonl

The plain lines also go to `training.log` in the run folder, with or without a board.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mini_bert.common.progress import show_cursor_at_exit
from mini_bert.common.visible import filter_redirected, unfiltered, visible
from mini_bert.common.wording import perplexity_text
from mini_bert.evaluation.unigram_baseline import against
from mini_bert.objectives.base import Objective
from mini_bert.training.board import Board, clock, step_of
from mini_bert.training.history import Record, finite, further_parts, read_run

if TYPE_CHECKING:
    from rich.live import Live

EVERY = 10  # seconds between two plain lines
REFRESH = 2  # times per second that the board is drawn, which takes a few milliseconds


class Display:
    """What the training loop reports to. Errors in here never stop a training run."""

    def __init__(self, out: Path, total_steps: int | None, minutes: float | None, quiet: bool = False):
        self.out = out
        self.log: Path | None = out / "training.log"
        self.quiet = quiet  # prints only notes with must=True
        self.closed = False  # whether standard error was closed
        self.board = Board(total_steps, minutes)
        self.live: Live | None = None
        self.warnings: WarningHandler | None = None
        self.written = -math.inf  # time of the last plain line about training
        self.pending: Record | None = None  # the newest record that came too soon after it

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=unfiltered(sys.stderr))
            if not console.is_dumb_terminal:
                same = sys.stdout.isatty()  # what is printed meanwhile goes above the board, unless it goes to a file
                self.live = Live(self.board, console=console, refresh_per_second=REFRESH, redirect_stdout=same)
                show_cursor_at_exit()
                self.live.start()
                filter_redirected()
        self.warnings = WarningHandler(lambda text, shown: self.keep(text) if shown else self.note(text, must=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.warnings is not None:
            self.warnings.close()
        self.end()
        if isinstance(error, Exception):
            self.keep(f"ended by an error: {error}")

    def end(self) -> None:
        """Draw the board for the last time; later notes appear below it."""
        self._write_pending()
        if self.live is not None:
            with suppress(OSError, ValueError):
                self.live.stop()
            self.live = None

    def note(self, text: str, must: bool = False) -> None:
        """Print a line above the board and write it to training.log. With `must`, it is printed even if quiet."""
        text = visible(text)
        if self.live is not None:
            with suppress(OSError, ValueError):
                self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif must or not self.quiet:
            self._print(text)
        self.keep(text)

    def keep(self, text: str) -> None:
        """Write a line to training.log only."""
        if self.log is None:
            return
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as file:
                file.write(visible(text) + "\n")
        except OSError as error:  # a full disk: checkpoints matter more than this file
            path, self.log = self.log, None
            self.note(f"cannot write {path} ({error.strerror or error}); training continues without it")

    def record(self, record: Record) -> None:
        """Take one record of metrics.jsonl."""
        self.board.take(record)
        if record["kind"] == "resume":  # show the run from its start
            with suppress(ValueError, OSError):
                for earlier in read_run(self.out).records:
                    self.board.take(earlier)
        elif record["kind"] == "train":
            self.pending = record
            if time.monotonic() - self.written >= EVERY:
                self._write_pending()
        elif record["kind"] == "eval":
            self._write_pending()
            self._line(eval_line(record, self.board.baseline, self.board.kind))
        elif record["kind"] == "nonfinite":
            self._write_pending()
            self.note(nonfinite_line(record))

    def _write_pending(self) -> None:
        if self.pending is not None:
            self._line(train_line(self.pending, self.board.total_steps, self.board.kind))
            self.pending, self.written = None, time.monotonic()

    def _line(self, text: str) -> None:
        """A plain line about a record. The board, if there is one, shows the same."""
        if self.live is None and not self.quiet:
            self._print(text)
        self.keep(text)

    def _print(self, text: str) -> None:
        if not self.closed:
            try:
                print(text, file=sys.stderr, flush=True)
            except (OSError, ValueError):  # as in `mini-bert train 2>&1 | head`
                self.closed = True


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collects the package's warnings while there is no log yet, and prints them if no other handler does."""
    lines: list[str] = []

    def collect(text: str, shown: bool) -> None:
        lines.append(text)
        if not shown:
            print(text, file=sys.stderr, flush=True)

    handler = WarningHandler(collect)
    try:
        yield lines
    finally:
        handler.close()


class WarningHandler(logging.Handler):
    """Passes warnings of the package on until it is closed: the text, and whether another handler has shown it."""

    def __init__(self, pass_on: Callable[[str, bool], None]):
        super().__init__(logging.WARNING)
        self.pass_on = pass_on
        logging.getLogger("mini_bert").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.pass_on(record.getMessage(), bool(logging.getLogger().handlers))

    def close(self) -> None:
        logging.getLogger("mini_bert").removeHandler(self)
        super().close()


# --- plain lines -------------------------------------------------------------------------------------------


def train_line(record: Record, total_steps: int | None = None, kind: type[Objective] = Objective) -> str:
    """A "train" record as a plain line.

    >>> train_line({"kind": "train", "step": 50, "loss": 7.31, "accuracy": 0.061, "lr": 1e-3, "eta": 230.0}, 4000)
    'step 50 of 4,000: loss 7.310, accuracy 6.1%, learning rate 1.0e-03, 3:50 left'
    """
    parts = present(record, kind, ("loss", "loss {:.3f}"), ("accuracy", "accuracy {:.1%}"),
                    ("lr", "learning rate {:.1e}"), ("grad_norm", "gradient norm {:.2f}"),
                    ("batch_size", "{:.0f} sequences"), ("length", "of {:.0f} tokens"),
                    ("mask_prob", "{:.1%} masked"),
                    ("tokens_per_second", "{:,.0f} tokens/s"), ("memory_mb", "{:,.0f} MB"))  # fmt: skip
    eta = finite(record.get("eta"))
    if eta is not None:
        parts.append(f"{clock(eta)} left")
    return f"{step_of(record['step'], total_steps)}: {', '.join(parts)}"


def eval_line(record: Record, baseline: float | None = None, kind: type[Objective] = Objective) -> str:
    """An "eval" record as a plain line, with the loss compared with the unigram baseline.

    >>> eval_line({"kind": "eval", "step": 500, "loss": 6.1, "perplexity": 446.0, "top1": 0.12, "top5": 0.25}, 6.51)
    'step 500, held-out text: loss 6.100 (0.41 below the unigram baseline), perplexity 446, top-1 12.0%, top-5 25.0%'
    """
    parts = present(record, kind, ("loss", "loss {:.3f}"), ("perplexity", perplexity_text),
                    ("top1", "top-1 {:.1%}"), ("top5", "top-5 {:.1%}"))  # fmt: skip
    loss = finite(record.get("loss"))
    if loss is not None and baseline is not None:
        parts[0] += f" ({against(loss, baseline)})"
    return f"step {record['step']:,}, held-out text: {', '.join(parts)}"


def present(record: Record, kind: type[Objective], *forms: tuple[str, str | Callable[[float], str]]) -> list[str]:
    """The finite numbers of a record, formatted; a loss that is not finite is mentioned.

    forms: names, each with a template, or with a function that formats its value, which then follows the name
    """
    if owner := kind.part_name():
        forms = tuple((name, f"{owner} {form}" if name in ("loss", "accuracy") else form) for name, form in forms)
    for name in further_parts(record):
        words = kind.part_name(name)
        forms += ((f"{name}_loss", f"{words} loss {{:.3f}}"), (f"{name}_accuracy", f"{words} accuracy {{:.1%}}"))
    parts = [
        form.format(value) if isinstance(form, str) else f"{name} {form(value)}"
        for name, form in forms
        if (value := finite(record.get(name))) is not None
    ]
    return parts if finite(record.get("loss")) is not None else ["loss is not a finite number", *parts]


def nonfinite_line(record: Record) -> str:
    """A "nonfinite" record as a plain line.

    >>> nonfinite_line({"kind": "nonfinite", "step": 73, "what": "gradient", "tensors": ["head.w", "head.b"]})
    'step 73: the gradient is no longer finite, first in head.w'
    """
    where = f", first in {record['tensors'][0]}" if record.get("tensors") else ""
    return f"step {record['step']:,}: the {record.get('what', 'loss')} is no longer finite{where}"
