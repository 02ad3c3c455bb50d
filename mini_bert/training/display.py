"""Watching a training run: a live board on a terminal, plain lines elsewhere, always on standard error.

    with Display(out, total_steps=4000, minutes=None) as display:
        display.note("training on the built-in corpus")  # a line for people
        display.record({"kind": "train", "step": 50, "loss": 7.31, ...})  # every record of metrics.jsonl

The plain lines go to `training.log` in the run folder, too, and there also while the board is drawn.

`python training/display.py` shows a made-up run.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mini_bert.evaluation.unigram_baseline import against
from mini_bert.training.history import Record, finite, read_run

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

EVERY = 10  # seconds between two plain lines
REFRESH = 2  # times a second that the board is drawn; it takes a few milliseconds from the training
ROWS = 6  # the height of the curve

BLOCKS = " ▁▂▃▄▅▆▇█"  # eighths of a character, from empty to full
ASCII_BLOCKS = " .:#"  # thirds, for terminals that know no more


class Display:
    """Where training/loop.py tells what happens. Nothing that goes wrong in here stops a training run."""

    def __init__(self, out: Path, total_steps: int | None, minutes: float | None, quiet: bool = False):
        self.out = out
        self.log: Path | None = out / "training.log"
        self.quiet = quiet  # nothing while it runs; what must be said is said
        self.unread = False  # whether whoever read along is gone
        self.board = Board(total_steps, minutes)
        self.live: Live | None = None
        self.ear: Ear | None = None
        self.told = -math.inf  # when the last plain line about training was written
        self.untold: Record | None = None  # the newest record that came too soon after it

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            if not console.is_dumb_terminal:
                same = sys.stdout.isatty()  # what is printed meanwhile goes above the board, unless it goes to a file
                self.live = Live(self.board, console=console, refresh_per_second=REFRESH, redirect_stdout=same)
                self.live.start()
        self.ear = Ear(lambda text, shown: self.keep(text) if shown else self.note(text, must=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ear is not None:
            self.ear.close()
        self.end()
        if isinstance(error, Exception):
            self.keep(f"ended by an error: {error}")

    def end(self) -> None:
        """The last board stays on the screen, and what is said from now on stands below it."""
        self._tell_untold()
        if self.live is not None:
            with suppress(OSError, ValueError):
                self.live.stop()
            self.live = None

    def note(self, text: str, must: bool = False) -> None:
        """A line for people: above the board on a terminal, and to training.log. One that must be said is, always."""
        if self.live is not None:
            with suppress(OSError, ValueError):
                self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif must or not self.quiet:
            self._print(text)
        self._write(text)

    def keep(self, text: str) -> None:
        """To training.log alone: what was on the screen already."""
        self._write(text)

    def record(self, record: Record) -> None:
        """Take one record of metrics.jsonl."""
        self.board.take(record)
        if record["kind"] == "resume":  # the board shows the whole run, also what was before this sitting
            with suppress(ValueError, OSError):
                for earlier in read_run(self.out).records:
                    self.board.take(earlier)
        elif record["kind"] == "train":
            self.untold = record
            if time.monotonic() - self.told >= EVERY:
                self._tell_untold()
        elif record["kind"] == "eval":
            self._tell_untold()
            self._line(eval_line(record, self.board.entropy))
        elif record["kind"] == "nonfinite":
            self._tell_untold()
            self.note(nonfinite_line(record))

    def _tell_untold(self) -> None:
        if self.untold is not None:
            self._line(train_line(self.untold, self.board.total_steps))
            self.untold, self.told = None, time.monotonic()

    def _line(self, text: str) -> None:
        """A plain line about a record: only the log needs it while the board shows the same."""
        if self.live is None and not self.quiet:
            self._print(text)
        self._write(text)

    def _print(self, text: str) -> None:
        if self.unread:
            return
        try:
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):  # whoever read along is gone: `mini-bert train 2>&1 | head`
            self.unread = True

    def _write(self, text: str) -> None:
        if self.log is None:
            return
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
        except OSError as error:  # a full disk: checkpoints matter, this file does not
            path, self.log = self.log, None
            self.note(f"{path} cannot be written ({error.strerror or error}); the training goes on without it")


@contextmanager
def heard() -> Iterator[list[str]]:
    """-> what the package warns of meanwhile, a line each: for a log that does not exist yet"""
    lines: list[str] = []

    def hear(text: str, shown: bool) -> None:
        lines.append(text)
        if not shown:
            print(text, file=sys.stderr, flush=True)

    ear = Ear(hear)
    try:
        yield lines
    finally:
        ear.close()


class Ear(logging.Handler):
    """Hears what the package warns of, until it is closed. `tell` gets the words, and whether they have been shown:
    they are where a program has chosen how logs look, and are not where Python prints what nobody listens to."""

    def __init__(self, tell: Callable[[str, bool], None]):
        super().__init__(logging.WARNING)
        self.tell = tell
        logging.getLogger("mini_bert").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.tell(record.getMessage(), bool(logging.getLogger().handlers))

    def close(self) -> None:
        logging.getLogger("mini_bert").removeHandler(self)
        super().close()


# --- the words ---------------------------------------------------------------------------------------------


def train_line(record: Record, total_steps: int | None = None) -> str:
    """A "train" record as a plain line.

    >>> train_line({"kind": "train", "step": 50, "loss": 7.31, "accuracy": 0.061, "lr": 1e-3, "eta": 230.0}, 4000)
    'step 50 of 4,000: loss 7.310, accuracy 6.1%, learning rate 1.0e-03, 3:50 left'
    """
    parts = [
        words.format(value)
        for name, words in (
            ("loss", "loss {:.3f}"),
            ("accuracy", "accuracy {:.1%}"),
            ("lr", "learning rate {:.1e}"),
            ("grad_norm", "gradient norm {:.2f}"),
            ("tokens_per_second", "{:,.0f} tokens/s"),
            ("memory_mb", "{:,.0f} MB"),
        )
        if (value := finite(record.get(name))) is not None
    ]
    if finite(record.get("loss")) is None:
        parts.insert(0, "loss is not a finite number")
    eta = finite(record.get("eta"))
    if eta is not None:
        parts.append(f"{clock(eta)} left")
    return f"{step_of(record['step'], total_steps)}: {', '.join(parts)}"


def eval_line(record: Record, entropy: float | None = None) -> str:
    """An "eval" record as a plain line, measured by what word frequencies alone would give.

    >>> eval_line({"kind": "eval", "step": 500, "loss": 6.1, "perplexity": 446.0, "top1": 0.12, "top5": 0.25}, 6.51)
    'step 500, held-out text: loss 6.100 (0.41 below the unigram entropy), perplexity 446, top-1 12.0%, top-5 25.0%'
    """
    loss = finite(record.get("loss"))
    parts = ["loss is not a finite number" if loss is None else f"loss {loss:.3f}"]
    if loss is not None and entropy is not None:
        parts[0] += f" ({against(loss, entropy)})"
    for name, words in (("perplexity", "perplexity {:,.0f}"), ("top1", "top-1 {:.1%}"), ("top5", "top-5 {:.1%}")):
        value = finite(record.get(name))
        if value is not None:
            parts.append(words.format(value))
    return f"step {record['step']:,}, held-out text: {', '.join(parts)}"


def nonfinite_line(record: Record) -> str:
    """A "nonfinite" record as a plain line.

    >>> nonfinite_line({"kind": "nonfinite", "step": 73, "what": "gradient", "tensors": ["head.w", "head.b"]})
    'step 73: the gradient is not finite any more, first in head.w'
    """
    where = f", first in {record['tensors'][0]}" if record.get("tensors") else ""
    return f"step {record['step']:,}: the {record.get('what', 'loss')} is not finite any more{where}"


def step_of(step: int, total: int | None) -> str:
    """
    >>> step_of(1250, 4000), step_of(1250, None)
    ('step 1,250 of 4,000', 'step 1,250')
    """
    return f"step {step:,}" if total is None else f"step {step:,} of {total:,}"


def clock(seconds: float) -> str:
    """
    >>> clock(7.4), clock(165), clock(2 * 3600 + 65)
    ('0:07', '2:45', '2:01:05')
    """
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- the curve ---------------------------------------------------------------------------------------------


def curve(values: Sequence[float], width: int, rows: int, low: float, high: float, ascii: bool = False) -> list[str]:
    """Columns of block characters, one line of text for each row, from the top; `low` is the bottom, `high` the top.

    >>> curve([4, 3, 2.5, 2, 1.5, 1.2, 1], width=7, rows=2, low=1, high=4)
    ['█▃     ', '███▆▄▂▁']
    """
    blocks = ASCII_BLOCKS if ascii else BLOCKS
    fine = len(blocks) - 1  # steps in one character
    heights = []
    for value in squeezed(values, width):
        share = (value - low) / (high - low) if high > low else 0.5
        heights.append(round(1 + min(max(share, 0), 1) * (rows * fine - 1)))  # even the lowest is seen
    return [
        "".join(blocks[min(max(height - row * fine, 0), fine)] for height in heights) for row in reversed(range(rows))
    ]


def squeezed(values: Sequence[float], width: int) -> list[float]:
    """At most `width` numbers: the means of as many equal pieces.

    >>> squeezed([1, 3, 5, 7], 2), squeezed([1, 3], 8)
    ([2.0, 6.0], [1, 3])
    """
    if len(values) <= width:
        return list(values)
    cuts = [len(values) * column // width for column in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]


# --- the board ---------------------------------------------------------------------------------------------


class Board:
    """The state of a run as rich draws it: the bar, the curve of the loss, the numbers."""

    def __init__(self, total_steps: int | None = None, minutes: float | None = None):
        self.total_steps = total_steps
        self.minutes = minutes
        self.entropy: float | None = None
        self.losses: list[tuple[int, float]] = []
        self.latest: dict[str, Record] = {}  # by kind
        self.came = time.monotonic()  # when the latest "train" record did

    def take(self, record: Record) -> None:
        self.latest[record["kind"]] = record
        if record["kind"] == "start":
            self.entropy = finite(record.get("unigram_entropy"))
        elif record["kind"] == "resume":
            self.losses = [(step, loss) for step, loss in self.losses if step <= record["step"]]
        elif record["kind"] == "train":
            self.came = time.monotonic()
            loss = finite(record.get("loss"))
            if loss is not None:
                self.losses.append((record["step"], loss))

    def number(self, kind: str, name: str) -> float | None:
        return finite(self.latest.get(kind, {}).get(name))

    def done(self) -> float:
        """The share of the run that lies behind us, by steps or by the clock."""
        step = self.latest.get("train", {}).get("step", 0)
        spent, eta = self.number("train", "seconds"), self.number("train", "eta")
        if self.total_steps:
            return min(step / self.total_steps, 1.0)
        if spent is not None and eta is not None and spent + eta > 0:
            return spent / (spent + eta)
        if spent is not None and self.minutes:
            return min(spent / (60 * self.minutes), 1.0)
        return 0.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ascii = options.ascii_only or options.legacy_windows
        yield self._bar()
        if len(self.losses) > 1:
            yield from self._curve(options.max_width, ascii)
        yield self._numbers(3 if options.max_width >= 76 else 2)

    def _bar(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, eta = self.done(), self.number("train", "eta")
        step = self.latest.get("train", {}).get("step", 0)
        left = "" if eta is None else f"{clock(eta - (time.monotonic() - self.came))} left"
        if "stop" in self.latest:
            left = str(self.latest["stop"].get("reason", "stopped"))
        table = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None, None):
            table.add_column(ratio=ratio, no_wrap=True, overflow="crop")
        words = Text(step_of(step, self.total_steps), style="bold")
        table.add_row(words, ProgressBar(total=1.0, completed=done), f"{done:.0%}", Text(left))
        return table

    def _curve(self, width: int, ascii: bool) -> list[Text]:
        """The loss with its scale on the left, and a line where word frequencies alone would end."""
        from rich.text import Text

        losses = [loss for _, loss in self.losses]
        columns = max(width - 8, 10)
        shown = squeezed(losses, columns)
        levels = [*shown, self.entropy] if self.entropy is not None else shown
        low, high = min(levels), max(levels)
        lines = curve(losses, columns, ROWS, low, high, ascii)
        labels = {0: f"{high:6.2f}", ROWS - 1: f"{low:6.2f}"}
        marked = None
        if self.entropy is not None and high > low:
            marked = min(int((high - self.entropy) / (high - low) * ROWS), ROWS - 1)
            labels[marked] = f"{self.entropy:6.2f}"
        drawn = []
        for row, line in enumerate(lines):
            text = Text()
            text.append(labels.get(row, " " * 6), style="yellow" if row == marked else "dim")
            text.append("|" if ascii else "┤", style="dim")
            if row == marked:
                end = line.rstrip()
                text.append(end, style="cyan")
                rule = ("-" if ascii else "╌") * (columns - len(end))
                words = " word frequencies alone "
                if len(rule) > len(words) + 6:
                    rule = rule[: -len(words) - 3] + words + rule[:3]
                text.append(rule, style="yellow")
            else:
                text.append(line, style="cyan")
            drawn.append(text)
        return drawn

    def _numbers(self, pairs: int) -> Table:
        """So many pairs of name and number to a row."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for _ in range(pairs):
            table.add_column(style="dim", no_wrap=True, overflow="crop")
            table.add_column(no_wrap=True, overflow="crop", min_width=9)
        shown = [
            ("loss", self._shown("train", "loss", "{:.3f}")),
            ("held-out loss", self._shown("eval", "loss", "{:.3f}")),
            ("word frequencies", "-" if self.entropy is None else f"{self.entropy:.3f}"),
            ("accuracy", self._shown("train", "accuracy", "{:.1%}")),
            ("held-out top-1", self._shown("eval", "top1", "{:.1%}")),
            ("tokens/s", self._shown("train", "tokens_per_second", "{:,.0f}")),
            ("learning rate", self._shown("train", "lr", "{:.1e}")),
            ("gradient norm", self._shown("train", "grad_norm", "{:.2f}")),
            ("memory", self._shown("train", "memory_mb", "{:,.0f} MB")),
        ]
        for start in range(0, len(shown), pairs):
            cells = [cell for pair in shown[start : start + pairs] for cell in pair]
            table.add_row(*(Text(cell) for cell in cells))
        return table

    def _shown(self, kind: str, name: str, words: str) -> str:
        value = self.number(kind, name)
        return "-" if value is None else words.format(value)


def made_up_run(steps: int = 4000, every: int = 50) -> list[dict[str, Any]]:
    """Records of a run that never was: down to the word frequencies, a rest there, and down again."""
    records: list[dict[str, Any]] = [
        {"kind": "start", "step": 0, "unigram_entropy": 6.51, "steps": steps, "tokens_per_step": 2048}
    ]
    for step in range(every, steps + 1, every):
        loss = 6.35 + 2.7 * math.exp(-step / 150) - 2.2 / (1 + math.exp(-(step - 2200) / 350)) + 0.05 * math.sin(step)
        seconds = 0.06 * step
        records.append(
            {
                "kind": "train",
                "step": step,
                "loss": loss,
                "accuracy": 0.5 * math.exp(-loss / 4),
                "lr": 1e-3 * min(step / 400, (steps - step) / (steps - 400)),
                "grad_norm": 1.3 + 0.2 * math.sin(step / 70),
                "tokens_per_second": 34_000.0,
                "seconds": seconds,
                "eta": 0.06 * (steps - step),
                "memory_mb": 180.2,
            }
        )
        if step % 500 == 0:
            held = {"loss": loss + 0.08, "perplexity": math.exp(loss + 0.08), "top1": 0.2, "top5": 0.4}
            records.append({"kind": "eval", "step": step, **held})
    return records


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Display(Path(folder), 4000, None) as display:
        display.note("a made-up run, a hundred times as fast as a real one")
        for record in made_up_run():
            display.record(record)
            time.sleep(0.03)


if __name__ == "__main__":
    main()
