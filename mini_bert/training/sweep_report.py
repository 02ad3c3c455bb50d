"""What a sweep ends with: one table (table.md), one figure (curves.svg), and the command that repeats the best run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from mini_bert.common.atomic import write_atomic
from mini_bert.common.invocation import command, option_words
from mini_bert.common.progress import counted
from mini_bert.files.model_folder import MODEL
from mini_bert.models.registry import load_config, model_class
from mini_bert.plots.style import GREY, Axes, Figure, colour, dash, dress, new_figure, plain, save, shortened
from mini_bert.training.board import clock
from mini_bert.training.sweep import RUNS, Sweep
from mini_bert.training.sweep_plan import Member, Options, SweepPlan, shown
from mini_bert.training.sweep_runs import Point, RunReader, curve

TABLE, CURVES = "table.md", "curves.svg"
MOST_NAMED = 10  # settings in the legend
LIGHT = "#CFCFCF"  # of runs that were stopped early
FINISHED = "finished"
OTHER_TASK = {"objective", "next_sentence", "masking", "mask_prob", "length", "teacher", "temperature", "init"}


def ranked(sweep: Sweep) -> list[Member]:
    """All runs: those that got further come first, and among these, those with the lower mean loss of their seeds."""

    def key(member: Member) -> tuple[float, ...]:
        seeds = sweep.members[member.setting]
        reached = [sweep.results.score(one.name) for one in seeds]
        rung = max((score[0] for score in reached if score), default=-1)
        losses = [score[1].loss for score in reached if score and score[0] == rung]
        complete = len(losses) == len(seeds) and not any(one.name in sweep.results.lost for one in seeds)
        return -rung, not complete, mean(losses) if losses else math.inf, member.setting, member.seed

    return sorted((member for seeds in sweep.members.values() for member in seeds), key=key)


def ending(sweep: Sweep, member: Member) -> str:
    """How a run ended."""
    if member.name in sweep.results.lost:
        return sweep.results.lost[member.name].text
    score = sweep.results.score(member.name)
    if score is None:
        return "not trained yet"
    if score[0] == len(sweep.plan.rungs) - 1:
        path = sweep.out / RUNS / member.name
        return FINISHED if (path / MODEL).is_dir() else f"{FINISHED}, but without a model: see `doctor {path}`"
    decided = sweep.results.rungs[score[0]]["kept"]
    if decided is None or member.setting in decided:
        return "not finished yet"
    return f"stopped early, at {place(sweep.plan, score[0])}"


def place(plan: SweepPlan, rung: int) -> str:
    """Where a rung is.

    >>> place(SweepPlan({}, [], {}, [0], "steps", [1000, 2000], ""), 0)
    '1,000 steps'
    """
    where = plan.rungs[rung]
    return counted(int(where), "step") if plan.unit == "steps" else f"{where:.3g} minute{'' if where == 1 else 's'}"


def table(sweep: Sweep) -> str:
    """One row for each run, the best first, in Markdown."""
    plan, several = sweep.plan, len(sweep.plan.seeds) > 1
    names = plan.names
    head = ["run", *names, *(["seed"] if several else []), "steps", "tokens", "time", "held-out loss",
            *(["mean of seeds"] if several else []), "end"]  # fmt: skip
    rows = []
    for member in ranked(sweep):
        score = sweep.results.score(member.name)
        cells = [member.name, *(shown(plan.settings[member.setting].get(name, "–")) for name in names)]
        cells += [str(member.seed)] if several else []
        if score is None:
            cells += ["–"] * (5 if several else 4)
        else:
            rung, point = score
            loss = sweep.results.loss(sweep.members[member.setting], rung)
            cells += [f"{point.step:,}", f"{point.tokens:,}", clock(point.seconds), f"{point.loss:.3f}"]
            cells += [f"{loss:.3f}" if math.isfinite(loss) else "–"] if several else []
        rows.append([*cells, ending(sweep, member)])
    align = [
        "---:" if name in ("steps", "tokens", "time", "held-out loss", "mean of seeds") else "---" for name in head
    ]
    return "\n".join(f"| {' | '.join(escaped(cell) for cell in row)} |" for row in [head, align, *rows])


def escaped(cell: str) -> str:
    """
    >>> escaped("a | b")
    'a \\\\| b'
    """
    return " ".join(cell.replace("|", "\\|").split())


def notes(sweep: Sweep) -> list[str]:
    """What a reader of the table must know."""
    plan = sweep.plan
    lines = []
    if len(plan.rungs) > 1:
        points = ", ".join(place(plan, rung) for rung in range(len(plan.rungs)))
        lines.append(
            f"Runs were compared after {points}, and the better half of the settings went on. Steps, tokens, time and "
            "loss of a run that was stopped early are those at that point, in the middle of its schedule: compare it "
            "only with others at the same point."
        )
    if other := other_tasks(plan):
        lines.append(f"Careful: {other}.")
    sizes = {
        RunReader(sweep.out / RUNS / member.name).read().last("start").get("vocab_size") for member in plan.members
    }
    if len(sizes - {None}) > 1:
        lines.append(
            "Careful: the vocabularies have different sizes, so the losses are per token of different lengths."
        )
    return lines


def other_tasks(plan: SweepPlan) -> str:
    """Which of the options that vary also change what the held-out loss measures; "" if none does."""
    names = [name for name in plan.names if name in OTHER_TASK]
    if len({objective_of(member.options) for member in plan.members}) > 1 and not {"objective", "next_sentence"} & set(
        names
    ):
        names.insert(0, "model")
    if not names:
        return ""
    return (
        f"{' and '.join(names)} also change{'' if len(names) > 1 else 's'} what the held-out loss measures, so these "
        "losses are not on one scale; compare such models on a task"
    )


def objective_of(options: Options) -> str:
    """The objective of a run with these options of `mini-bert train`, unless it starts from other weights; "" if its
    model is not found from here.

    >>> objective_of({}), objective_of({"model": "gpt2"}), objective_of({"objective": "permutation"})
    ('masked_words', 'next_word', 'permutation')
    """
    try:
        return options.get("objective") or model_class(load_config(options.get("model", "mini")).to_dict()).objective
    except (ValueError, OSError):
        return ""


def best_command(sweep: Sweep) -> str:
    """The command that trains the best run again, alone."""
    best = ranked(sweep)[0]
    return command("train", *option_words(best.options))


def report(sweep: Sweep) -> str:
    """The content of table.md."""
    plan = sweep.plan
    seeds = f", each with {len(plan.seeds)} seeds" if len(plan.seeds) > 1 else ""
    whole = place(plan, len(plan.rungs) - 1)
    first = f"{counted(len(plan.settings), 'setting')}{seeds}; a whole run has {whole}."
    parts = [f"# {sweep.out.name}", first, table(sweep), *notes(sweep)]
    if is_finished(sweep):
        parts += [f"The best run again:\n\n    {best_command(sweep)}"]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- the figure


def curves(sweep: Sweep) -> Figure:
    """The held-out loss of all runs over time or steps: finished ones in colour, the others in light grey. Vertical
    lines: the rungs."""
    plan = sweep.plan
    finished = dict.fromkeys(member.setting for member in ranked(sweep) if ending(sweep, member).startswith(FINISHED))
    figure = new_figure(9.0, 5.0)
    panel = figure.subplots()
    limits = []  # losses of runs that were not lost: those of the others may be huge
    for member in reversed(ranked(sweep)):  # the best on top
        points = drawn_points(sweep, member)
        x = [point.step if plan.unit == "steps" else point.seconds / 60 for point in points]
        y = [point.loss for point in points]
        limits += [] if member.name in sweep.results.lost else y
        style: dict[str, Any] = {"color": LIGHT, "linewidth": 1.2}
        if member.setting in finished:
            number = list(finished).index(member.setting)
            style = {"color": colour(number), "linestyle": dash(number // 7), "linewidth": 1.6}
        panel.plot(x, y, marker="o", markersize=2.5, **style)
    if limits:
        margin = 0.05 * (max(limits) - min(limits)) or 0.1
        panel.set_ylim(min(limits) - margin, max(limits) + margin)
    for rung in plan.rungs[:-1]:
        panel.axvline(rung, color=GREY, linestyle=":", linewidth=1.0)
    dress(panel, plain(shortened(sweep.out.name, 60)), "step" if plan.unit == "steps" else "minutes of training",
          "held-out loss")  # fmt: skip
    panel.set_xlim(left=0)
    _legend(sweep, panel, list(finished))
    return figure


def drawn_points(sweep: Sweep, member: Member) -> list[Point]:
    """The evaluations of a run. A run that was stopped early ends where it was judged, even if it went on a little."""
    history = RunReader(sweep.out / RUNS / member.name).read()
    points = [point for point in curve(history) if math.isfinite(point.loss)]
    score = sweep.results.score(member.name)
    if score is None or member.name in sweep.results.lost or score[0] == len(sweep.plan.rungs) - 1:
        return points
    return [*(point for point in points if point.step < score[1].step), score[1]]


def _legend(sweep: Sweep, panel: Axes, finished: list[int]) -> None:
    lines, words = [], []
    for number, setting in enumerate(finished[:MOST_NAMED]):
        loss = sweep.results.loss(sweep.members[setting], len(sweep.plan.rungs) - 1)
        words.append(plain(shortened(f"{loss:.3f}  {sweep.plan.describe(setting)}", 90)))
        lines += panel.plot([], [], color=colour(number), linestyle=dash(number // 7), linewidth=1.6)
    others = [number for number in sweep.members if number not in finished]
    lost = sum(any(member.name in sweep.results.lost for member in sweep.members[number]) for number in others)
    if others:
        kinds = {"stopped early": len(others) - lost, "diverged or failed": lost}
        words.append(", ".join(f"{kind}: {counted(number, 'setting')}" for kind, number in kinds.items() if number))
        lines += panel.plot([], [], color=LIGHT, linewidth=1.6)
    if len(finished) > MOST_NAMED:
        words[MOST_NAMED - 1] += f"  … and {len(finished) - MOST_NAMED} more"
    if words:
        panel.legend(lines, words, fontsize=8, frameon=False, loc="upper right")


def is_finished(sweep: Sweep) -> bool:
    rungs = sweep.results.rungs
    return len(rungs) == len(sweep.plan.rungs) and rungs[-1]["kept"] is not None


def write_table(sweep: Sweep) -> Path:
    """Write the table, also of a sweep that is not finished; returns the file."""
    write_atomic(sweep.out / TABLE, report(sweep).encode())
    return sweep.out / TABLE


def write_report(sweep: Sweep, say: Callable[[str], None]) -> list[Path]:
    """Write the table and, if possible, the figure; returns the files."""
    target = write_table(sweep)
    try:
        save(curves(sweep), sweep.out / CURVES)
    except (ValueError, OSError) as error:  # a missing matplotlib is a ValueError, too
        say(f"no {CURVES}: {error}")
        return [target]
    return [target, sweep.out / CURVES]
