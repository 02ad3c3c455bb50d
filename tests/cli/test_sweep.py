"""`mini-bert sweep`: what users type, what they are told, and a real sweep that is killed."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mini_bert.cli.main import main
from mini_bert.cli.sweep import named, option_names, parsed, planned, start_training, value_of
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.history import read_run
from mini_bert.training.sweep import Sweep
from mini_bert.training.sweep_plan import SweepPlan

WORDS = ["cats", "purr", "dogs", "bark", "birds", "sing", "fish", "swim", "bees", "hum", "."]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def text(place, monkeypatch):
    """A text, a vocabulary and the config of a tiny model."""
    monkeypatch.setenv("MINI_BERT_HOME", str(place / "home"))
    rng, pairs = random.Random(0), list(zip(WORDS[:-1:2], WORDS[1::2], strict=True))
    lines = [" ".join(f"{a} {b} ." for a, b in rng.choices(pairs, k=40)) for _ in range(60)]
    Path("my text.txt").write_text("\n\n".join(lines))
    WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).save("vocabulary")
    sizes = {"vocab_size": 16, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "intermediate_size": 40}
    Path("config.json").write_text(json.dumps({"model_type": "mini_bert", "max_seq_length": 16, **sizes}))
    return ["--corpus", "my text.txt", "--model", "config.json", "--tokenizer", "vocabulary", "--threads", "1",
            "--batch-size", "8", "--held-out", "0.1"]  # fmt: skip


def test_names_are_those_of_the_options_of_train():
    """Underscores, hyphens, leading hyphens and short names all work."""
    for name in ("learning_rate", "learning-rate", "--learning-rate", "lr", "--lr"):
        assert named(f"{name}=1,2") == ("learning_rate", "1,2")
    assert {"mask_prob", "tie_head", "batch_size"} <= set(option_names())


def test_values_are_read_as_train_reads_them():
    """Types are those of the command; 0 is a value; switches say yes or no."""
    assert value_of("batch_size", "16") == 16 and value_of("warmup", "0") == 0.0 and value_of("tie_head", "no") is False
    words = ["--seed", "0", "--corpus", "a", "--corpus", "b c", "--lr=1e-3", "--tie-head"]
    assert parsed(words) == {"corpus": ["a", "b c"], "seed": 0, "tie_head": True, "learning_rate": 1e-3}


def test_the_plan_of_a_command():
    """Grid, seeds and budget come together; the options of train may follow -- or not."""
    plan = planned(["lr=5e-4,1e-3", "tie_head=yes,no"], [], ["--seed", "7", "--minutes", "4"], None, None, 0, 2, None)
    assert plan.seeds == [7, 8] and plan.rungs == [2.0, 4.0] and plan.unit == "minutes" and len(plan.members) == 8
    assert plan.members[3].options == {"minutes": 4.0, "learning_rate": 5e-4, "tie_head": False, "seed": 8}


def test_options_that_belong_together():
    """Each --try is a setting, combined with what varies; it may differ from what all others share."""
    tries = ["--tie-head --lr 1e-3", "", "--masking span --init my_model"]
    plan = planned(["warmup=0.1,0.25"], tries, ["--steps", "100", "--lr", "2e-3"], None, None, 0, 1, None)
    assert plan.settings[0] == {"tie_head": True, "learning_rate": 1e-3, "warmup": 0.1} and len(plan.settings) == 6
    assert [member.options["learning_rate"] for member in plan.members] == [1e-3] * 2 + [2e-3] * 4
    assert plan.settings[4]["init"] == "my_model"
    assert plan.names == ["tie_head", "learning_rate", "warmup", "init", "masking"] and plan.describe(2) == "warmup 0.1"
    assert planned([], tries, [], None, None, 0, 1, None).describe(1) == "defaults"


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_plan_only(place, capsys, dashes):
    """It shows every setting and the time, and writes nothing."""
    words = ["--lr", "1e-3", "--batch_size", "64"]
    own = ["--out", "s", "--hours", "2", "--vary", "warmup=0.05..0.4", "--runs", "4", "--plan-only"]
    main_until_exit(["sweep", *own, *dashes, *words])
    said = capsys.readouterr().err
    assert said.startswith("4 settings:\n  01  warmup 0.") and "learning_rate 0.001" in said and "batch_size 64" in said
    assert "trained: 4 to 20 minutes, the best 2 to 40 minutes; 2.00 hours in all" in said
    assert not list(place.iterdir())


def main_until_exit(words):
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "nothing varies; give at least one --vary, such as"),
        ("--vary learning_rat=1,2", "train has no option --learning-rat; did you mean learning_rate?"),
        ("--vary lr", "expected NAME=VALUES"),
        ("--vary lr=1,x", "--learning-rate"),
        ("--vary lr=1,,2", "--learning-rate"),
        ("--vary lr=1e-3,0.001", "has the value 0.001 twice"),
        ("--vary lr=1,2 --vary learning-rate=3,4", "--vary learning_rate was given twice"),
        ("--vary lr=1,2 --lr 3", "learning_rate varies, and is also --learning-rate for all runs"),
        ("--vary warmup=100,400", "warmup is 100.0, expected a fraction of the run"),
        ("--vary batch_size=0,8", "--batch-size"),
        ("--vary model=mini..larger", "only numbers have ranges"),
        ("--vary tie_head=1,2", "'1' is not a value of a switch, expected yes or no"),
        ("--try --warmup=0.1 --try --warmup=0.10", "two settings are equal: {'warmup': 0.1}"),
        ("--try --warmap=0.1", "--try '--warmap=0.1': options of train: No such option: --warmap"),
        ("--try --seed=3", "--seeds 2 trains every setting with two seeds"),
        ("--try --lr=3 --vary lr=1,2", "learning_rate varies, and is also in a --try"),
        ("--vary seed=1,2", "--seeds 2 trains every setting with two seeds"),
        ("--vary steps=100,200", "all runs of a sweep are equally long"),
        ("--vary corpus=a,b", "could not be compared"),
        ("--vary lr=1,2 --corpsu x", "No such option: --corpsu"),
        ("--vary lr=1,2 -- --resume", "--resume cannot be given for all runs"),
        ("--vary lr=1,2 --held-out 0", "is what runs are compared by"),
        ("--vary lr=1,2 --corpus -", "standard input can be read only once"),
        ("--vary lr=1,2 --steps 100 --hours 1", "--steps is a length of its own"),
        ("--vary lr=1,2 --runs 3", "leave out --runs"),
        ("--try --optimizer=mun --try --lr=1", "optimizer is 'mun', expected one of adam, muon (setting 1: "),
        (
            "--vary optimizer=adam,muon --vary muon_lr=1e-3,2e-3",
            "--muon-learning-rate has no effect without --optimizer",
        ),
        ("--vary decay_share=0.3,0.97 --schedule wsd", "together more than the whole run"),
        ("--vary momentum=0.9,0.95 --init mini-bert", "--momentum has no effect without --optimizer muon"),
        ("--vary init=mini-bert,other --muon-lr 1e-3", "--muon-learning-rate has no effect without --optimizer muon"),
        ("--vary lr=0..1 --runs 501", "expected 1 to 500 settings"),
    ],
)
def test_what_is_refused_is_refused_at_once(place, words, says):
    """One sentence, before anything is written."""
    assert says in main_until_exit(["sweep", "--out", "s", *words.split()])
    assert not list(place.iterdir())


def test_a_folder_is_needed_and_must_be_free(place):
    assert "a sweep needs a folder" in main_until_exit(["sweep", "--vary", "lr=1,2"])
    (place / "s").mkdir()
    (place / "s" / "mine.txt").write_text("")
    assert "s is not empty" in main_until_exit(["sweep", "--out", "s", "--vary", "lr=1,2"])
    assert os.listdir("s") == ["mine.txt"]


def test_a_changed_plan_is_refused(place, monkeypatch):
    """The differences are named; the same command, or the folder alone, goes on."""
    begun = []
    monkeypatch.setattr(Sweep, "run", lambda self, stop: begun.append(self.plan))
    same = ["sweep", "--out", "s", "--hours", "2", "--vary", "lr=1e-3,2e-3", "--", "--batch-size", "16"]
    for words in (same, same, ["sweep", "--out", "s"]):
        assert main_until_exit(words) == 130  # as if stopped
    assert begun == [SweepPlan.read(Path("s"))] * 3
    said = main_until_exit([*same[:4], "3", "--vary", "lr=1e-3,3e-3", "--", "--batch-size", "32"])
    for part in ("batch_size: 32 instead of 16", "1e-3,3e-3 instead of 1e-3,2e-3", "90 instead of 60"):
        assert part in said
    for hours in ("2", "0"):
        assert "give --out and nothing else" in main_until_exit(["sweep", "--out", "s", "--hours", hours])
    assert len(begun) == 3
    monkeypatch.setattr(Sweep, "run", lambda self, stop: int("no run is left"))
    assert "no run is left" in main_until_exit(same) and "not trained yet" in Path("s/table.md").read_text()


# ---------------------------------------------------------------------- real ones


def python(words, **options):
    return subprocess.Popen([sys.executable, "-m", "mini_bert", *words], stderr=subprocess.PIPE, text=True, **options)


def without_time(path):
    """The rows of a table, without the column that no two sweeps share."""
    return re.sub(r"\| \d:\d\d ", "", path.read_text())


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_ends_with_a_checkpoint_when_its_input_closes(text, place):
    """As when the sweep stops it at a rung, or is killed."""
    process = start_training(
        str(place), [*text, "--steps", "99999", "--out", str(place / "run"), "--quiet"], place / "log"
    )
    try:
        wait_for(
            lambda: (
                process.poll() is not None
                or ((place / "run" / "metrics.jsonl").exists() and read_run("run").of("train"))
            )
        )
        assert process.poll() is None, (place / "log").read_text()
        process.stdin.close()
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert read_run("run").last("stop")["reason"] == "interrupted" and list(place.glob("run/checkpoints/step-*"))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends signals of POSIX")
def test_a_real_sweep(text, place):
    """Killed and stopped in the middle, a sweep ends with the table of one that was not. Its best run, which stopped
    at rungs, has exactly the weights of an ordinary run with the printed command."""
    varied = ["--vary", "lr=1e-3,3e-3,1e-2,1e6", "--rungs", "3", "--", *text, "--steps", "1200", "--save-every", "50"]
    whole = subprocess.run(
        [sys.executable, "-m", "mini_bert", "sweep", "--out", "whole", *varied], capture_output=True, text=True
    )
    assert whole.returncode == 0, whole.stderr
    assert "diverged at step" in whole.stdout and "whole/curves.svg" in whole.stdout
    assert whole.stdout.count("finished") == 1 and whole.stdout.count("stopped early") == 2

    def has_begun(run):
        return (run / "metrics.jsonl").exists() and bool(read_run(run).of("train"))

    for name, how in (("01", signal.SIGKILL), ("02", signal.SIGINT)):
        process, run = python(["sweep", "--out", "broken", *varied]), place / "broken" / "runs" / name
        wait_for(lambda process=process, run=run: has_begun(run) or process.poll() is not None)
        process.send_signal(how)
        said = process.communicate(timeout=60)[1]
        if how == signal.SIGINT:
            assert process.returncode == 130 and "mini-bert sweep --out broken" in said
    process = python(["sweep", "--out", "broken"])
    said = process.communicate()[1]
    assert process.returncode == 0, said
    assert without_time(place / "broken" / "table.md").replace("broken", "whole") == without_time(
        place / "whole" / "table.md"
    )

    again = shlex.split(whole.stdout.strip().splitlines()[-1])
    assert again[:2] == ["mini-bert", "train"]
    process = python([*again[1:], "--out", "again", "--quiet"])
    assert process.communicate() and process.returncode == 0
    best = re.search(r"^\| (\d\d) ", whole.stdout, re.M)[1]
    weights = [
        place / run / "model" / "model.safetensors" for run in ("again", f"whole/runs/{best}", f"broken/runs/{best}")
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes() == weights[2].read_bytes()
