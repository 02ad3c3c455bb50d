"""Text is tokenized once, into files; every later start maps these into memory and can begin immediately.

    text ──read──▶ passages ──sentences, tokenizer──▶ ids ──▶ one folder:

    tokens.bin       [SEP] a b c d e [SEP] f g [SEP]      all documents in a row, [SEP] before each and after the last;
                                                          uint16, or uint32 for a vocabulary of more than 65,536
    sentences.bin          1     4         7        10    where each sentence begins in tokens.bin, and its length
    documents.bin          0               2         3    which sentence each document begins with, and their number
    hashes.bin             #               #              64 bits for each document: a hash of how its text begins
    shards.json      the counts, what it was made from, and a checksum of every megabyte

Numbers are little-endian, with 64 bits unless noted otherwise. Files are mapped, not read: they may be larger than
memory, and the system's cache shares the parts in use between processes.

The name of the folder is a hash of corpus, tokenizer and format, so a different text or vocabulary gets its own folder.
It is written under a temporary name and renamed when complete and on disk, so a folder under its final name is
complete even after a power failure. On opening, sizes and checksums are compared (of every megabyte up to 64, and of
64 spread over a larger file); a damaged folder is reported and built again.

Two processes tokenize sentences if there are two cores (common/processes.py). Results are written in order, so the
files do not depend on the number of processes. Memory does not grow with the text: only a few megabytes are processed
at a time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.atomic import ATTEMPTS, force_to_disk, put_in_place, unfinished_folder
from mini_bert.common.cache_folder import cache_folder, make_folder
from mini_bert.common.json_values import read_json
from mini_bert.common.processes import cores, in_order
from mini_bert.common.progress import counted, roughly, showing, size
from mini_bert.common.values import check_positive
from mini_bert.corpora import reading as corpora
from mini_bert.data import sentences

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

FORMAT = 1  # raise it when the layout of the files changes
RULES = 2  # raise it when the same text gives different sentences or ids; old folders can still be opened by path
NAMES = ("tokens", "sentences", "documents", "hashes")
PROCESSES = 2  # default; with 80 MB each and 70 MB for the caller, the total stays below 400 MB
JOB = 1 << 18  # characters per job, if passages are shorter
BLOCK = 1 << 20  # bytes with one checksum
CHECKED = 64  # blocks of each file whose checksum is compared on opening
ELSEWHERE = "set MINI_BERT_HOME, or cache_dir, to another folder"
logger = logging.getLogger(__name__)


class DamagedShards(ValueError):
    """The content of a folder of shards differs from what was written."""


@dataclass(frozen=True, eq=False)
class Shards:
    """The arrays of a folder, mapped into memory: read-only, larger than memory if need be, safe in any thread."""

    folder: Path
    info: dict[str, Any]
    tokens: np.ndarray
    sentences: np.ndarray  # (sentences + 1,)
    documents: np.ndarray  # (documents + 1,)
    hashes: np.ndarray  # (documents,)

    @property
    def digest(self) -> str:
        """A hash of the content: equal for equal text and tokenizer, on every machine."""
        return self.info["digest"]

    def __str__(self) -> str:
        names = ("token", "sentence", "document")
        tokens, sentences, documents = (counted(self.info[f"{name}s"], name) for name in names)
        return f"{tokens} in {sentences} of {documents}"


def prepare(
    source: corpora.Source,
    tokenizer: Tokenizer,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    progress: bool = True,
) -> Shards:
    """The shards of a source, opened if they exist and built otherwise. `source` is anything that corpora.read takes.

    cache_dir: the folder that holds them (default: the folder `shards` of the cache, see common/cache_folder.py)
    processes: the number of processes that tokenize, 80 MB each (default: two, or one on a single core)
    """
    check_tokenizer(tokenizer)
    processes = min(cores(), PROCESSES) if processes is None else processes
    check_positive("processes", processes)
    home = Path(cache_dir) if cache_dir is not None else cache_folder("shards")
    identity = corpora.identity(source)
    folder = home / _key(identity, tokenizer)
    if folder.is_dir():
        try:
            return open_shards(folder)
        except DamagedShards as error:
            logger.warning("%s; building them again", error)
    make_folder(home, ELSEWHERE)
    try:
        with unfinished_folder(folder) as work:
            info = _build(work, source, tokenizer, processes, progress)
            if (now := corpora.identity(source)) != identity:  # standard input has no identity: use the content's
                folder = home / _key(info["digest"], tokenizer)
                if corpora.identity(source) == now:  # a file
                    logger.warning("the text changed while it was read, so the shards may mix two versions of it")
            force_to_disk(work)
            put_in_place(work, folder, _is_whole)  # kept if another process has made the same
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise type(error)(
            error.errno, f"{error.strerror}: cannot write tokenized text to the folder {home}; {ELSEWHERE}"
        ) from error
    if progress:
        print(f"tokenized text saved in {folder}", file=sys.stderr)
    return _open_whole(folder)


def check_tokenizer(tokenizer: Any) -> None:
    """Raises TypeError for the name of a tokenizer, or any other object."""
    if isinstance(tokenizer, str | os.PathLike):
        raise TypeError(
            f"the tokenizer is {os.fspath(tokenizer)!r}, a name or a path; load it first: "
            f"load_tokenizer({os.fspath(tokenizer)!r})"
        )
    if not hasattr(tokenizer, "fingerprint"):
        raise TypeError(
            f"the tokenizer is {tokenizer!r:.60}, a {type(tokenizer).__name__}; expected a Mini-BERT tokenizer, such "
            'as load_tokenizer("8k")'
        )


def _key(identity: str, tokenizer: Tokenizer) -> str:
    content = json.dumps([FORMAT, RULES, identity, tokenizer.fingerprint, tokenizer.sep_id])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


# --- text -> arrays ----------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What each process receives once."""

    tokenizer: Tokenizer
    dtype: str


class Piece(NamedTuple):
    """Some passages as arrays; positions count from the start of the piece."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    hashes: np.ndarray
    bytes: int  # of text


def tokenize(settings: Settings, passages: list[tuple[str, bool]]) -> Piece:
    """Splits passages into sentences, and these into ids, with a separator before every document."""
    texts: list[str] = []
    documents, hashes, size = [], [], 0
    for text, first in passages:
        raw = text.encode()
        size += len(raw)
        split = sentences.split(text)
        if first:
            documents.append(len(texts))
            hashes.append(int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little"))
            texts += split[:1]
        texts += [settings.tokenizer.space + sentence for sentence in split[first:]]  # in the middle of a document
    rows = settings.tokenizer.ids(texts, special=False)  # "[SEP]" in the text is text, not a separator
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    starts = np.concatenate([[0], np.cumsum(lengths)])  # of sentences, not counting separators
    separators = starts[documents] + np.arange(len(documents))
    tokens = np.full(starts[-1] + len(documents), settings.tokenizer.sep_id, settings.dtype)
    kept = np.ones(len(tokens), bool)
    kept[separators] = False
    tokens[kept] = np.fromiter(chain.from_iterable(rows), settings.dtype, starts[-1])
    starts = starts[:-1] + np.searchsorted(documents, np.arange(len(rows)), side="right")
    some = lengths > 0  # a sentence may consist of characters that the tokenizer drops
    before = np.concatenate([[0], np.cumsum(some)])
    return Piece(tokens, starts[some], before[documents], np.array(hashes, np.uint64), size)


def _jobs(passages: Iterable[corpora.Passage]) -> Iterator[list[tuple[str, bool]]]:
    """Passages in lists of about JOB characters, the same for any number of processes."""
    job: list[tuple[str, bool]] = []
    size = 0
    for text, first in passages:
        job.append((text, first))
        size += len(text)
        if size >= JOB:
            yield job
            job, size = [], 0
    if job:
        yield job


def _build(
    work: Path, source: corpora.Source, tokenizer: Tokenizer, processes: int | None, progress: bool
) -> dict[str, Any]:
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    report = corpora.Report()
    counts = {"tokens": 0, "sentences": 0, "documents": 0, "bytes": 0}
    jobs = _jobs(corpora.read(source, report))
    files = {name: open(work / f"{name}.bin", "wb") for name in NAMES}  # noqa: SIM115
    try:
        total = _total(source)
        with showing(progress) as show:
            for piece in in_order(tokenize, Settings(tokenizer, dtype), jobs, processes):
                files["tokens"].write(piece.tokens.tobytes())
                files["sentences"].write((piece.sentences + counts["tokens"]).astype("<i8").tobytes())
                files["documents"].write((piece.documents + counts["sentences"]).astype("<i8").tobytes())
                files["hashes"].write(piece.hashes.astype("<u8").tobytes())
                for name in ("tokens", "sentences", "documents"):
                    counts[name] += len(getattr(piece, name))
                counts["bytes"] += piece.bytes
                note = f"{size(counts['bytes'])}, {roughly(counts['tokens'], 'token')}"
                show("tokenizing", note, counts["bytes"], total)
        files["tokens"].write(np.array([tokenizer.sep_id], dtype).tobytes())
        counts["tokens"] += 1
        files["sentences"].write(np.array([counts["tokens"]], "<i8").tobytes())
        files["documents"].write(np.array([counts["sentences"]], "<i8").tobytes())
    finally:
        for file in files.values():
            file.close()
    if not report.clean:
        logger.warning("reading the text: %s", report)
    if not counts["sentences"]:
        raise ValueError(f"there is no word in the text: {report}. Give a source with text")
    contents = {name: _checksums(work / f"{name}.bin") for name in NAMES}
    info = {
        "format": FORMAT,
        "dtype": dtype,
        **counts,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.fingerprint,
        "digest": hashlib.sha256(json.dumps([FORMAT, tokenizer.fingerprint, contents]).encode()).hexdigest(),
        "report": str(report),
        "files": contents,
    }
    (work / "shards.json").write_text(json.dumps(info), encoding="utf-8")
    return info


# --- folders -----------------------------------------------------------------------------------------------


def _is_whole(folder: Path) -> bool:
    try:
        open_shards(folder)
    except DamagedShards:
        return False
    return True


def _open_whole(folder: Path) -> Shards:
    """The shards of a folder that is complete, but may be missing for a moment: another process that found it damaged
    earlier replaces it with a copy of its own."""
    for attempt in range(1, ATTEMPTS):
        try:
            return open_shards(folder)
        except DamagedShards as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            time.sleep(0.01 * attempt)
    return open_shards(folder)


def open_shards(folder: str | os.PathLike[str]) -> Shards:
    """Maps the arrays of a folder. Raises DamagedShards if sizes or checksums differ from shards.json."""
    folder = Path(folder)
    try:
        info = read_json(folder / "shards.json")
        if info["format"] != FORMAT:
            raise DamagedShards(f"the shards in {folder} have format {info['format']}, expected {FORMAT}")
        arrays = {}
        for name in NAMES:
            content, path = info["files"][name], folder / f"{name}.bin"
            if path.stat().st_size != content["bytes"]:
                raise DamagedShards(
                    f"the shards in {folder} are damaged: {path.name} has {path.stat().st_size:,} bytes, expected "
                    f"{content['bytes']:,}"
                )
            sums = content["crc32"]
            wanted = range(len(sums)) if len(sums) <= CHECKED else np.linspace(0, len(sums) - 1, CHECKED).astype(int)
            for index in wanted:
                if _checksum(path, int(index)) != sums[index]:
                    where = f"{path.name} has changed at byte {index * BLOCK:,} or after"
                    raise DamagedShards(f"the shards in {folder} are damaged: {where}")
            dtype = {"tokens": info["dtype"], "hashes": "<u8"}.get(name, "<i8")
            arrays[name] = np.asarray(np.memmap(path, dtype, mode="r"))  # as a plain array, which is indexed faster
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DamagedShards):
            raise
        raise DamagedShards(f"the shards in {folder} are damaged ({type(error).__name__}: {error})") from error
    return Shards(folder, info, **arrays)


def _checksums(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size, "crc32": [_checksum(path, index) for index in range(-(-size // BLOCK))]}


def _checksum(path: Path, index: int) -> int:
    with open(path, "rb") as file:
        file.seek(index * BLOCK)
        return zlib.crc32(file.read(BLOCK))


def _total(source: corpora.Source) -> int | None:
    """The number of bytes of text, if the source is uncompressed .txt files; otherwise None."""
    if isinstance(source, Iterator):
        return None
    paths = [Path(one) for one in ([source] if isinstance(source, str | os.PathLike) else source)]
    if all(path.is_file() and path.suffix == ".txt" for path in paths):
        return sum(path.stat().st_size for path in paths)
    return None
