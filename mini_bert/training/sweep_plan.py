"""The plan of a sweep: which settings are tried, how long the runs are, and when they are compared.

    learning_rate=5e-4,1e-3,2e-3     a list: every value is tried; several lists make a grid
    learning_rate=1e-4..1e-2         a range: values are drawn; uniformly in log scale if it spans a factor of 10
    beta2=0.9..0.999                 near 1, in the log scale of 1 − value

Draws are stratified: of n draws from a range, one falls into each of its n equal parts, so that a few draws cover the
range evenly; each range has an order of its own (McKay, Beckman and Conover, 1979: Latin hypercube sampling). Lists are
drawn in the same way if there is also a range.

A run is described by the options of `mini-bert train`, as a dict from names to values. This module does not interpret
them, except for the length of a run (steps or minutes) and its seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.draws import address, draws, shuffled, uniform
from mini_bert.common.json_values import read_object
from mini_bert.common.progress import counted
from mini_bert.models.config import MINI_BERT_CONFIG
from mini_bert.training.defaults import settings_for
from mini_bert.training.halving import cost, counts, rung_shares
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import parse_checkpointing

PLAN = "sweep.json"
FAR = 10  # a range from a to b is logarithmic if b ≥ 10 a
DRAWN = 8  # settings to draw from ranges
MOST = 500  # settings
SHORTEST = 0.05  # minutes of a run
Options = dict[str, Any]  # of `mini-bert train`
Reader = Callable[[str, str], Any]  # name and text -> the value of this option


class Values(NamedTuple):
    """A list of values, all of which are tried."""

    values: list[Any]

    def at(self, share: float) -> Any:
        return self.values[int(share * len(self.values))]


class Range(NamedTuple):
    """A range of numbers, from which values are drawn."""

    low: float
    high: float

    @property
    def logarithmic(self) -> bool:
        return self.low > 0 and self.high >= FAR * self.low

    def at(self, share: float) -> Any:
        """The number at this share of the range, from 0 to 1; of a range of whole numbers, a whole number.

        >>> Range(1e-4, 1e-2).at(0.5), Range(0.0, 1.0).at(0.25), Range(8, 64).at(0.99), Range(0.9, 0.999).at(0.5)
        (0.001, 0.25, 64, 0.99)
        """
        if isinstance(self.low, int) and isinstance(self.high, int):
            low, high = (self.low - 0.5, self.high + 0.5)  # each whole number has an equal part
            return min(self.high, max(self.low, round(_between(low, high, share, self.logarithmic))))
        if 0.5 <= self.low < self.high < 1 and 1 - self.low >= FAR * (1 - self.high):
            return min(self.high, max(self.low, round(1 - Range(1 - self.high, 1 - self.low).at(1 - share), 12)))
        value = _between(self.low, self.high, share, self.logarithmic)
        width = self.high - self.low
        digits = 2 - math.floor(math.log10(min(abs(value) or width, width)))  # three, of the value or of the range
        return min(self.high, max(self.low, round(value, digits)))


def _between(low: float, high: float, share: float, logarithmic: bool) -> float:
    return low * (high / low) ** share if logarithmic else low + (high - low) * share


def parse_variation(name: str, text: str, read: Reader) -> Values | Range:
    """What follows the = in --vary NAME=…

    >>> parse_variation("warmup", "0.1,0.25", lambda name, text: float(text))
    Values(values=[0.1, 0.25])
    """
    if ".." in text and "," not in text and "/" not in text:
        low, high = (read(name, end) for end in text.split("..", 1))
        if any(
            isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end) for end in (low, high)
        ):
            raise ValueError(f"--vary {name}={text}: only numbers have ranges; list the values, separated by commas")
        if not low < high:
            raise ValueError(f"--vary {name}={text}: expected a range from a smaller to a larger number")
        return Range(low, high)
    values = [read(name, value.strip()) for value in text.split(",")]
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"--vary {name}={text} has the value {shown(value)} twice; leave one out")
    return Values(values)


def grid(variations: Mapping[str, Values]) -> list[Options]:
    """Every combination of the values; the last name varies fastest."""
    combinations = product(*(variation.values for variation in variations.values()))
    return [dict(zip(variations, values, strict=True)) for values in combinations]


def drawn(variations: Mapping[str, Values | Range], number: int, seed: int) -> list[Options]:
    """`number` settings, drawn at random; fewer if some are equal. The same seed always gives the same ones."""
    shares = {name: _stratified(number, address(seed, index)) for index, name in enumerate(variations)}
    settings = [{name: variations[name].at(float(shares[name][i])) for name in variations} for i in range(number)]
    return [setting for i, setting in enumerate(settings) if setting not in settings[:i]]


def _stratified(number: int, key: np.ndarray) -> np.ndarray:
    """One share from each of `number` equal parts of 0 … 1, in random order."""
    return (shuffled(number, key) + uniform(draws(key, 1, np.arange(number)))) / number


def expand(variations: Mapping[str, Values | Range], number: int | None, seed: int) -> list[Options]:
    """The settings to try: a grid if all variations are lists, otherwise `number` drawn ones."""
    lists = {name: one for name, one in variations.items() if isinstance(one, Values)}
    if len(lists) < len(variations):
        number = DRAWN if number is None else number
        if not 1 <= number <= MOST:
            raise ValueError(f"--runs is {number:,}, expected 1 to {MOST} settings to draw")
        return drawn(variations, number, seed)
    size = math.prod(len(one.values) for one in lists.values())
    if number is not None:
        raise ValueError(
            "--runs is the number of settings to draw from ranges, such as learning_rate=1e-4..1e-2, but these are "
            f"lists, of which all {counted(size, 'combination')} are tried; leave out --runs"
        )
    if size > MOST:
        raise ValueError(
            f"the lists have {size:,} combinations, expected at most {MOST}; leave out values, or draw some settings "
            "from ranges with --runs"
        )
    return grid(lists)


# ---------------------------------------------------------------------- the plan


class Member(NamedTuple):
    """One run of a sweep."""

    name: str  # of its folder
    setting: int  # its number, from 0
    seed: int
    options: Options  # what `mini-bert train` gets
    more: Options  # what it gets besides, which changes nothing about the model


@dataclass(frozen=True)
class SweepPlan:
    """What determines a sweep. It is stored in the sweep's folder, and the same command continues it."""

    typed: dict[str, str]  # {"--vary warmup": "0.1,0.25", "--try 1": "--optimizer muon"}, for messages
    settings: list[Options]  # what varies
    shared: Options  # what does not
    seeds: list[int]
    unit: str  # of the length: "minutes" or "steps"
    rungs: list[float]  # where runs are compared; the last one is the length of a whole run
    folder: str  # in which the command was given: relative paths start there

    @property
    def length(self) -> float:
        return self.rungs[-1]

    @property
    def members(self) -> list[Member]:
        digits = max(2, len(str(len(self.settings))))
        return [
            Member(
                f"{number + 1:0{digits}}" + (f"-seed-{seed}" if len(self.seeds) > 1 else ""), number, seed,
                {**self.shared, self.unit: self.length, **setting, "seed": seed}, self._evaluations,
            )
            for number, setting in enumerate(self.settings) for seed in self.seeds
        ]  # fmt: skip

    @property
    def _evaluations(self) -> Options:
        """A run that is compared after equal time is evaluated at that time."""
        return {"eval_minutes": self.rungs[:-1]} if self.unit == "minutes" and len(self.rungs) > 1 else {}

    @property
    def counts(self) -> list[int]:
        """How many settings train in each rung."""
        return counts(len(self.settings), len(self.rungs))

    @property
    def work(self) -> float:
        """Of all runs together, in minutes or steps."""
        return cost(len(self.settings), len(self.rungs)) * len(self.seeds) * self.length

    @property
    def names(self) -> list[str]:
        """The options that vary."""
        return list(dict.fromkeys(name for setting in self.settings for name in setting))

    def describe(self, setting: int) -> str:
        """The values of a setting: "learning_rate 0.001, warmup 0.25"."""
        return ", ".join(f"{name} {shown(value)}" for name, value in self.settings[setting].items()) or "defaults"

    def write(self, out: Path) -> None:
        write_atomic(out / PLAN, (json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode())

    @classmethod
    def read(cls, out: Path) -> SweepPlan:
        content = read_object(out / PLAN)
        if set(content) != {field.name for field in fields(cls)}:
            raise ValueError(
                f"{out / PLAN} is not the plan of a sweep, or one of another version; choose another --out"
            )
        return cls(**content)

    def differences(self, other: SweepPlan) -> list[str]:
        """What another plan has otherwise, as "name: this value, not that one". The folder does not count."""
        same = self.settings == other.settings
        mine, theirs = (
            {**plan.shared, **({} if same else plan.typed),
             "seeds": plan.seeds, "number of settings": len(plan.settings), "number of rungs": len(plan.rungs),
             f"{plan.unit} of a run": plan.length}
            for plan in (self, other)
        )  # fmt: skip
        different = [
            f"{name}: {shown(theirs.get(name, 'not given'))} instead of {shown(mine.get(name, 'not given'))}"
            for name in dict.fromkeys((*mine, *theirs))
            if mine.get(name) != theirs.get(name)
        ]
        if not different and not same:
            different = [f"other settings, such as {other.describe(0)} instead of {self.describe(0)}: another --draw"]
        return different or (["rungs: other ones"] if self.rungs != other.rungs else [])


def combined(tries: list[Options], varied: list[Options]) -> list[Options]:
    """Each setting of `tries` with each of `varied`.

    >>> combined([{"optimizer": "muon"}, {}], [{"warmup": 0.1}])
    [{'optimizer': 'muon', 'warmup': 0.1}, {'warmup': 0.1}]
    """
    settings = [{**one, **other} for one in tries for other in varied]
    for i, setting in enumerate(settings):
        if setting in settings[:i]:
            raise ValueError(f"two settings are equal: {setting}; leave one out")
    if len(settings) > MOST:
        raise ValueError(f"these are {len(settings):,} settings, expected at most {MOST}; leave out values")
    return settings


def make_plan(
    typed: Mapping[str, str],
    settings: list[Options],
    shared: Options,
    hours: float | None = None,
    seeds: int = 1,
    rungs: int = 1,
) -> SweepPlan:
    """Choose the length of a run and the rungs.

    The length is --steps or --minutes among the shared options. Otherwise all rungs together take `hours`.
    """
    shared = dict(shared)
    first = shared.pop("seed", 0)
    steps, minutes = shared.pop("steps", None), shared.pop("minutes", None)
    shares = rung_shares(rungs)
    runs = cost(len(settings), rungs) * seeds  # whole ones
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}, expected at least 1")
    if steps is not None and (hours is not None or minutes is not None):
        raise ValueError(
            "--steps is a length of its own: leave it out to compare runs after equal time, or leave out --hours and "
            "--minutes to compare them after equal steps"
        )
    if hours is not None and not 0 < hours <= 24 * 365:
        raise ValueError(f"--hours is {hours:g}, expected the hours that the whole sweep may take, such as 1 or 0.5")
    if steps is not None:
        every = shared.setdefault("eval_every", max(1, min(TrainingConfig.eval_every, int(shares[0] * steps))))
        ends = [min(steps, every * math.ceil(share * steps / every)) for share in shares]
        if len(set(ends)) < rungs:
            more = "a smaller --eval-every" if every > 1 else "more --steps"
            raise ValueError(
                f"with an evaluation every {counted(every, 'step')}, the runs of {counted(steps, 'step')} cannot be "
                f"compared at {rungs} different points; give {more}, or fewer --rungs"
            )
        return _plan(typed, settings, shared, first, seeds, "steps", ends)
    if minutes is not None and hours is not None and runs * minutes > 60 * hours:
        many = counted(len(settings) * seeds, "run")
        raise ValueError(
            f"{many} of {minutes:g} minutes, with {counted(rungs, 'rung')}, take {runs * minutes / 60:.2f} hours, "
            f"more than the {hours:g} of --hours; leave out --minutes to let --hours decide, or choose fewer values"
        )
    longer = "--hours" if minutes is None else "--minutes"
    if minutes is None:
        minutes = math.floor(100 * 60 * (1 if hours is None else hours) / runs) / 100
    if minutes < SHORTEST:
        raise ValueError(
            f"a run would take {60 * minutes:.2g} seconds, which is too short to compare anything; give more {longer}"
            + (", or choose fewer values" if longer == "--hours" else "")
        )
    return _plan(typed, settings, shared, first, seeds, "minutes", [round(share * minutes, 4) for share in shares])


def _plan(
    typed: Mapping[str, str], settings: list[Options], shared: Options, first: int, seeds: int, unit: str,
    rungs: Sequence[float],
) -> SweepPlan:  # fmt: skip
    return SweepPlan(
        dict(typed), settings, shared, [first + i for i in range(seeds)], unit, list(rungs), str(Path.cwd())
    )


def shown(value: Any) -> str:
    """A value for a message or a table.

    >>> shown(5e-4), shown(True), shown(["a.txt", "b.txt"]), shown("mini")
    ('0.0005', 'yes', 'a.txt b.txt', 'mini')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(shown, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def clear_mistakes(plan: SweepPlan) -> Iterator[str]:
    """Settings that no training run accepts, such as a warm-up of 400 or a Muon's rate without Muon, before hours are
    spent. Of models, texts and objectives, the runs themselves will complain."""
    names = {field.name for field in fields(TrainingConfig)}
    for member in plan.members:
        given = {name: value for name, value in member.options.items() if name in names}
        try:
            if "checkpointing" in given:
                given["checkpointing"] = parse_checkpointing(given["checkpointing"])
            settings_for(MINI_BERT_CONFIG, continued="init" in member.options, **given)
        except (ValueError, TypeError) as error:
            which = (
                f" (setting {member.setting + 1}: {plan.describe(member.setting)})" if len(plan.settings) > 1 else ""
            )
            yield f"{error}{which}"
