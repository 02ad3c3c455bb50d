"""The commands, run as users run them: in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mini_bert
from mini_bert.checks.gradients import TOLERANCE, Checked
from mini_bert.cli.main import COMMANDS, GROUPS, app, main
from mini_bert.cli.words import WIDTH
from mini_bert.common.invocation import called_as
from mini_bert.common.processes import HelperError
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

PACKAGE = Path(mini_bert.__file__).parent


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, encoding="utf-8")


def mini(*words: str) -> subprocess.CompletedProcess[str]:
    return run("-X", "utf8", "-m", "mini_bert.cli.main", *words)


def test_help_lists_every_command():
    """`mini-bert --help` lists all commands, and each has its own help text."""
    text = mini("--help").stdout
    for name, function in COMMANDS.items():
        assert name.split()[0] in text
        assert len(function.__doc__ or "") > 30


def help_page(words: str, width: int, monkeypatch, capsys) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as end:
        main([*words.split(), "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [80, 120])
def test_every_command_has_help_that_fits(name, width, monkeypatch, capsys):
    """`mini-bert NAME --help` works for each command in narrow and wide terminals; only example lines may be longer."""
    lines = help_page(name, width, monkeypatch, capsys)
    assert lines[0].startswith(f"Usage: {called_as()} {name} ")
    for line in lines:
        assert len(line) <= min(width, WIDTH) or line.startswith(f"    {called_as()} {name} "), line
        assert f":  {called_as()} " not in line, "an example on a line of its own is not wrapped: cli/words.py, EXAMPLE"
    options = [line for line in lines[lines.index("Options:") + 1 :] if line.startswith("  --")]
    for option in options:  # each wants N, X, PATH or TEXT, or nothing: a switch
        assert re.match(r"  (--[\w-]+(, | / )?)+( (N|X|PATH|TEXT))?(  |$)", option), option


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_lists_of_commands_say_whole_sentences(group, monkeypatch, capsys):
    """The description of a command fits next to its name in 80 columns and is not cut off with dots."""
    lines = help_page(group, 80, monkeypatch, capsys)
    listed = lines[lines.index("Commands:") + 1 :]
    assert len(listed) > 1
    for line in listed:
        assert line.endswith((".", "?")) and not line.endswith("..."), line


def test_help_names_the_program_as_it_was_called():
    """Under run.py, usage, examples and advice begin with `python run.py`; the model name mini-bert stays as it is."""
    environment = os.environ | {"MINI_BERT_CALLED_AS": "python run.py", "COLUMNS": "100"}
    command = [sys.executable, "-X", "utf8", "-m", "mini_bert.cli.main"]
    told = {}
    for words in ("train --help", "eval --help", "data get --help", "predict --help", "trian"):
        found = subprocess.run([*command, *words.split()], env=environment, capture_output=True, text=True)
        told[words] = found.stdout + found.stderr
        assert told[words].startswith("Usage: python run.py ")
    assert "    python run.py train --corpus my_texts/" in told["train --help"]
    assert "`python run.py plan`" in told["train --help"]
    assert "    python run.py eval mini-bert --corpus my_text.txt" in told["eval --help"]
    assert "`python run.py data list`" in told["data get --help"]
    assert "`python run.py finetune`" in re.sub(r"\s+", " ", told["predict --help"])  # in the help of an option
    assert "Try 'python run.py --help'" in told["trian"]


def test_help_does_not_wait_for_numpy():
    """Commands import what they need only when called: help loads neither numpy nor rich."""
    code = "import sys, mini_bert.cli.main; print(*sys.modules)"
    loaded = run("-c", code).stdout.split()
    assert "typer" in loaded and not {"numpy", "rich", "safetensors", "mini_bert.models.config"} & set(loaded)


def test_the_usual_short_name_of_the_learning_rate(monkeypatch):
    """`--lr` means `--learning-rate`, in training and in fine-tuning."""
    given = []

    def note(*_, **options):
        given.append(options["learning_rate"])
        raise ValueError("seen")

    monkeypatch.setattr("mini_bert.training.pretraining.pretrain", note)
    monkeypatch.setattr(
        "mini_bert.finetuning.finetune.finetune", lambda kind, data, settings, *_, **__: note(**vars(settings))
    )
    for name in ("train", "finetune classify", "finetune sst2"):
        for option in ("--lr", "--learning-rate"):
            CliRunner().invoke(app, [*name.split(), option, "0.002"])
    assert given == [0.002] * 6


@pytest.mark.parametrize("words", ["plan", "info", "embed x", "eval mini-bert"])
def test_the_batch_size_has_one_name_and_an_old_one(words, capsys):
    """`--batch-size`, as for `train`; `--batch` still works."""
    for option in ("--batch-size", "--batch"):
        with pytest.raises(SystemExit) as end:
            main([*words.split(), option, "0"])
        assert end.value.code == 2 and "'--batch-size' / '--batch': '0', expected a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --steps 0", "'--steps': '0', expected a number greater than or equal to 1"),
        ("train --minutes abc", "'--minutes': 'abc', expected a valid number"),
        ("train --steps 1e3", "'--steps': '1e3', expected a valid integer"),
        ("embed --threads \x1b x", r"'--threads': '\x1b', expected a valid integer"),
    ],
)
def test_errors_of_the_parser_name_the_value(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split(" "))
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.endswith(f"Error: Invalid value for {message}\n") and "--help' for help" in said


def test_options_are_checked_before_files(tmp_path):
    """A wrong --kind is named before the folder that is taken; a wrong --model before the data is read."""
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SystemExit, match="--kind is 'sentencepiece', expected one of"):
        main(["tokenizer", "train", "--kind", "sentencepiece", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="--limit-alphabet has no effect with --kind bpe"):
        main(["tokenizer", "train", "--kind", "bpe", "--limit-alphabet", "9", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"config\.json"):
        main(["finetune", "classify", "--model", str(tmp_path), "--train", "no file"])


def test_info_shows_the_numbers():
    """`info` shows exact parameter counts, shapes and memory, for Larger-BERT too."""
    text = mini("info").stdout
    assert "4,498,880" in text and "(192,576)" in text and "moments of Muon and Adam" in text
    assert "49,137,488" in CliRunner().invoke(app, ["info", "--model", "larger"]).stdout


def test_errors_are_one_line():
    """A wrong value gives a one-sentence error without a traceback, and exit code 1."""
    result = mini("info", "--model", "huge")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("mini-bert: 'huge' is neither a preset (mini, larger, ")
    assert result.stderr.endswith(") nor a model folder nor the path of a config.json (models are not downloaded)\n")


@pytest.mark.parametrize("said", [(), ("told",)], ids=["nothing said", "told"])
def test_ctrl_c_ends_a_command_with_a_word(monkeypatch, capsys, said):
    """Ctrl-C exits with 130 and without a traceback. "Interrupted." is printed unless the command has already printed a
    message."""

    def stops(*_, **__):
        raise KeyboardInterrupt(*said)

    monkeypatch.setattr("mini_bert.corpora.reading.read", stops)
    with pytest.raises(SystemExit) as end:
        main(["data", "show"])
    assert end.value.code == 130 and capsys.readouterr().err == ("" if said else "\nInterrupted.\n")


def test_a_helper_that_dies_is_told_without_a_traceback(monkeypatch):
    """If a helper process dies, the error is one line, as for any other error."""

    def dies(*_, **__):
        raise HelperError("a helper process ended before its work was done (exit code -9)")

    monkeypatch.setattr("mini_bert.text.trained.wordpiece", dies)
    with pytest.raises(SystemExit, match="mini-bert: a helper process ended before its work was done"):
        main(["tokenizer", "train", "builtin"])


@pytest.mark.skipif(os.name == "nt", reason="a Unix shell")
def test_closed_streams_are_no_problem(tmp_path):
    """With 2>&-, training works and prints nothing on standard output; an error is only an exit code."""
    sizes = {"model_type": "mini_bert", "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"max_seq_length": 16}))
    (tmp_path / "text.txt").write_text("The cat sat on the mat. It purred.\n\n" * 40)
    (tmp_path / "matplotlib.py").write_text("raise ImportError")  # a picture would take longer than all the rest
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    environment = os.environ | {"MINI_BERT_HOME": str(tmp_path / "home"), "PYTHONPATH": path}
    words = ["train", "--corpus", "text.txt", "--model", "config.json", "--steps", "2", "--threads", "1"]
    for wanted in (0, 1):  # the second time, the folder exists
        shell = '"$0" -m mini_bert "$@" --out out 0<&- 2>&-'
        done = subprocess.run(
            ["/bin/sh", "-c", shell, sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True
        )
        assert (done.returncode, done.stdout) == (wanted, b"")
    assert "model: " in (tmp_path / "out" / "training.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["metrics", "train --help", "--help"])
def test_commands_work_without_docstrings(name):
    """`python -OO` leaves them out."""
    done = run("-OO", "-X", "utf8", "-m", "mini_bert", *name.split())
    assert (
        done.returncode == 0 and done.stderr == "" and ("leaves out" if name == "metrics" else "train") in done.stdout
    )


def test_too_little_memory_is_one_line(monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("mini_bert.corpora.reading.read", full)
    with pytest.raises(SystemExit, match=r"^mini-bert: not enough memory: Unable to allocate 9 GiB$"):
        main(["data", "show"])


def test_a_table_on_standard_input():
    """--column makes it a table."""
    words = [sys.executable, "-X", "utf8", "-m", "mini_bert.cli.main", "data", "show", "-", "--column", "review"]
    result = subprocess.run(words, input='id,review\n1,"a, b"\n', capture_output=True, text=True)
    assert result.returncode == 0 and "  a, b" in result.stdout


def test_tokenizer_train_has_its_options(tmp_path, monkeypatch):
    """The alphabet can be limited and an existing tokenizer replaced; without a source, the built-in corpus is used."""
    calls = []
    monkeypatch.chdir(tmp_path)

    def train(*words):
        calls.append(words)
        return WordPieceTokenizer(SPECIAL_TOKENS), "learnt"

    monkeypatch.setattr("mini_bert.text.trained.wordpiece", train)
    words = ["tokenizer", "train", "texts", "--limit-alphabet", "40", "--force", "--column", "body"]
    assert CliRunner().invoke(app, ["tokenizer", "train"]).exit_code == 0
    assert CliRunner().invoke(app, ["tokenizer", "train"]).exit_code == 1
    assert CliRunner().invoke(app, words).exit_code == 0
    assert calls == [(["builtin"], 8192, True, 1000, None, None), (["texts"], 8192, True, 40, None, "body")]
    for command in ("tokenizer train", "data show"):
        assert "[default: (builtin)]" in CliRunner().invoke(app, [*command.split(), "--help"]).stdout


def test_scripts_run_inside_the_package_folder():
    """`cd mini_bert; python models/config.py` and the guide's `from model import MiniBERT` work."""
    result = run("-X", "utf8", "config.py", cwd=PACKAGE)
    assert result.returncode == 0 and "hidden_size" in result.stdout
    result = run("-c", "from model import MiniBERT; print(MiniBERT().get_parameter_count())", cwd=PACKAGE)
    assert result.stdout.strip() == "4498880", result.stderr


def test_train_is_a_script_inside_the_package_folder(tmp_path):
    """`cd mini_bert; python train.py` does what `mini-bert train` does, up to the model folder."""
    config = {"model_type": "mini_bert", "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_seq_length": 16}))
    (tmp_path / "text.txt").write_text("\n\n".join(f"The cat sat on mat {number}. It purred." for number in range(40)))
    words = ["--corpus", str(tmp_path / "text.txt"), "--model", str(tmp_path / "config.json"), "--steps", "2"]
    (tmp_path / "matplotlib.py").write_text("raise ImportError")  # a picture would take longer than all the rest
    environment = os.environ | {"MINI_BERT_HOME": str(tmp_path / "home"), "PYTHONUTF8": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    command = [sys.executable, "train.py", *words, "--out", str(tmp_path / "out"), "--threads", "1"]
    result = subprocess.run(command, cwd=PACKAGE, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0 and "model: " in result.stderr, result.stderr
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


def test_simple_test_passes():
    """The tour has eight parts, and all are [OK]."""
    result = CliRunner().invoke(app, ["simple-test"])
    out = result.stdout
    assert result.exit_code == 0
    assert out.count("[OK]") == 8 and "[SUCCESS] Ready for training!" in out
    readme = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    for line in out.splitlines():  # what the README shows is what it prints, but for the last digits of an error
        assert line.split("(worst")[0] in readme, line


def test_no_module_shadows_the_standard_library():
    """Modules also run from inside their folder, which is first on the path, so none may shadow a standard module."""
    ours = {path.stem for folder in (PACKAGE, PACKAGE / "layers", PACKAGE / "models") for path in folder.glob("*.py")}
    assert not ours & set(sys.stdlib_module_names)


def test_simple_test_names_what_failed(monkeypatch):
    """A failed part is marked, and the exit code is 1."""
    tour = [("Config", True, "fine"), ("Loss", False, "12.3")]
    monkeypatch.setattr("mini_bert.checks.simple_test.tour", lambda: tour)
    result = CliRunner().invoke(app, ["simple-test"])
    assert result.exit_code == 1
    assert "[OK] Config: fine\n[FAILED] Loss: 12.3\n\n[FAILED] Loss\n" in result.stdout


def test_gradcheck_fails_above_the_tolerance(monkeypatch):
    """The exit code of `mini-bert gradcheck` is 1 if an error is NaN or above the tolerance (TOLERANCE by default)."""
    for error, options, code in (
        (TOLERANCE, [], 0),
        (TOLERANCE * 1.01, [], 1),
        (1e-4, ["--tolerance", "1e-3"], 0),
        (float("nan"), [], 1),
    ):
        rows = [Checked("w", (2,), 2, 0.0), Checked("b", (1,), 1, error)]
        monkeypatch.setattr("mini_bert.checks.gradcheck.all_checks", lambda part, rows=rows: [("linear", rows)])
        assert CliRunner().invoke(app, ["gradcheck", *options]).exit_code == code


def test_demo_lists_and_shows():
    """`demo` lists layers and models, `demo softmax` shows one, and an unknown name gives an error that lists them."""
    layers, models = CliRunner().invoke(app, ["demo"]).stdout.splitlines()
    assert layers.startswith("layers with a demo: ") and "attention, " in layers
    assert models.startswith("models with a demo: ") and "xlnet" in models
    assert "probabilities" in mini("demo", "softmax").stdout
    assert "query stream" in CliRunner().invoke(app, ["demo", "xlnet"]).stdout
    assert "there is no demo for 'sofmax'" in str(CliRunner().invoke(app, ["demo", "sofmax"]).exception)
