"""The live board of a training run, drawn by rich: progress bar, loss curve, current numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from mini_bert.objectives.base import Objective
from mini_bert.training.history import Record, finite, further_parts, kind_of, unigram_loss

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

ROWS = 6  # height of the curve
BLOCKS = " ▁▂▃▄▅▆▇█"  # eighths of a character, from empty to full
ASCII_BLOCKS = " .:#"  # thirds, for terminals without Unicode
BASELINE = " unigram baseline "


class Board:
    """The state of a run, which rich draws."""

    def __init__(self, total_steps: int | None = None, minutes: float | None = None):
        self.total_steps = total_steps
        self.minutes = minutes
        self.baseline: float | None = None
        self.kind: type[Objective] = Objective
        self.losses: list[tuple[int, float]] = []
        self.latest: dict[str, Record] = {}  # by kind
        self.updated = time.monotonic()  # time of the latest "train" record

    def take(self, record: Record) -> None:
        self.latest[record["kind"]] = record
        if record["kind"] == "start":
            self.baseline, self.kind = unigram_loss(record), kind_of(record)
        elif record["kind"] == "resume":
            self.losses = [(step, loss) for step, loss in self.losses if step <= record["step"]]
        elif record["kind"] == "train":
            self.updated = time.monotonic()
            loss = finite(record.get("loss"))
            if loss is not None:
                self.losses.append((record["step"], loss))

    def number(self, kind: str, name: str) -> float | None:
        return finite(self.latest.get(kind, {}).get(name))

    def done(self) -> float:
        """The completed share of the run, by steps or by time."""
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
        yield self._bar()
        if len(self.losses) > 1:
            yield from self._curve(options.max_width, options.ascii_only or options.legacy_windows)
        yield self._numbers(3 if options.max_width >= 76 else 2)

    def _bar(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, eta = self.done(), self.number("train", "eta")
        step = self.latest.get("train", {}).get("step", 0)
        left = "" if eta is None else f"{clock(eta - (time.monotonic() - self.updated))} left"
        if "stop" in self.latest:
            left = str(self.latest["stop"].get("reason", "stopped"))
        table = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None, None):
            table.add_column(ratio=ratio, no_wrap=True, overflow="crop")
        label = Text(step_of(step, self.total_steps), style="bold")
        table.add_row(label, ProgressBar(total=1.0, completed=done), f"{done:.0%}", Text(left))
        return table

    def _curve(self, width: int, ascii: bool) -> list[Text]:
        """The loss with its scale on the left, and a line at the unigram baseline."""
        from rich.text import Text

        losses = [loss for _, loss in self.losses]
        columns = max(width - 8, 10)
        levels = squeezed(losses, columns) + ([] if self.baseline is None else [self.baseline])
        low, high = min(levels), max(levels)
        labels = {0: f"{high:6.2f}", ROWS - 1: f"{low:6.2f}"}
        marked = None
        if self.baseline is not None and high > low:
            marked = min(int((high - self.baseline) / (high - low) * ROWS), ROWS - 1)
            labels[marked] = f"{self.baseline:6.2f}"
        drawn = []
        for row, line in enumerate(curve(losses, columns, ROWS, low, high, ascii)):
            text = Text(labels.get(row, " " * 6), style="yellow" if row == marked else "dim")
            text.append("|" if ascii else "┤", style="dim")
            text.append(line.rstrip(), style="cyan")
            if row == marked:
                rule = ("-" if ascii else "╌") * (columns - len(line.rstrip()))
                if len(rule) > len(BASELINE) + 6:
                    rule = rule[: -len(BASELINE) - 3] + BASELINE + rule[:3]
                text.append(rule, style="yellow")
            drawn.append(text)
        return drawn

    def _numbers(self, pairs: int) -> Table:
        """A grid with this many names and numbers per row."""
        from rich.table import Table
        from rich.text import Text

        def shown(kind: str, name: str, form: str) -> str:
            value = self.number(kind, name)
            return "-" if value is None else form.format(value)

        table = Table.grid(padding=(0, 1))
        for _ in range(pairs):
            table.add_column(style="dim", no_wrap=True, overflow="crop")
            table.add_column(no_wrap=True, overflow="crop", min_width=9)
        cells = [
            (f"{self.kind.part_name()} loss".lstrip(), shown("train", "loss", "{:.3f}")),
            ("held-out loss", shown("eval", "loss", "{:.3f}")),
            ("unigram baseline", "-" if self.baseline is None else f"{self.baseline:.3f}"),
            ("accuracy", shown("train", "accuracy", "{:.1%}")),
            ("held-out top-1", shown("eval", "top1", "{:.1%}")),
            ("tokens/s", shown("train", "tokens_per_second", "{:,.0f}")),
            ("learning rate", shown("train", "lr", "{:.1e}")),
            ("gradient norm", shown("train", "grad_norm", "{:.2f}")),
            ("memory", shown("train", "memory_mb", "{:,.0f} MB")),
        ]
        for name, words, form in (
            ("muon_lr", "Muon's rate", "{:.1e}"), ("batch_size", "sequences", "{:.0f}"),
            ("length", "tokens each", "{:.0f}"), ("mask_prob", "masked", "{:.1%}"),
        ):  # fmt: skip
            if self.number("train", name) is not None:
                cells.append((words, shown("train", name, form)))
        for name in further_parts(self.latest.get("train", {})):
            cells += [
                (f"{self.kind.part_name(name)} loss", shown("train", f"{name}_loss", "{:.3f}")),
                ("accuracy", shown("train", f"{name}_accuracy", "{:.1%}")),
                ("held out", shown("eval", f"{name}_accuracy", "{:.1%}")),
            ]
        for start in range(0, len(cells), pairs):
            table.add_row(*(Text(cell) for pair in cells[start : start + pairs] for cell in pair))
        return table


def curve(values: Sequence[float], width: int, rows: int, low: float, high: float, ascii: bool = False) -> list[str]:
    """Bars of block characters, one string per row from the top; `low` is at the bottom, `high` at the top.

    >>> curve([4, 3, 2.5, 2, 1.5, 1.2, 1], width=7, rows=2, low=1, high=4)
    ['█▃     ', '███▆▄▂▁']
    """
    blocks = ASCII_BLOCKS if ascii else BLOCKS
    fine = len(blocks) - 1  # levels per character
    heights = []
    for value in squeezed(values, width):
        share = (value - low) / (high - low) if high > low else 0.5
        heights.append(round(1 + min(max(share, 0), 1) * (rows * fine - 1)))  # the lowest is visible, too
    return [
        "".join(blocks[min(max(height - row * fine, 0), fine)] for height in heights) for row in reversed(range(rows))
    ]


def squeezed(values: Sequence[float], width: int) -> list[float]:
    """At most `width` numbers: the means of equal pieces.

    >>> squeezed([1, 3, 5, 7], 2), squeezed([1, 3], 8)
    ([2.0, 6.0], [1, 3])
    """
    if len(values) <= width:
        return list(values)
    cuts = [len(values) * column // width for column in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]


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
