"""Sweeps: what is tried, which runs go on, what survives a kill. The runs here are made up; the clock is theirs."""

import dataclasses
import itertools
import json
import math
import random
import re
import subprocess
import threading
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from mini_bert.common.invocation import option_words
from mini_bert.plots import style
from mini_bert.training import sweep_runs
from mini_bert.training.halving import cost, counts, rung_shares, survivors
from mini_bert.training.history import History
from mini_bert.training.sweep import Sweep
from mini_bert.training.sweep_plan import (
    PLAN,
    Range,
    SweepPlan,
    Values,
    clear_mistakes,
    drawn,
    expand,
    grid,
    make_plan,
    parse_variation,
)
from mini_bert.training.sweep_report import best_command, curves, other_tasks, ranked, report, table
from mini_bert.training.sweep_runs import Lost, Point, curve, judged, point_at

STEP_SECONDS = 0.5
LOG, EVAL, SAVE = 5, 20, 30  # steps


# ---------------------------------------------------------------------- runs that never happened


class MadeUpRun:
    """Stands in for a process that trains: the folder of a run grows whenever its sweep waits for it.

    The loss falls to a floor that depends on the learning rate. A run is saved every SAVE steps and when its standard
    input is closed; a killed one starts again from there. At a rate of 5e-3, the doctor finds its model useless.
    """

    diverges = ()  # the names of runs that do so in step 150

    def __init__(self, words, log, trained):
        self.words, self.log, self.trained, self.stdin, self.returncode = words, log, trained, self, None
        self.path = Path(words[words.index("--out") + 1])
        stored = self.path / "config.json"
        if "--resume" not in words:
            assert not self.path.exists()
            self.path.mkdir(parents=True)
            options = dict(itertools.pairwise(words))
            values = {
                name: float(options[f"--{name}"])
                for name in ("lr", "steps", "minutes", "seed", "slow", "eval-minutes")
                if f"--{name}" in options
            }
            stored.write_text(json.dumps({"options": values, "saved": 0}))
            self.records([{"kind": "start", "step": 0, "vocab_size": 16}])
        content = json.loads(stored.read_text())
        self.options, self.step = content["options"], content["saved"]
        self.records([{"kind": "resume", "step": self.step}] if "--resume" in words else [])

    def records(self, records):
        with (self.path / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def save(self):
        (self.path / "config.json").write_text(json.dumps({"options": self.options, "saved": self.step}))

    @property
    def seconds(self):
        return self.step * STEP_SECONDS * self.options.get("slow", 1)

    def loss(self):
        best = abs(math.log10(self.options["lr"]) + 3)  # 1e-3 is the best learning rate
        return 4 + best + 3 * math.exp(-self.step / 60) + 0.01 * self.options["seed"]

    def end(self, reason, code):
        self.save()
        self.records([{"kind": "stop", "step": self.step, "reason": reason, "seconds": self.seconds}])
        self.returncode = code

    def train(self):
        """One step."""
        self.step += 1
        self.trained.append(self.path.name)
        whole = self.options.get("steps", math.inf), 60 * self.options.get("minutes", math.inf)
        done = self.step >= whole[0] or self.seconds >= whole[1]
        if (self.options["lr"] > 1 and self.step == 7) or (self.step == 150 and self.path.name in self.diverges):
            self.end("nonfinite", 1)
            return
        asked = 60 * self.options.get("eval-minutes", math.inf)
        asked = asked <= self.seconds < asked + STEP_SECONDS * self.options.get("slow", 1)
        if self.step % LOG == 0 or done or asked:
            self.records(
                [
                    {
                        "kind": "train",
                        "step": self.step,
                        "loss": self.loss(),
                        "seconds": self.seconds,
                        "tokens": 100 * self.step,
                    }
                ]
            )
        if self.step % EVAL == 0 or done or asked:
            self.records([{"kind": "eval", "step": self.step, "loss": self.loss()}])
        if self.step % SAVE == 0:
            self.save()
        if done and self.options["lr"] == 5e-3:
            self.end("done", 1)
        elif done:
            (self.path / "model").mkdir(exist_ok=True)
            self.end("done", 0)

    # what a Popen has
    def wait(self, timeout=None):
        if self.options["lr"] < 1e-6 and self.returncode is None:
            with self.log.open("a") as file:
                file.write("a warning\nlearning_rate is 0.0, expected a positive number\n\n")
            self.returncode = 1
        for _ in range(31):  # so that it goes on beyond a rung, to another evaluation
            if self.returncode is None:
                self.train()
        if self.returncode is None and timeout is not None:
            raise subprocess.TimeoutExpired("train", timeout)
        return self.returncode

    def poll(self):
        return self.returncode

    def close(self):
        """Of its standard input."""
        if self.returncode is None:
            self.end("interrupted", 130)

    def kill(self):
        self.returncode = -9


def plan_of(rates=(1e-4, 1e-3, 3e-3, 3e-2), seeds=1, rungs=2, **shared):
    settings = [{"lr": rate} for rate in rates]
    return make_plan(
        {"--vary lr": ",".join(map(str, rates))},
        settings,
        {"steps": 200, "eval_every": EVAL} | shared,
        seeds=seeds,
        rungs=rungs,
    )


def sweep_of(out, plan, trained=None, show=lambda *_: None, kind=MadeUpRun):
    out.mkdir(exist_ok=True)
    trained = [] if trained is None else trained
    return Sweep(out, plan, lambda words, log: kind(words, log, trained), show, lambda text: None)


def rows(sweep):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(sweep).splitlines()[2:]]


# ---------------------------------------------------------------------- what is tried


def read_number(name, text):
    return int(text) if text.isdigit() else float(text)


def test_lists_make_a_grid():
    """Every combination once."""
    found = grid({"a": Values([1, 2, 3]), "b": Values(["x", "y"])})
    assert len(found) == 6 and {(one["a"], one["b"]) for one in found} == set(itertools.product([1, 2, 3], "xy"))
    assert expand({"a": Values([1, 2])}, None, 0) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("number", [1, 2, 7, 30])
def test_draws_cover_a_range_evenly(number):
    """Of n draws, one is in each of n equal parts: of the logarithm if the range spans a factor of 10."""
    found = drawn({"rate": Range(1e-4, 1e-2), "share": Range(0.1, 0.4)}, number, seed=3)
    logs = [(math.log10(one["rate"]) + 4) / 2 for one in found]
    shares = [(one["share"] - 0.1) / 0.3 for one in found]
    for values in (logs, shares):  # rounding to three digits may move a value across a border
        assert all(abs(value * number - rank - 0.5) < 0.5 + 0.02 * number for rank, value in enumerate(sorted(values)))
    if number == 30:
        assert abs(np.corrcoef(logs, shares)[0, 1]) < 0.5  # each has an order of its own


def test_draws_depend_on_the_seed_only():
    variations = {"rate": Range(1e-4, 1e-2), "size": Range(8, 12), "kind": Values(["a", "b"])}
    first, again, other = (drawn(variations, 10, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert {one["size"] for one in first} == {8, 9, 10, 11, 12} and all(type(one["size"]) is int for one in first)
    assert [one["kind"] for one in first].count("a") == 5


@pytest.mark.parametrize(("low", "high"), [(0.99, 0.9999), (0.0012345, 0.0012445), (0.95, 0.9995), (-0.3, 0.2)])
def test_draws_keep_the_digits_that_count(low, high):
    """Eight draws are eight different values within the range; near 1, as many have each number of nines."""
    values = sorted(one["x"] for one in drawn({"x": Range(low, high)}, 8, seed=2))
    assert len(values) == 8 and low <= values[0] and values[-1] <= high
    if high == 0.9999:
        assert sum(value < 0.999 for value in values) == 4 and max(len(str(value)) for value in values) < 10


def test_equal_draws_are_tried_once():
    assert sorted(one["size"] for one in drawn({"size": Range(1, 3)}, 50, 0)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1e-4..1e-2", Range(1e-4, 1e-2)),
        ("8..64", Range(8, 64)),
        ("0.5, 2", Values([0.5, 2])),
        ("-3..-1.5", Range(-3.0, -1.5)),
    ],
)
def test_lists_and_ranges(text, found):
    assert parse_variation("x", text, read_number) == found


@pytest.mark.parametrize(
    ("text", "says"), [("2..1", "smaller to a larger"), ("1,1.0", "has the value 1 twice"), ("1..inf", "only numbers")]
)
def test_lists_and_ranges_that_make_no_sense(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_variation("x", text, read_number)


# ---------------------------------------------------------------------- halving and the budget


def test_the_best_go_on():
    """The survivors are those that sorting gives; what has no finite loss never goes on."""
    rng = random.Random(2)
    for _ in range(50):
        losses = {str(i): rng.choice([rng.random(), math.inf]) for i in range(rng.randrange(1, 12))}
        keep = rng.randrange(1, 12)
        best = sorted((loss, int(name)) for name, loss in losses.items() if loss < math.inf)[:keep]
        assert sorted(map(int, survivors(losses, keep))) == sorted(number for _, number in best)


@pytest.mark.parametrize(("settings", "rungs"), [(1, 1), (5, 3), (8, 3), (11, 4), (2, 2)])
def test_the_cost_is_the_sum_over_all_runs(settings, rungs):
    """Each run costs as much as it got to."""
    ends, numbers = rung_shares(rungs), [*counts(settings, rungs), 0]
    stopped = [end * (number - after) for end, number, after in zip(ends, numbers, numbers[1:], strict=False)]
    assert cost(settings, rungs) == pytest.approx(sum(stopped))


@pytest.mark.parametrize(("number", "seeds", "rungs"), [(8, 1, 3), (6, 2, 2), (3, 1, 1)])
def test_the_hours_are_spent(number, seeds, rungs):
    """The length of a run follows from the budget: all runs together take the hours, to within a second for each."""
    plan = make_plan({}, [{"lr": i} for i in range(number)], {}, hours=2, seeds=seeds, rungs=rungs)
    assert plan.unit == "minutes" and len(plan.members) == number * seeds
    assert 120 - number * seeds / 60 <= plan.work <= 120


def test_rungs_in_steps_are_evaluated():
    """Rungs are multiples of the steps between evaluations; the last is the end of the run."""
    plan = make_plan({}, [{}] * 8, {"steps": 1900, "eval_every": 150}, rungs=3)
    assert plan.rungs == [600, 1050, 1900]
    assert make_plan({}, [{}] * 8, {"steps": 100}, rungs=3).shared == {"eval_every": 25}
    assert make_plan({}, [{}] * 8, {"steps": 100_000}, rungs=3).shared == {"eval_every": 250}
    with pytest.raises(ValueError, match="smaller --eval-every, or fewer --rungs"):
        make_plan({}, [{}] * 8, {"steps": 100, "eval_every": 60}, rungs=3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hours": 1, "shared": {"steps": 5}}, "--steps is a length of its own"),
        ({"hours": 0.5, "shared": {"minutes": 40}}, "take 1.33 hours, more than the 0.5"),
        ({"hours": math.nan}, "--hours is nan"),
        ({"hours": 1e-4}, "too short to compare anything; give more --hours, or choose fewer values"),
        ({"shared": {"minutes": 1e-4}}, "would take 0.006 seconds, .* give more --minutes$"),
        ({"shared": {"steps": 1}, "rungs": 2}, "give more --steps, or fewer --rungs"),
        ({"rungs": 0}, "--rungs is 0"),
    ],
)
def test_budgets_that_make_no_sense(given, says):
    with pytest.raises(ValueError, match=says):
        make_plan({}, [{}, {}], **{"shared": {}} | given)


def test_a_plan_is_stored_and_compared(tmp_path):
    """What was written is read; a changed plan says what changed."""
    plan = plan_of()
    plan.write(tmp_path)
    assert SweepPlan.read(tmp_path) == plan and not plan.differences(SweepPlan.read(tmp_path))
    assert plan.differences(plan_of(batch_size=64)) == ["batch_size: 64 instead of not given"]
    assert plan.differences(plan_of(rates=(1e-4, 1e-3, 3e-3, 4e-2)))[0].startswith(
        "--vary lr: 0.0001,0.001,0.003,0.04 "
    )
    assert plan.differences(plan_of(seeds=2)) == ["seeds: 0 1 instead of 0"]
    assert not plan.differences(
        dataclasses.replace(plan, typed={"--vary lr": "1e-4, 1e-3,3e-3,3e-2"}, folder="elsewhere")
    )
    (tmp_path / PLAN).write_text("{}")
    with pytest.raises(ValueError, match="not the plan of a sweep"):
        SweepPlan.read(tmp_path)


# ---------------------------------------------------------------------- judging a run


def history_of(*records):
    return History(
        Path("run"), [dict(zip(("kind", "step", "loss", "seconds", "tokens"), one, strict=False)) for one in records]
    )


def test_evaluations_get_the_time_between_two_records():
    """Time and tokens are interpolated; an evaluation after the last record of training has to wait."""
    history = history_of(
        ("train", 20, 7.0, 10.0, 2000), ("eval", 25, 6.0), ("train", 40, 6.0, 30.0, 4000), ("eval", 50, 5.0)
    )
    assert curve(history) == [Point(25, 15.0, 2500, 6.0)]


def test_equal_time_lies_between_evaluations():
    """At a time between two evaluations, the loss is on the line between them; steps are taken as they are."""
    points = [Point(10, 60.0, 100, 6.0), Point(20, 120.0, 200, 5.0), Point(30, 240.0, 300, 4.0)]
    for minutes in (1, 1.3, 2, 3.5, 4):
        found = point_at(points, "minutes", minutes)
        assert found.loss == pytest.approx(np.interp(60 * minutes, [60, 120, 240], [6, 5, 4]))
        assert found.seconds == pytest.approx(60 * minutes)
    assert point_at(points, "minutes", 0.2) == points[0]  # evaluated too late
    assert point_at(points, "minutes", 4.1) is None
    assert point_at(points, "steps", 20) == points[1] and point_at(points, "steps", 31) is None


def test_a_loss_that_is_not_finite_is_lost():
    history = history_of(("train", 20, 7.0, 10.0, 2000), ("eval", 20, None))
    assert judged(history, "steps", 20, last=False) == Lost("diverged", "diverged at step 20")


# ---------------------------------------------------------------------- whole sweeps


def test_a_sweep_finds_the_best_and_trains_no_more_than_planned(tmp_path):
    """The better half goes on, each run continues where it was, and the table is sorted."""
    trained = []
    sweep = sweep_of(tmp_path / "s", plan_of(), trained)
    assert sweep.run(threading.Event())
    assert [row[:3] + row[5:] for row in rows(sweep)] == [
        ["02", "0.001", "200", f"{4 + 3 * math.exp(-200 / 60):.3f}", "finished"],
        ["03", "0.003", "200", f"{4 + math.log10(3) + 3 * math.exp(-200 / 60):.3f}", "finished"],
        ["01", "0.0001", "100", f"{5 + 3 * math.exp(-100 / 60):.3f}", "stopped early, at 100 steps"],
        ["04", "0.03", "100", f"{4 + math.log10(30) + 3 * math.exp(-100 / 60):.3f}", "stopped early, at 100 steps"],
    ]
    counted = {name: trained.count(name) for name in ("01", "02", "03", "04")}
    assert counted["02"] == counted["03"] == 200 and 100 <= counted["01"] < 130
    assert best_command(sweep) == "mini-bert train --eval-every 20 --steps 200 --lr 0.001 --seed 0"
    assert sweep.run(threading.Event()) and trained.count("02") == 200  # nothing is trained again


def test_cost_counts(tmp_path):
    """After equal time, a setting with slower steps loses to a worse one with faster steps; after equal steps, not."""
    settings = [{"lr": 1e-3, "slow": 2}, {"lr": 1.3e-3, "slow": 1}]
    for shared, best in (({"minutes": 1.0}, 1), ({"steps": 120, "eval_every": EVAL}, 0)):
        plan = make_plan({}, settings, shared)
        sweep = sweep_of(tmp_path / next(iter(shared)), plan)
        assert sweep.run(threading.Event()) and sweep.best()[0] == best
    plan = make_plan({}, settings, {"minutes": 1.0}, rungs=2)
    sweep = sweep_of(tmp_path / "rungs", plan)
    assert sweep.run(threading.Event()) and [row[-1] for row in rows(sweep)] == [
        "finished",
        "stopped early, at 0.5 minutes",
    ]
    assert rows(sweep)[1][5] == "0:30"


def test_failing_and_diverging_runs_are_rows(tmp_path):
    """They end nothing; what they said is in the table."""
    sweep = sweep_of(tmp_path / "s", plan_of(rates=(1e-7, 1e-3, 100.0, 1e-2)))
    assert sweep.run(threading.Event())
    assert [(row[0], row[-1]) for row in rows(sweep)] == [
        ("02", "finished"), ("04", "finished"),
        ("01", "failed: learning_rate is 0.0, expected a positive number"), ("03", "diverged at step 7"),
    ]  # fmt: skip


def test_a_sweep_in_which_all_runs_fail_says_why(tmp_path):
    """It ends with an error, decides nothing, and tries them again next time."""
    trained = []
    for _ in range(2):
        sweep = sweep_of(tmp_path / "s", plan_of(rates=(1e-7, 1e-8)), trained)
        with pytest.raises(ValueError, match=r"none of the runs .* Run 01 failed: learning_rate is 0.0, expected"):
            sweep.run(threading.Event())
        assert set(sweep.results.lost) == {"01", "02"}
    assert not sweep_of(tmp_path / "s", plan_of(rates=(1e-7, 1e-8))).results.lost


def test_a_process_that_fails_says_why():
    assert sweep_runs.lost(-9, "resuming").text == "failed: killed by signal 9"
    assert [sweep_runs.lost(1, said).text for said in ("why", "")] == ["failed: why", "failed: exit code 1"]


def test_without_held_out_text_a_sweep_ends_at_once(tmp_path):
    """Nothing can be judged; the first record of each run says so, and none is trained to its end."""

    class Short(MadeUpRun):
        def records(self, records):
            super().records([record | {"validation_tokens": 0} for record in records])

    trained = []
    with pytest.raises(ValueError, match="Run 01 failed: the text is too short to hold any of it out, or a single"):
        sweep_of(tmp_path / "s", plan_of(rungs=1), trained, kind=Short).run(threading.Event())
    assert len(trained) <= 4 * 31  # the steps between two looks at a run


def test_a_run_without_a_model_counts(tmp_path):
    """The doctor may call its rate too high, but its held-out loss is the best."""
    sweep = sweep_of(tmp_path / "s", plan_of(rates=(5e-3, 1e-1), rungs=1))
    assert sweep.run(threading.Event())
    first, second = rows(sweep)
    assert first[0] == "01" and first[-1].startswith("finished, but without a model") and second[-1] == "finished"
    assert float(first[5]) < float(second[5]) and " --lr 0.005 " in best_command(sweep)


def test_if_all_finalists_diverge_the_next_best_go_on(tmp_path):
    """And if those diverge, too, it is an error, after which nothing is trained again."""

    class Late(MadeUpRun):
        diverges = ("02", "03")

    sweep = sweep_of(tmp_path / "s", plan_of(), kind=Late)
    assert sweep.run(threading.Event())
    assert [(row[0], row[2], row[-1]) for row in rows(sweep)] == [
        ("01", "200", "finished"), ("04", "200", "finished"),
        ("02", "100", "diverged at step 150"), ("03", "100", "diverged at step 150"),
    ]  # fmt: skip
    Late.diverges = ("01", "02", "03", "04")
    trained = []
    for _ in range(2):
        sweep = sweep_of(tmp_path / "all", plan_of(), trained, kind=Late)
        with pytest.raises(ValueError, match=r"judged at rung 2\. Run 02 diverged at step 150"):
            sweep.run(threading.Event())
        assert len(trained) == 4 * 149 + 4 and [row[2] for row in rows(sweep)] == ["100"] * 4


def test_the_budget_of_time_is_kept(tmp_path):
    """Runs are evaluated when a rung's time has come, however rare evaluations are, and stop there."""
    plan = make_plan({}, [{"lr": 10**-i} for i in (3, 4, 2, 5)], {"minutes": 8.0}, rungs=2)
    trained, every = [], 10**6
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "EVAL", every)
        sweep = sweep_of(tmp_path / "s", plan, trained)
        assert sweep.run(threading.Event())
    planned = 60 * plan.work / STEP_SECONDS
    assert planned <= len(trained) <= planned + 4 * 31
    assert [row[-1] for row in rows(sweep)] == ["finished"] * 2 + ["stopped early, at 4 minutes"] * 2
    assert {row[4] for row in rows(sweep)[2:]} == {"4:00"}
    assert "eval-minutes" not in best_command(sweep)


def test_mistakes_are_refused_beforehand():
    """What no run accepts is, with the setting; models and texts are left to the runs."""
    says = "warmup is 400, expected a fraction of the run from 0 (none) to below 1 (setting 1: lr 0.0001)"
    assert next(clear_mistakes(plan_of(warmup=400))) == says
    assert not list(clear_mistakes(plan_of(checkpointing="all", model="odd", batch_size=7)))
    assert "attention is 'odd'" in next(clear_mistakes(plan_of(attention="odd")))


def test_the_mean_of_the_seeds_counts(tmp_path):
    """A setting is judged by all of its seeds, and goes on or stops with all of them."""
    sweep = sweep_of(tmp_path / "s", plan_of(seeds=3))
    assert sweep.run(threading.Event())
    found = rows(sweep)
    assert [row[0] for row in found[:3]] == ["02-seed-0", "02-seed-1", "02-seed-2"]
    assert [row[2] for row in found[:3]] == ["0", "1", "2"] and len(found) == 12
    losses = [float(row[6]) for row in found[:3]]
    assert len({row[7] for row in found[:3]}) == 1 and float(found[0][7]) == pytest.approx(mean(losses), abs=1e-3)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_sweep_that_is_stopped_anywhere_ends_with_the_same_table(tmp_path, how):
    """Killed again and again, which loses what was not saved, or stopped with Ctrl-C, it ends with the same table."""
    plan = plan_of(rates=(1e-4, 1e-3, 100.0, 3e-3, 3e-2, 1e-7, 1e-2, 2e-3), rungs=3)
    whole = sweep_of(tmp_path / "whole", plan)
    assert whole.run(threading.Event())
    rng, stops = random.Random(how), 0
    for _ in range(500):
        stop, left = threading.Event(), rng.randrange(1, 6)

        def interrupt(*_, stop=stop):
            nonlocal left
            left -= 1
            if left == 0 and how == "killed":
                raise Killed
            if left == 0:
                stop.set()

        broken = sweep_of(tmp_path / "broken", plan, show=interrupt)
        try:
            if broken.run(stop):
                break
        except Killed:
            pass
        stops += 1
    assert stops > 5 and table(broken) == table(whole)
    assert [rung["kept"] for rung in broken.results.rungs] == [rung["kept"] for rung in whole.results.rungs]


def test_words_of_the_command():
    """Values become the words that the command line reads."""
    assert option_words({"warmup": 0.25, "corpus": ["a b"], "tie_head": True, "init_from_teacher": False}) == [
        "--warmup", "0.25", "--corpus", "a b", "--tie-head",
    ]  # fmt: skip


def test_a_run_of_a_killed_sweep_may_still_be_saving(tmp_path, monkeypatch):
    """The next sweep waits for it, but not for ever."""
    monkeypatch.setattr(sweep_runs, "POLL", 0.01)
    monkeypatch.setattr(sweep_runs, "PATIENCE", 0.05)
    with sweep_runs.RunLock(tmp_path), pytest.raises(sweep_runs.RunInUse, match="is in use"):
        sweep_runs.wait_until_free(tmp_path)
    sweep_runs.wait_until_free(tmp_path)


# ---------------------------------------------------------------------- the end


def test_runs_that_got_further_come_first(tmp_path):
    """Whatever their losses are: one in the middle of a schedule cannot be compared with one at the end."""
    sweep = sweep_of(tmp_path / "s", plan_of())
    middle = {f"0{i}": Point(100, 50.0, 10_000, 3.0 + i) for i in (1, 2, 3, 4)}
    end = {f"0{i}": Point(200, 100.0, 20_000, 9.0 - i) for i in (1, 2)}
    sweep.results.rungs = [{"scores": middle, "kept": [0, 1]}, {"scores": end, "kept": [0, 1]}]
    assert [member.name for member in ranked(sweep)] == ["02", "01", "03", "04"] and sweep.best() == [1, 0]


def test_the_report_names_what_is_not_comparable(tmp_path):
    """Options that change the task are mentioned, as is the schedule of runs that were stopped early."""
    settings = [{"lr": 1e-3, "mask_prob": share} for share in (0.15, 0.4)]
    plan = make_plan({"--vary mask_prob": "0.15,0.4"}, settings, {"steps": 200, "eval_every": EVAL}, rungs=2)
    sweep = sweep_of(tmp_path / "shares", plan)
    assert sweep.run(threading.Event())
    text = report(sweep)
    assert text.startswith("# shares\n\n2 settings; a whole run has 200 steps.\n\n| run | lr | mask_prob | steps |")
    assert "mask_prob also changes what the held-out loss measures" in text and "in the middle of its schedule" in text
    models = [{"model": name} for name in ("mini", "gpt2", "bert")]
    assert other_tasks(make_plan({}, models, {"steps": 9})).startswith("model also changes what the held-out loss")
    assert not other_tasks(make_plan({}, [models[0], models[2]], {"steps": 9}))
    assert "\n    mini-bert train --eval-every 20 --steps 200 --lr 0.001 --mask-prob 0.15 --seed 0\n" in text


def test_the_figure_shows_every_run(tmp_path, monkeypatch):
    """Finished runs in colour and by name, stopped ones in grey up to where they were judged; rungs are lines."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(style, "DPI", 50)
    sweep = sweep_of(tmp_path / "s", plan_of())
    assert sweep.run(threading.Event())
    (panel,) = curves(sweep).axes
    lines = [line for line in panel.lines if len(line.get_xdata()) > 2]
    ends = {line.get_color(): max(line.get_xdata()) for line in lines}
    assert len(lines) == 4 and ends == {"#CFCFCF": 100, style.COLOURS[0]: 200, style.COLOURS[1]: 200}
    losses = dict(zip(*(lines[-1].get_data()), strict=True))  # the best, drawn last
    assert losses[200] == pytest.approx(4 + 3 * math.exp(-200 / 60)) and len(losses) == 200 / EVAL
    assert [text.get_text() for text in panel.get_legend().get_texts()] == [
        "4.107  lr 0.001", "4.584  lr 0.003", "stopped early: 2 settings",
    ]  # fmt: skip
    assert ranked(sweep)[0].name == "02"
