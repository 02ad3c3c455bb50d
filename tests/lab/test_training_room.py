"""Live training: what the page reads from a run folder, what it may start, and that a run ends with the lab."""

import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mini_bert.files.model_folder import locate
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.lab import breaking, snapshots, training
from mini_bert.lab.bench import Bench
from mini_bert.lab.fields import BadRequest
from mini_bert.lab.mask import guess
from mini_bert.training.history import read_run
from tests.lab.test_family import preset_bench

TEXT = "the cat sat on the mat . the dog lay on the rug . a bird sang in the tree near the old house .\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working folder of its own, and no run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "TRAINER", training.Trainer())
    yield tmp_path
    training.TRAINER.close()


def write_run(name, records, steps=()):
    """A run folder with these records; its checkpoints are the bundled model."""
    run = Path("runs") / name
    run.mkdir(parents=True)
    lines = [json.dumps(record) for record in records]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for step in steps:
        target = run / "checkpoints" / f"step-{step:08d}"
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(locate("mini-bert"), target)
    return run


def link(path, target):
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("links need more rights on this Windows")


RECORDS = [
    {"kind": "start", "step": 0, "minutes": 1, "unigram_loss": 6.5},
    *({"kind": "train", "step": step, "loss": 9 - step / 100, "lr": 1e-3, "grad_norm": 1.5, "seconds": step / 10}
      for step in range(10, 210, 10)),
    {"kind": "tensors", "step": 100, "tensors": {"head.w": {"gradient": 0.25}, "head.b": {"gradient": None}}},
    {"kind": "eval", "step": 200, "loss": 7.1},
    {"kind": "stop", "step": 200, "reason": "done", "seconds": 20},
]  # fmt: skip


def test_without_runs_there_is_nothing_to_show(bench, home):
    assert training.status(bench, {}) == {"runs": [], "running": None, "run": None, "error": ""}


def test_status_reads_the_curves_of_a_run(bench, home):
    write_run("run-1", RECORDS)
    answer = training.status(bench, {"run": "run-1"})
    curves = answer["curves"]
    assert curves["loss"][0] == [10, 8.9] and curves["loss"][-1] == [200, 7.0] and curves["held_out"] == [[200, 7.1]]
    assert curves["tensors"] == {"names": ["head.w", "head.b"], "steps": [100], "norms": [[0.25, None]]}
    assert (curves["unigram"], curves["step"], curves["stopped"]) == (6.5, 200, "done")
    assert answer["doctor"] and answer["snapshots"] == [] and answer["runs"] == ["run-1"]


def test_long_curves_are_thinned():
    assert training.thinned(list(range(1000)), 5) == [0, 250, 500, 749, 999]
    assert training.thinned([1, 2], 5) == [1, 2]


def test_snapshots_are_made_from_checkpoints_and_outlive_them(bench, home):
    run = write_run("run-1", RECORDS, [100])
    answer = training.snapshot(bench, {"run": "run-1", "step": 100})
    assert answer["sentences"][0]["guesses"][0]["word"] == answer["sentences"][0]["word"] == "door"
    text = snapshots.SENTENCES[0][0].format("[MASK]")
    (gap,) = fill_mask(bench.model, bench.tokenizer, text, top=1).gaps
    assert answer["sentences"][0]["p"] == pytest.approx(gap[0].probability, abs=1e-3)
    shutil.rmtree(run / "checkpoints" / "step-00000100")
    assert training.snapshot(bench, {"run": "run-1", "step": 100}) == answer and snapshots.steps(run) == [100]
    with pytest.raises(ValueError, match="has no checkpoint any more"):
        training.snapshot(bench, {"run": "run-1", "step": 7})


def test_a_damaged_snapshot_is_made_again(bench, home):
    run = write_run("run-1", RECORDS, [100])
    (run / "lab").mkdir()
    (run / "lab" / "step-00000100.json").write_text('{"format": 1, "ste', encoding="utf-8")
    assert training.snapshot(bench, {"run": "run-1", "step": 100})["step"] == 100


def test_a_damaged_snapshot_without_a_checkpoint_is_left_out(bench, home):
    run = write_run("run-1", RECORDS, [100])
    training.snapshot(bench, {"run": "run-1", "step": 100})
    (run / "lab" / "step-00000050.json").write_text("[]", encoding="utf-8")
    answer = training.status(bench, {"run": "run-1"})
    assert answer["snapshots"] == [50, 100] and len(answer["specialised"]) >= 1


def test_a_model_that_guesses_nothing_is_refused_with_a_sentence(bench):
    model = type(bench.model)(bench.model.config, ())
    with pytest.raises(ValueError, match="does not guess hidden words"):
        snapshots.describe(Bench("", model, bench.tokenizer))


def test_odd_folders_do_not_spoil_the_others(bench, home):
    """Records and snapshots that a person or a program has damaged: what fits is shown."""
    write_run("run-1", RECORDS)
    odd = [
        {"kind": "start", "step": 0, "unigram_loss": "six", "minutes": []},
        {"kind": "train", "step": 10, "loss": "high", "lr": None, "seconds": "long", "eta": math.nan},
        {"kind": "tensors", "step": 10, "tensors": [1, 2]},
        {"kind": "tensors", "step": 20, "tensors": {"head.w": 7, "head.b": {"gradient": "x"}}},
    ]
    run = write_run("run-2", odd)
    (run / "lab").mkdir()
    (run / "lab" / "step-00000010.json").write_text('{"format": 1, "step": 10, "offsets": 3}', encoding="utf-8")
    later = time.time_ns() + 10**9
    os.utime(run / "metrics.jsonl", ns=(later, later))
    (home / "runs" / "file").write_text("x", encoding="utf-8")
    answer = training.status(bench, {})
    assert answer["run"] == "run-2" and answer["runs"] == ["run-2", "run-1"] and answer["specialised"] == []
    json.dumps(answer, allow_nan=False)
    assert answer["curves"]["tensors"]["norms"] == [[None, None]]
    with pytest.raises(BadRequest, match="no checkpoint any more"):
        training.snapshot(bench, {"run": "run-2", "step": 10})
    (run / "checkpoints" / "step-00000010").mkdir(parents=True)
    with pytest.raises(BadRequest, match="cannot be read"):
        training.snapshot(bench, {"run": "run-2", "step": 10})


def test_a_loop_of_links_is_no_run(bench, home):
    write_run("run-1", RECORDS)
    link(Path("runs/loop"), Path("loop"))
    assert training.status(bench, {})["runs"] == ["run-1"]


def test_links_in_a_run_are_not_followed(bench, home, tmp_path_factory):
    """Neither to write snapshots elsewhere, nor to read a checkpoint from there."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    run = write_run("run-1", RECORDS, [100])
    link(run / "lab", elsewhere)
    assert training.snapshot(bench, {"run": "run-1", "step": 100})["step"] == 100 and not list(elsewhere.iterdir())
    shutil.move(run / "checkpoints" / "step-00000100", elsewhere)
    link(run / "checkpoints" / "step-00000100", elsewhere / "step-00000100")
    with pytest.raises(BadRequest, match="no checkpoint any more"):
        training.snapshot(bench, {"run": "run-1", "step": 100})


def test_the_gap_is_the_mask_of_the_tokenizer():
    """A run of RoBERTa: its mask token has another name, and its pieces a mark for the space before them."""
    roberta = preset_bench("roberta")
    (text, word), *_ = snapshots.SENTENCES
    shown, *others = snapshots.describe(roberta)["sentences"]
    assert len(others) == 4 and roberta.tokenizer.mask_token == "<mask>"
    gap = guess(roberta, {"text": text.format(word), "hidden": [shown["gap"]], "top": 1})["gaps"][0]
    assert gap["own"]["word"] == "▁door" and gap["own"]["p"] == shown["p"]


def test_endless_records_are_not_read(bench, home, monkeypatch):
    write_run("run-1", RECORDS)
    monkeypatch.setattr(training, "MOST_RECORDS", 100)
    assert training.runs() == []


def test_shares_of_offsets():
    """A head that always attends to the token before has all its weight at offset −1."""
    weights = np.zeros((1, 2, 5, 5))
    weights[0, 0, np.arange(1, 5), np.arange(4)] = 1
    weights[0, 1] = 1 / 5
    shares = snapshots.offset_shares(weights)
    assert shares[0, 0].tolist() == [0, 0, 1, 0, 0, 0, 0] and np.allclose(shares[0, 1], 1 / 5)


def test_the_moment_when_a_head_specialises():
    def at(step, *shares):
        return {"step": step, "heads": 2, "offsets": [[0, 0, share, 0, 0, 0, 0.1] for share in shares]}

    found = snapshots.specialised([at(10, 0.6, 0.2), at(20, 0.4, 0.3), at(30, 0.7, 0.49), at(40, 0.8, 0.51)])
    assert [(one["head"], one["offset"], one["step"], one["always"]) for one in found] == [
        (0, -1, 30, False),  # at step 20 it was below
        (1, -1, 40, False),
    ]
    assert snapshots.specialised([at(10, 0.6, 0.2)])[0]["always"] and snapshots.specialised([]) == []


@pytest.mark.parametrize(
    "name", ["../run-1", "..", ".", "run-1/../../x", "run-9", "", "/etc", "a\0b", ".lab", "x" * 99]
)
def test_only_runs_in_the_folder_are_read(bench, home, name):
    write_run("run-1", RECORDS)
    (home / "metrics.jsonl").write_text('{"kind": "start", "step": 0}', encoding="utf-8")
    for action, more in ((training.snapshot, {"step": 1}), (training.resume, {})):
        with pytest.raises(ValueError, match="there is no run"):
            action(bench, {"run": name, **more})


def test_a_link_out_of_the_folder_is_not_followed(bench, home, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "metrics.jsonl").write_text('{"kind": "start", "step": 0}', encoding="utf-8")
    (elsewhere / "secret.txt").write_text("secret", encoding="utf-8")
    Path("runs").mkdir()
    link(Path("runs/run-1"), elsewhere)
    link(Path("mine.txt"), elsewhere / "secret.txt")
    with pytest.raises(ValueError, match="there is no run"):
        training.status(bench, {"run": "run-1"})
    assert training.status(bench, {})["run"] is None
    with pytest.raises(ValueError, match="outside of the folder"):
        training.start(bench, {"corpus": "file", "path": "mine.txt"})


@pytest.mark.parametrize(("path", "said"), [
    ("../secret.txt", "there is no file|outside"), ("/etc/passwd", "outside|there is no file"), ("runs", "there is no"),
    ("no.txt", "there is no file"), ("program.py", "not a text file"), ("a\0b", "there is no file"), ("", "not a text"),
])  # fmt: skip
def test_only_text_files_in_the_working_folder_are_read(bench, home, path, said):
    Path("program.py").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        training.start(bench, {"corpus": "file", "path": path})
    assert not training.TRAINER.running and not Path("runs").exists()


@pytest.mark.parametrize("wrong", [{"seconds": 9999}, {"seconds": 0}, {"save_every": 1}, {"corpus": "http://x"},
                                   {"out": "/tmp"}, {"corpus": "file", "path": 7}])  # fmt: skip
def test_runs_are_bounded(bench, home, wrong):
    with pytest.raises(ValueError):
        training.start(bench, wrong)
    assert not Path("runs").exists()


WAITS = "import sys; sys.stdin.read()"
FAILS = "import sys; sys.exit('the text is too short')"


def test_one_run_at_a_time_and_pausing_ends_it(bench, home, monkeypatch):
    monkeypatch.setattr(training, "PROCESS", ("-c", WAITS))
    name = training.start(bench, {"seconds": 60})["run"]
    assert training.status(bench, {}) | {"snapshots": None} == {
        "runs": [], "running": name, "run": name, "error": "", "preparing": True, "snapshots": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match="one run at a time"):
        training.start(bench, {"seconds": 60})
    training.pause(bench, {})
    training.TRAINER.process.wait(20)
    assert not training.TRAINER.running and training.status(bench, {})["error"] == ""


def test_an_error_of_the_run_is_shown(bench, home, monkeypatch):
    monkeypatch.setattr(training, "PROCESS", ("-c", FAILS))
    training.start(bench, {"seconds": 60})
    training.TRAINER.process.wait(20)
    end = time.monotonic() + 10
    while not training.TRAINER.failure and time.monotonic() < end:
        time.sleep(0.02)
    assert training.TRAINER.failure == "the text is too short"


def test_only_one_room_trains_at_a_time(bench, home, monkeypatch):
    """However close together Live training and Break it are started, one of them is refused."""
    monkeypatch.setattr(training, "PROCESS", ("-c", WAITS))
    monkeypatch.setattr(breaking, "PROCESS", ("-c", WAITS))
    monkeypatch.setattr(breaking, "TRAINER", breaking.Pair())
    monkeypatch.setattr(training, "OTHERS", [breaking.TRAINER])
    both = threading.Barrier(2)

    def start(action, request):
        both.wait()
        try:
            action(bench, request)
        except BadRequest:
            return "refused"
        return "started"

    try:
        for _ in range(4):
            with ThreadPoolExecutor(2) as threads:
                ways = ((training.start, {"seconds": 60}), (breaking.start, {"fault": "no_norm"}))
                answers = [threads.submit(start, *way) for way in ways]
                assert sorted(answer.result() for answer in answers) == ["refused", "started"]
            training.TRAINER.close()
            breaking.TRAINER.close()
    finally:
        breaking.TRAINER.close()


def test_a_resumed_run_is_bounded(bench, home, monkeypatch):
    """Whatever the run itself was meant to take: the process ends it as a pause would."""
    write_run("run-1", RECORDS, [100])
    said = []
    monkeypatch.setattr(training.TRAINER, "start", lambda run, options: said.append((run.name, options)))
    training.resume(bench, {"run": "run-1"})
    training.resume(bench, {"run": "run-1", "seconds": 100})
    assert said == [("run-1", {"resume": True}), ("run-1", {"resume": True, "minutes": 2})]  # 20 seconds before
    program = (
        "import sys, time; from mini_bert.lab import training_process; from mini_bert.training import pretraining\n"
        "assert training_process.MOST_SECONDS <= 1800\n"
        "pretraining.resume = lambda *_, **__: [time.sleep(0.01) for _ in range(6000)]\n"
        'sys.exit(training_process.main([\'{"out": "runs/run-1", "resume": true, "at_most": 0.2}\']))'
    )
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background job\n" + program
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.wait(40) == 130


def test_a_run_without_a_checkpoint_cannot_be_resumed(bench, home):
    write_run("run-1", RECORDS)
    with pytest.raises(ValueError, match="no checkpoint yet"):
        training.resume(bench, {"run": "run-1"})


@pytest.mark.slow
def test_a_run_pauses_with_a_checkpoint_resumes_and_survives_a_killed_lab(bench, home):
    """The real process: paused, resumed, and at last the lab is killed without a warning."""
    Path("mine.txt").write_text(TEXT * 400, encoding="utf-8")
    name = training.start(bench, {"corpus": "file", "path": "mine.txt", "seconds": 600, "save_every": 5})["run"]
    run = Path("runs") / name

    def wait(until, seconds=120):
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, training.TRAINER.errors
            time.sleep(0.1)

    wait(lambda: training.status(bench, {}).get("snapshots"))
    training.pause(bench, {})
    wait(lambda: not training.TRAINER.running)
    assert read_run(run).last("stop")["reason"] == "interrupted"
    before = read_run(run).steps
    wait(lambda: training.status(bench, {})["snapshots"][-1] == before)
    program = (
        "import sys, time; from mini_bert.lab import training\n"
        f"training.resume(None, {{'run': {name!r}}}); print(1, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ) as lab:
        lab.stdout.readline()
        wait(lambda: read_run(run).steps > before)
        lab.kill()
    wait(lambda: read_run(run).last("stop"))
    assert read_run(run).last("stop")["reason"] == "interrupted" and read_run(run).steps > before
