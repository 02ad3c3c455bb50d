"""A sweep: many runs of `mini-bert train` under one budget, with successive halving (halving.py).

    OUT/sweep.json      the plan (sweep_plan.py)
    OUT/results.json    what each run reached at each rung, and which settings went on; written after every run
    OUT/runs/01 …       an ordinary run folder for each run
    OUT/logs/01.txt …   what each run said
    OUT/table.md, OUT/curves.svg    the end (sweep_report.py)

All of it can be killed at any time. The same command continues: runs that were judged are not trained again, the one
that was running is resumed from its last checkpoint.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from mini_bert.common.atomic import write_atomic
from mini_bert.common.json_values import as_json, read_object
from mini_bert.common.progress import Show, counted
from mini_bert.training.board import clock
from mini_bert.training.halving import survivors
from mini_bert.training.history import History, finite
from mini_bert.training.sweep_plan import Member, SweepPlan
from mini_bert.training.sweep_runs import Lost, Point, Start, advance, words_to_continue

RESULTS, RUNS, LOGS = "results.json", "runs", "logs"


class Results:
    """What is known so far, as in results.json.

    rungs   for each rung that has begun: scores by run, and the numbers of the settings that go on (None: undecided)
    lost    runs that diverged or failed
    """

    def __init__(self, out: Path):
        self.path = out / RESULTS
        content: dict[str, Any] = read_object(self.path) if self.path.exists() else {}
        self.rungs: list[dict[str, Any]] = [
            {"scores": {name: Point(**score) for name, score in rung["scores"].items()}, "kept": rung["kept"]}
            for rung in content.get("rungs", [])
        ]
        self.lost = {name: Lost(**one) for name, one in content.get("lost", {}).items()}
        now = len(self.rungs) - 1
        if self.rungs and self.rungs[now]["kept"] is None:  # try again what failed; what diverged would diverge again
            self.lost = {name: one for name, one in self.lost.items() if one.why == "diverged" or one.rung < now}

    def write(self) -> None:
        write_atomic(self.path, (as_json({"rungs": self.rungs, "lost": self.lost}) + "\n").encode())

    def score(self, name: str) -> tuple[int, Point] | None:
        """The last rung at which a run was judged, from 0, and what it had reached."""
        scores = [(index, rung["scores"][name]) for index, rung in enumerate(self.rungs) if name in rung["scores"]]
        return scores[-1] if scores else None

    def loss(self, members: list[Member], rung: int) -> float:
        """The mean loss of a setting's runs at a rung; infinite if one of them was lost or has not been there."""
        scores = self.rungs[rung]["scores"]
        if any(member.name in self.lost or member.name not in scores for member in members):
            return math.inf
        return mean(scores[member.name].loss for member in members)


class Sweep:
    """Trains the runs of a plan, one at a time, in the folder `out`.

    start   starts a process that trains; show: displays progress; say: prints a line
    """

    def __init__(self, out: Path, plan: SweepPlan, start: Start, show: Show, say: Callable[[str], None]):
        self.out, self.plan, self.start, self.show, self.say = out, plan, start, show, say
        self.results = Results(out)
        self.members: dict[int, list[Member]] = {}
        for member in plan.members:
            self.members.setdefault(member.setting, []).append(member)

    def run(self, stop: threading.Event) -> bool:
        """Train until the end, or until `stop` is set. Returns whether the end was reached."""
        settings = list(self.members)
        for rung in range(len(self.plan.rungs)):
            if rung == len(self.results.rungs):
                self.results.rungs.append({"scores": {}, "kept": None})
            while self.results.rungs[rung]["kept"] is None:
                if not all(self._advance(rung, member, stop) for member in self._to_train(rung, settings)):
                    return False
                if not self._decide(rung, settings):
                    settings = self._instead(rung)
            settings = self.results.rungs[rung]["kept"]
        return True

    def _to_train(self, rung: int, settings: list[int]) -> list[Member]:
        return [
            member
            for setting in settings
            for member in self.members[setting]
            if member.name not in self.results.rungs[rung]["scores"] and member.name not in self.results.lost
        ]

    def _advance(self, rung: int, member: Member, stop: threading.Event) -> bool:
        """Train a run up to a rung and write down what it has reached. Returns False if it was stopped before."""
        path, where, log = self.out / RUNS / member.name, self.plan.rungs[rung], self.out / LOGS / f"{member.name}.txt"
        log.parent.mkdir(exist_ok=True)
        size = log.stat().st_size if log.exists() else 0
        reached = None
        if not stop.is_set():
            reached = advance(
                path, self.plan.unit, where, last=rung == len(self.plan.rungs) - 1, stop=stop,
                start=lambda: self.start(words_to_continue(path, member.options | member.more), log),
                watch=lambda history: self._watch(rung, member, history), said=lambda: last_line(log, size),
            )  # fmt: skip
        if reached is None:
            return False
        if isinstance(reached, Lost):
            self.results.lost[member.name] = reached._replace(rung=rung)
            self.say(f"run {member.name} ({self.plan.describe(member.setting)}): {reached.text}")
        else:
            self.results.rungs[rung]["scores"][member.name] = reached
            self.say(
                f"run {member.name} ({self.plan.describe(member.setting)}): held-out loss {reached.loss:.3f} after "
                f"{counted(reached.step, 'step')}, in {clock(reached.seconds)}"
            )
        self.results.write()
        return True

    def _decide(self, rung: int, settings: list[int]) -> bool:
        """Keep the better half of the settings, by the mean loss of their seeds. Returns False if all were lost."""
        losses = {str(setting): self.results.loss(self.members[setting], rung) for setting in settings}
        last = rung == len(self.plan.rungs) - 1
        kept = [int(name) for name in survivors(losses, len(settings) if last else self.plan.counts[rung + 1])]
        if not kept:
            return False
        self.results.rungs[rung]["kept"] = kept
        self.results.write()
        if not last:
            self.say(
                f"rung {rung + 1} of {len(self.plan.rungs)} is decided: {counted(len(kept), 'setting')} of "
                f"{len(settings)} go on; the best is {self.plan.describe(self.best(rung)[0])}"
            )
        return True

    def _instead(self, rung: int) -> list[int]:
        """Settings for a rung in which all were lost: the next best of the rung before, which had been stopped."""
        before = self.results.rungs[rung - 1] if rung else {"kept": []}
        losses = {
            str(setting): self.results.loss(members, rung - 1)
            for setting, members in self.members.items()
            if rung and setting not in before["kept"]
        }
        if not (more := [int(name) for name in survivors(losses, self.plan.counts[rung])]):
            name, lost = next((name, one) for name, one in self.results.lost.items() if one.rung == rung)
            raise ValueError(
                f"none of the runs could be judged at rung {rung + 1}. Run {name} {lost.text}. What each run said is "
                f"in {self.out / LOGS}"
            )
        before["kept"] += more
        self.results.write()
        self.say(
            f"all runs of rung {rung + 1} were lost; instead, {counted(len(more), 'setting')} that had been stopped "
            "will go on"
        )
        return more

    def best(self, rung: int = -1) -> list[int]:
        """The settings that were kept at a rung, the best first."""
        rung %= len(self.results.rungs)
        kept = self.results.rungs[rung]["kept"] or []
        return sorted(kept, key=lambda setting: self.results.loss(self.members[setting], rung))

    # ------------------------------------------------------------------ display

    def _watch(self, rung: int, member: Member, history: History) -> None:
        steps, total = self.plan.unit == "steps", self.plan.rungs[rung]
        begin = self.plan.rungs[rung - 1] if rung else 0.0
        last = history.last("train")
        place = last.get("step", 0) if steps else (finite(last.get("seconds")) or 0.0) / 60
        ended = len(self.results.rungs[rung]["scores"]) + sum(one.rung == rung for one in self.results.lost.values())
        done = ended + min(1.0, max(0.0, (place - begin) / (total - begin)))
        note = f"run {member.name}, {self.plan.describe(member.setting)}"
        if (loss := finite(last.get("loss"))) is not None:
            note += f": step {last['step']:,}, training loss {loss:.3f}"
        else:
            note += ": starting"
        runs = self.plan.counts[rung] * len(self.plan.seeds)
        self.show(f"rung {rung + 1} of {len(self.plan.rungs)}, {counted(runs, 'run')}", note, done, runs)


def last_line(log: Path, after: int) -> str:
    """The last line of a file that is not empty, beyond so many bytes; "" if there is none."""
    if not log.exists():
        return ""
    lines = log.read_bytes()[after:].decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
