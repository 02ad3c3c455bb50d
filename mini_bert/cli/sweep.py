"""The command `mini-bert sweep`: compare settings of `mini-bert train` under one budget."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_bert.cli.training import train
from mini_bert.cli.words import complete_options, hyphenated
from mini_bert.common.invocation import command
from mini_bert.common.wording import did_you_mean

if TYPE_CHECKING:
    from mini_bert.training.sweep_plan import SweepPlan

PROCESS = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mini_bert.cli.sweep_process import main; "
    "main(sys.argv[2:])"
)
LENGTH = "all runs of a sweep are equally long; give it once, as an option of train"
SCORE = "with another one, the held-out loss would be measured on something else, so the runs could not be compared"
NOT_VARIED = {
    "out": "each run gets its own folder in that of the sweep",
    "resume": "the same command continues a sweep",
    "quiet": "the sweep shows the progress of its runs",
    "steps": LENGTH,
    "minutes": LENGTH,
    "seed": "--seeds 2 trains every setting with two seeds",
    "eval_minutes": "all runs are evaluated where they are compared",
    "eval_every": "all runs are evaluated equally often; give it once, as an option of train",
    "corpus": SCORE,
    "held_out": SCORE,
    "tokenizer": SCORE,
}  # options of train that cannot be varied, and why
NOT_SHARED = ("out", "resume", "quiet", "eval_minutes")


def sweep(
    train_options: Annotated[
        list[str] | None, typer.Argument(help="options of `mini-bert train` for all runs, after --")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the folder of the sweep; if it has been started there, it continues")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="what to try: NAME=A,B,C for each of these values, or NAME=LOW..HIGH to draw values from a range; "
            "the names are those of the options of train. Give --vary several times for combinations"
        ),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help="several options of train that belong together, in quotes. Give --try several times to compare them; "
            "with --vary, each is combined with all values",
        ),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="training time of all runs together; default: 1, unless the runs have a length")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="how many settings to draw from ranges; default: 8")] = None,
    draw: Annotated[int, typer.Option(help="another number draws other values")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="train every setting with this many seeds; their mean counts")] = 1,
    rungs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="how often the runs are compared, each time after twice as long; the better half goes on. 1: all are "
            "trained to the end. Default: 3, fewer for fewer than 8 settings",
        ),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="show what would be trained, and train nothing")
    ] = False,
) -> None:
    """Try settings of `train` and stop hopeless ones early. Ends in one table and one figure.

    Successive halving: all settings are trained for a quarter of the run, the better half of them to a half, the better
    half of these to the end, so eight settings cost as much as four whole runs. What counts is the held-out loss.

    Without --steps, --hours decides how long a run is, and the runs are compared after equal *time*, because a setting
    that makes steps slower must be worth it. With --steps 2000 they are compared after equal steps, and can be repeated
    exactly. Every run is planned with its whole length: when it goes on, its learning rate continues on the same
    schedule. So a setting that only pays at the end (a long warm-up, a high rate) may be stopped too early: use
    --rungs 1 to see all of them to the end.

    Ctrl-C saves, and so does a kill; the same command, or just --out, continues. Runs that fail or diverge are rows in
    the table. Each run is an ordinary run folder in OUT/runs, for `mini-bert plot` and `mini-bert doctor`.

    For example:  mini-bert sweep --out runs/rates --vary lr=5e-4,1e-3,2e-3 --vary warmup=0.1,0.25 -- --corpus my_texts/

    Or to draw values:  mini-bert sweep --out runs/drawn --vary lr=1e-4..1e-2 --runs 12 --hours 2 -- --batch-size 64

    Or to compare recipes:  mini-bert sweep --out runs/two --try "--lr 1e-3" --try "--lr 2e-3 --warmup 0.25" --seeds 3
    """
    if out is None:
        raise ValueError("a sweep needs a folder for its runs: --out runs/NAME")
    from mini_bert.training.sweep_plan import PLAN, SweepPlan

    stored = SweepPlan.read(out) if (out / PLAN).exists() else None
    given = dict(vary=vary, tries=tries, hours=hours, runs=runs, rungs=rungs, train_options=train_options)
    if stored is not None and all(value in (None, []) for value in given.values()) and seeds == 1 and draw == 0:
        plan = stored
    elif stored is not None and not vary and not tries:
        raise ValueError(f"{out} has a sweep; to continue it, give --out and nothing else, or the whole command again")
    else:
        plan = planned(vary or [], tries or [], train_options or [], hours, runs, draw, seeds, rungs)
        if stored is not None and (different := stored.differences(plan)):
            raise ValueError(
                f"{out} has a sweep with another plan ({'; '.join(different)}). Continue it with the same command as "
                f"before, or with `{command('sweep', '--out', out)}`; for the new plan, choose another --out"
            )
        plan = stored or plan
    print(summary(plan), file=sys.stderr, flush=True)
    if not plan_only:
        carry_out(out, plan, is_new=stored is None)


# ---------------------------------------------------------------------- the plan


def planned(
    vary: list[str], tries: list[str], train_options: list[str], hours: float | None, runs: int | None, draw: int,
    seeds: int, rungs: int | None,
) -> SweepPlan:  # fmt: skip
    """The plan that the options of the command describe. Errors name what is wrong before anything is trained."""
    from mini_bert.training.halving import default_rungs
    from mini_bert.training.sweep_plan import clear_mistakes, combined, expand, make_plan, parse_variation

    if not vary and not tries:
        raise ValueError(
            "nothing varies; give at least one --vary, such as --vary learning_rate=5e-4,1e-3,2e-3 or "
            "--vary learning_rate=1e-4..1e-2"
        )
    chosen = [tried(text) for text in tries] or [{}]
    shared = parsed(train_options)
    for name in NOT_SHARED:
        if name in shared:
            raise ValueError(f"{flag(name)} cannot be given for all runs: {NOT_VARIED[name]}; leave it out")
    if shared.get("held_out") == 0:
        raise ValueError(
            "--held-out 0 holds out no text, but the held-out loss is what runs are compared by; leave it out"
        )
    if "-" in shared.get("corpus", []):
        raise ValueError("--corpus -: standard input can be read only once, but every run needs the text; use a file")
    texts: dict[str, str] = {}
    for one in vary:
        name, text = named(one)
        if name in texts:
            raise ValueError(f"--vary {name} was given twice; list all of its values in one")
        if name in shared:
            raise ValueError(f"{name} varies, and is also {flag(name)} for all runs; leave one of them out")
        if any(name in options for options in chosen):
            raise ValueError(f"{name} varies, and is also in a --try; leave one of them out")
        texts[name] = text
    variations = {name: parse_variation(name, text, value_of) for name, text in texts.items()}
    settings = combined(chosen, expand(variations, runs, draw))
    typed = {f"--vary {name}": text for name, text in texts.items()}
    typed |= {f"--try {number}": text for number, text in enumerate(tries, start=1)}
    plan = make_plan(typed, settings, shared, hours, seeds, default_rungs(len(settings)) if rungs is None else rungs)
    for problem in clear_mistakes(plan):
        raise ValueError(problem)
    return plan


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option_names() -> dict[str, str]:
    """The parameter of `train` for each name of its options: {"learning_rate": "learning_rate", "lr": …}."""
    names = {}
    for name, parameter in inspect.signature(train, eval_str=True).parameters.items():
        (info,) = parameter.annotation.__metadata__
        for word in (name, *info.param_decls):
            names[word.lstrip("-").replace("-", "_")] = name
    return names


def named(text: str) -> tuple[str, str]:
    """--vary learning-rate=1e-3,2e-3 -> "learning_rate", "1e-3,2e-3"."""
    word, sign, values = text.partition("=")
    if not sign or not values.strip():
        raise ValueError(f"--vary {text}: expected NAME=VALUES, such as learning_rate=5e-4,1e-3 or warmup=0.05..0.4")
    names, name = option_names(), word.strip().lstrip("-").replace("-", "_")
    if name not in names:
        raise ValueError(
            f"--vary {text}: train has no option {flag(name)}{did_you_mean(name, names)} "
            f"(`{command('train', '--help')}` lists all of them)"
        )
    if names[name] in NOT_VARIED:
        raise ValueError(f"--vary {text}: {names[name]} cannot vary: {NOT_VARIED[names[name]]}")
    return names[name], values.strip()


def tried(text: str) -> dict[str, Any]:
    """--try "--warmup 0.1 --tie-head" -> {"warmup": 0.1, "tie_head": True}."""
    try:
        options = parsed(list(map(hyphenated, shlex.split(text, posix=os.name != "nt"))))
    except ValueError as error:
        raise ValueError(f"--try {text!r}: {error}") from None
    for name in options:
        if name in NOT_VARIED:
            raise ValueError(f"--try {text!r}: {name} cannot vary: {NOT_VARIED[name]}")
    return options


def value_of(name: str, text: str) -> Any:
    """The value of an option of train, as the command would read it; of a switch, yes or no."""
    hint = inspect.signature(train, eval_str=True).parameters[name].annotation.__origin__
    if hint is bool:
        if text.lower() not in ("yes", "no", "true", "false"):
            raise ValueError(f"--vary {name}: {text!r} is not a value of a switch, expected yes or no")
        return text.lower() in ("yes", "true")
    return parsed([f"{flag(name)}={text}"])[name]


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of `mini-bert train` in these words: only those that were given."""
    parsed_options: dict[str, Any] = {}

    @functools.wraps(train)
    def note(**options: Any) -> None:
        parsed_options.update(options)

    complete_options(train)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(note)
    try:
        app(words, standalone_mode=False)
    except Exception as error:  # of click, which may be the package or a part of typer
        if not hasattr(error, "format_message"):
            raise
        raise ValueError(f"options of train: {error.format_message()}") from None
    given = {
        name: value
        for name, value in parsed_options.items()
        if value is not None and value is not False and value != []
    }
    return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}


def summary(plan: SweepPlan) -> str:
    """What will be trained, in a few lines."""
    from mini_bert.common.progress import counted
    from mini_bert.training.sweep_plan import shown
    from mini_bert.training.sweep_report import other_tasks, place

    seeds = f" with {len(plan.seeds)} seeds each" if len(plan.seeds) > 1 else ""
    lines = [f"{counted(len(plan.settings), 'setting')}{seeds}:"]
    lines += [f"  {number + 1:02}  {plan.describe(number)}" for number in range(len(plan.settings))]
    if plan.shared:
        lines.append(f"the same for all: {', '.join(f'{name} {shown(value)}' for name, value in plan.shared.items())}")
    steps = [f"{count} to {place(plan, rung)}" for rung, count in enumerate(plan.counts)]
    total = f"{plan.work:,.0f} steps" if plan.unit == "steps" else f"{plan.work / 60:.2f} hours"
    lines.append(f"trained: {', the best '.join(steps)}; {total} in all, besides starting and stopping")
    if other := other_tasks(plan):
        lines.append(f"careful: {other}")
    return "\n".join(lines)


# ---------------------------------------------------------------------- the runs


def carry_out(out: Path, plan: SweepPlan, is_new: bool) -> None:
    """Train, and write table and figure."""
    from mini_bert.common.interrupts import stop_on_signal
    from mini_bert.common.progress import showing
    from mini_bert.training.run_lock import NAME, RunLock
    from mini_bert.training.sweep import Sweep
    from mini_bert.training.sweep_report import best_command, table, write_report, write_table

    if is_new and out.exists() and (not out.is_dir() or any(path.name != NAME for path in out.iterdir())):
        raise ValueError(f"{out} is not empty, but a sweep needs a new or empty folder; choose another --out")
    out.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with RunLock(out):
        if is_new:
            plan.write(out)
        with showing() as show, stop_on_signal(say) as stop:
            work = Sweep(out, plan, functools.partial(start_training, plan.folder), show, say)
            try:
                done = work.run(stop)
            except ValueError:  # no run is left; the table has what they reached
                write_table(work)
                raise
        if not done:
            write_table(work)
            say(f"\nStopped; everything is saved. Continue with\n\n    {command('sweep', '--out', out)}\n")
            raise KeyboardInterrupt("told")
        files = write_report(work, say)
    print(table(work))
    print("\n" + "\n".join(map(str, files)))
    print(f"\nThe best run again:\n\n    {best_command(work)}")


def start_training(folder: str, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `mini-bert train` in a process of its own, which ends when its standard input is closed."""
    from mini_bert.common.processes import APART

    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", PROCESS, paths, *words], cwd=folder, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=file, **APART,
        )  # fmt: skip
