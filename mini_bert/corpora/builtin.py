"""The built-in corpus: the English documentation in every Python installation, reduced to prose.

    from mini_bert.corpora.builtin import documents

    for document in documents("train"):  # or "validation", or "all"
        print(document.name, len(document.text))

Its sources are the language reference behind `help()` (pydoc_data.topics); the docstrings and longer comments of the
standard library, of the wheels that come with `ensurepip`, and of NumPy; and the docstrings of compiled modules of
Python and NumPy. Source files are *read*, never imported. Only compiled modules, which have no source, are imported.

There is one document for each module or topic, with one paragraph on each line. A paragraph is left out if more than
half of its sequences of five words have occurred before, so no paragraph is both in training and in validation. The
name of a document decides which part it belongs to. The same installation always gives the same corpus; `fingerprint`
is its hash. `notes` lists what a minimal installation lacks (sources, the reference).

Building takes about ten seconds, so the result is stored in the cache folder.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import sysconfig
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.cache_folder import cache_folder
from mini_bert.common.processes import HelperError, helpers
from mini_bert.corpora.prose import paragraphs


class Document(NamedTuple):
    name: str
    text: str  # one paragraph on each line


class Corpus(NamedTuple):
    documents: list[Document]
    notes: list[str]  # what this installation lacks
    fingerprint: str


# --- collecting --------------------------------------------------------------------------------------------

SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "lib-dynload"}
LEXER = re.compile(
    r"""
    (?P<comment>\#[^\n]*(?:\n[ \t]*\#[^\n]*)*)            # a block of comments
  | (?P<text>[rRuU]?(?:'{3}(?:[^'\\]|\\.|'(?!''))*'{3}|"{3}(?:[^"\\]|\\.|"(?!""))*"{3}))
  | [bBfF][rR]?(?:'{3}(?:[^'\\]|\\.|'(?!''))*'{3}|"{3}(?:[^"\\]|\\.|"(?!""))*"{3})
  | '(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*"             # short strings, only to skip them
    """,
    re.S | re.X,
)


def source_texts(source: str) -> Iterator[str]:
    """The long strings and blocks of comments of a Python source, in order."""
    for token in LEXER.finditer(source):
        if token["text"]:
            with suppress(SyntaxError, ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about invalid escape sequences
                yield inspect.cleandoc(ast.literal_eval(token["text"]))
        elif token["comment"] and "\n" in token["comment"]:
            yield re.sub(r"^[ \t]*#+ ?", "", token["comment"], flags=re.M)


def sources(root: Path, package: str = "") -> Iterator[tuple[str, str]]:
    """(module name, source) of every module below a folder, sorted, without tests, which not all installations have."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED and name.isidentifier())
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                parts = [package, *path.relative_to(root).with_suffix("").parts]
                with suppress(OSError):
                    yield ".".join(filter(None, parts)).removesuffix(".__init__"), path.read_text("utf-8", "replace")


def wheel_sources(wheel: Path) -> Iterator[tuple[str, str]]:
    """(module name, source) of every module in a wheel, sorted."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            parts = name.removesuffix(".py").split("/")
            if name.endswith(".py") and not SKIPPED.intersection(parts):
                yield ".".join(parts).removesuffix(".__init__"), archive.read(name).decode("utf-8", "replace")


C_MODULES = (  # of the standard library: importing one has no effect but defining names
    *("array", "math", "cmath", "select", "zlib", "mmap", "unicodedata", "pyexpat", "binascii", "fcntl", "resource"),
    *("_asyncio", "_bisect", "_bz2", "_csv", "_ctypes", "_curses", "_datetime", "_decimal", "_elementtree"),
    *("_hashlib", "_heapq", "_json", "_lzma", "_multiprocessing", "_pickle", "_queue", "_random", "_socket"),
    *("_sqlite3", "_ssl", "_struct", "_zoneinfo", "_zstd", "_statistics", "_opcode", "_posixsubprocess"),
)
NUMPY_MODULES = ("numpy", "numpy.random._generator", "numpy.random.mtrand", "numpy.random.bit_generator")


def compiled_texts(module: ModuleType) -> Iterator[str]:
    """The docstrings of the functions, classes and methods of a compiled module."""
    for _, thing in sorted(vars(module).items()):
        if isinstance(thing, type) and thing.__module__ in (module.__name__, "builtins", "numpy"):
            yield thing.__doc__ if isinstance(thing.__doc__, str) else ""
            for _, member in sorted(vars(thing).items()):
                yield _docstring(member)
        elif _belongs(thing, module):
            yield _docstring(thing)


def _belongs(thing: Any, module: ModuleType) -> bool:
    """Whether a module defines this object. Programs may add their own to `sys` or `builtins`, such as hooks."""
    if not inspect.isroutine(thing) or inspect.ismethod(thing):
        return isinstance(thing, np.ufunc)
    home = getattr(thing, "__module__", None) or ""
    return getattr(thing, "__self__", None) is module or f"{module.__name__}.".startswith(f"{home}.")


def _docstring(thing: Any) -> str:
    if inspect.isfunction(thing):  # written in Python: its source has been read, or a program has added it
        return ""
    if inspect.isroutine(thing) or inspect.isdatadescriptor(thing) or isinstance(thing, np.ufunc):
        text = getattr(thing, "__doc__", None)
        if isinstance(text, str):
            return text
    return ""


def collected(notes: list[str]) -> Iterator[tuple[str, Iterable[str]]]:
    """(document name, raw texts) of everything, in a fixed order. What is missing is added to `notes`."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
        yield from ((f"reference/{topic}", [text]) for topic, text in sorted(topics.items()))
    except ImportError:
        notes.append("this Python has no language reference (pydoc_data.topics)")
    library, numpy = Path(sysconfig.get_paths()["stdlib"]), Path(np.__file__).parent
    for what, root, package in (("Python's standard library", library, ""), ("NumPy", numpy, "numpy")):
        has_sources = False
        for name, source in sources(root, package):
            has_sources = True
            yield f"source/{name}", source_texts(source)
        if not has_sources:
            notes.append(f"the sources of {what} are not installed")
    for wheel in sorted(library.glob("ensurepip/_bundled/*.whl")):
        yield from ((f"bundled/{name}", source_texts(source)) for name, source in wheel_sources(wheel))
    for name in sorted({*sys.builtin_module_names, *C_MODULES}) + list(NUMPY_MODULES):
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about deprecated modules
            yield f"compiled/{name}", list(compiled_texts(importlib.import_module(name)))


# --- choosing ----------------------------------------------------------------------------------------------

SHORTEST = 200  # characters of a document


class Novelty:
    """Whether a paragraph is new: at least half of its sequences of five words have not occurred before.

    Names and numbers are replaced by #, so "refer to numpy.sum for details" is the same as with numpy.prod.
    """

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, paragraph: str) -> bool:
        words = [word if word.isalpha() else "#" for word in re.findall(r"[\w.'-]*\w", paragraph.lower())]
        runs = {zlib.crc32(" ".join(words[i : i + 5]).encode()) for i in range(max(1, len(words) - 4))}
        new = runs - self.seen
        self.seen |= runs
        return 2 * len(new) >= len(runs)


def in_validation(name: str) -> bool:
    """True for about one document in twenty, depending only on its name."""
    return hashlib.sha256(f"mini-bert {name}".encode()).digest()[0] < 13


def build() -> Corpus:
    """Build the corpus from this installation."""
    notes: list[str] = []
    documents: list[Document] = []
    novel, raw = Novelty(), set()
    for name, texts in collected(notes):
        lines: list[str] = []
        for text in texts:
            if text not in raw:
                raw.add(text)
                lines += filter(novel, paragraphs(text))
        document = Document(name, "\n".join(lines))
        if len(document.text) >= SHORTEST:
            documents.append(document)
    return Corpus(documents, notes, _hash(documents))


def _hash(documents: Iterable[Document]) -> str:
    """Of all names and texts with a zero between them; a document at a time, to save memory"""
    digest = hashlib.sha256()
    for index, document in enumerate(documents):
        digest.update((("\0" if index else "") + "\0".join(document)).encode("utf-8"))
    return digest.hexdigest()


# --- storing -----------------------------------------------------------------------------------------------


# errors of a cache that is absent or damaged
UNREADABLE = (OSError, ValueError, TypeError, KeyError, StopIteration, RecursionError)


def corpus() -> Corpus:
    """The corpus of this installation, from the cache if it is there and intact."""
    path = cache_folder("builtin") / f"{_key()}.jsonl"
    with suppress(*UNREADABLE), path.open(encoding="utf-8") as rows:
        header = json.loads(next(rows))
        kept = Corpus([Document(*json.loads(row)) for row in rows], **header)
        if kept.fingerprint == _hash(kept.documents):
            return kept
    if sys.stderr.isatty():
        print("Building the built-in corpus from this Python installation (only once) ...", file=sys.stderr)
    made = build()
    header = json.dumps({"notes": made.notes, "fingerprint": made.fingerprint})
    with suppress(OSError):  # without a cache it only takes longer
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "\n".join([header, *map(json.dumps, made.documents)]).encode())
    return made


def fingerprint() -> str:
    """That of `corpus()`, without holding its text in memory.

    If the corpus has to be built, a helper process does that: building leaves 20 MB of fragmented memory behind.
    """
    path = cache_folder("builtin") / f"{_key()}.jsonl"
    if not path.exists():
        with helpers(_store, None, 1) as started, suppress(HelperError):
            for helper in started:
                helper.ask(None)
    with suppress(*UNREADABLE), path.open(encoding="utf-8") as rows:
        stored = json.loads(next(rows))["fingerprint"]
        if stored == _hash(Document(*json.loads(row)) for row in rows):
            return stored
    return corpus().fingerprint


def _store(state: None, job: None) -> None:
    corpus()


def _key() -> str:
    """The name of the cache entry: different for every installation and version of the cleaning code."""
    code = [Path(__file__), Path(paragraphs.__code__.co_filename)]
    parts = [sys.version, sys.platform, sysconfig.get_paths()["stdlib"], np.__version__, np.__file__]
    parts.append(str(sys.flags.optimize > 1))  # -OO removes docstrings
    parts += [path.read_text(encoding="utf-8") for path in code if path.is_file()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def documents(split: str = "all", of: Corpus | None = None) -> list[Document]:
    """The documents of a part: "train", "validation" or "all"."""
    if split not in ("all", "train", "validation"):
        raise ValueError(f"the built-in corpus has no part {split!r}; expected all, train or validation")
    return [
        document
        for document in (of or corpus()).documents
        if split == "all" or in_validation(document.name) == (split == "validation")
    ]
