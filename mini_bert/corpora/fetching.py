"""Fetch a file over HTTP so that what arrives under its name is whole and right, whatever happens on the way.

    fetch(url, path)   url ──▶ path.part ──size, sha256──▶ path

Bytes are collected in `path.part`. When the connection breaks, the next attempt asks the server for the rest ("Range"),
on the condition that the file is still the one begun ("If-Range" with its ETag or date). A server that cannot do that
sends the whole again. The part survives a crash, a full disk and Ctrl-C, and the next call goes on from it. Only a file
whose length and checksum are right is renamed to `path`; a wrong one is deleted, and the error says both hashes.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from mini_bert.common.progress import counted, showing
from mini_bert.common.progress import size as size_of

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a single byte
ATTEMPTS = 5  # in a row without a single new byte
PAUSE = 1.0  # seconds before the second attempt; doubles each time, up to a minute
SPARE = 64 << 20  # bytes that should stay free on the disk
AGENT = "Mozilla/5.0 (compatible; mini-bert; Python urllib)"  # some hosts refuse Python's own
LATER = {408, 425, 429, 500, 502, 503, 504}  # HTTP answers that may be different in a moment


class DownloadError(OSError):
    """The file could not be fetched, or is not what it should be."""


class DiskFull(DownloadError):
    """There is no room for it. What came so far is kept."""


class _Interrupted(Exception):
    """It broke off, but trying again may help. `wait`: seconds that the server asks for."""

    def __init__(self, why: object, wait: float = 0):
        super().__init__(str(why) or type(why).__name__)
        self.wait = wait


def fetch(url: str, path: Path, sha256: str | None = None, size: int | None = None, advice: str = "") -> str:
    """Fetch `url` into `path` -> its sha256. `advice` ends the message of a wrong checksum."""
    if not url.startswith(("https://", "http://")):
        raise DownloadError(f"{url}: only https:// and http:// can be fetched")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{path}.part")
    resumed = part.exists()
    failures = 0
    while True:
        before = _size(part)
        try:
            _attempt(url, part, sha256, size)
            break
        except (_Interrupted, http.client.HTTPException, TimeoutError, ConnectionError) as problem:
            failures = failures + 1 if _size(part) <= before else 0
            why = str(problem) or type(problem).__name__
            if failures >= ATTEMPTS:
                raise DownloadError(_gave_up(url, failures, why, _size(part))) from problem
            wait = max(getattr(problem, "wait", 0), min(60, PAUSE * 2 ** max(0, failures - 1)))
            again = f"attempt {failures + 1} of {ATTEMPTS}" if failures else "going on"
            print(f"{url.rsplit('/', 1)[-1]}: {why}; {again} in {wait:.0f} s ...", file=sys.stderr, flush=True)
            time.sleep(wait)
    found = hash_file(part)
    if sha256 and found != sha256:
        _forget(part)
        if resumed:  # perhaps the part was to blame: once more, from the beginning
            return fetch(url, path, sha256, size, advice)
        raise DownloadError(
            f"{url} is not the file it should be: its sha256 is {found}, expected {sha256}. It was deleted, nothing is "
            f"installed. Either something on the way has changed it, or its publisher has. {advice}".rstrip()
        )
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    _forget(part)
    return found


def _gave_up(url: str, failures: int, why: str, kept: int) -> str:
    remedy = "Is there an internet connection? If this computer has none, fetch the file on another one"
    if why.startswith("HTTP "):
        remedy = "The server may do better later. If you find the file elsewhere, fetch it there"
    return (
        f"{url}: gave up after {counted(failures, 'attempt')} without progress ({why}). "
        + (f"{size_of(kept)} are kept, and the next try goes on from there. " if kept else "")
        + f"{remedy}, and give its path where text is asked for"
    )


def _attempt(url: str, part: Path, sha256: str | None, size: int | None) -> None:
    """One request. Returns when `part` is complete."""
    have, validator = _size(part), ""
    with suppress(OSError, ValueError, KeyError, TypeError):
        begun = json.loads(_about(part).read_text(encoding="utf-8"))
        validator = begun["validator"] if begun["url"] == url else ""
    if have and not validator and not sha256:
        have = 0  # nothing could tell whether the rest belongs to the same file
    if sha256 and have and have == size:
        return
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # nothing comes after what we have: it is complete, or it is another file
                if validator and error.headers.get("Content-Range") == f"bytes */{have}":
                    return
                _forget(part)
                raise _Interrupted("the server has less than we have") from error
            if error.code in LATER:
                raise _Interrupted(f"HTTP {error.code} {error.reason}", _retry_after(error.headers)) from error
            raise DownloadError(
                f"{url}: the server answers {error.code} {error.reason}. The file may have moved; "
                "see docs/corpora.md for how to use a copy of your own"
            ) from error
    except urllib.error.URLError as error:
        raise _Interrupted(error.reason) from error
    with response:
        answer, start = response.headers, 0
        etag, date = answer.get("ETag", ""), answer.get("Last-Modified", "")
        now = etag if etag.startswith('"') else date  # a weak ETag does not vouch for bytes
        if response.status == 206:
            start = have
            if _range_start(answer) != have or (validator and now and now != validator):
                _forget(part)
                raise _Interrupted("the server sent a piece of another file, or another piece")
        length = answer.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        _check_answer(url, answer, total, sha256, size)
        need_space(part.parent, (total or size or start) - start, f"fetch {url}")
        _about(part).write_text(json.dumps({"url": url, "validator": now}), encoding="utf-8")
        with open(part, "ab" if start else "wb", buffering=0) as file:
            _receive(response, file, part, url, start, total)
    came = _size(part)
    if came < (total or size or 0):
        raise _Interrupted(f"the connection broke after {came:,} of {total or size:,} bytes")
    if came != (size or came):
        _forget(part)
        raise DownloadError(f"{url} has {came:,} bytes, expected {size:,}: its publisher has changed it")
    if not came:
        raise DownloadError(f"{url}: the server sent an empty file")


def _check_answer(url: str, headers: Any, total: int | None, sha256: str | None, size: int | None) -> None:
    """Refuse, before a byte is written, what cannot be the file."""
    if total is not None and size is not None and total != size:
        raise DownloadError(f"{url} has {total:,} bytes, expected {size:,}: its publisher has changed it")
    if not sha256 and headers.get_content_type() == "text/html":
        raise DownloadError(
            f"{url}: the server sent a web page instead of the file. Does this network ask for a log-in?"
        )


def _receive(response: Any, file: Any, part: Path, url: str, start: int, total: int | None) -> None:
    name, done = url.rsplit("/", 1)[-1], start
    of_all = f" of {size_of(total)}" if total else ""
    with showing() as show:
        while True:
            try:
                data = response.read1(CHUNK)  # what is there; read() would lose it if the rest never comes
            except OSError as error:  # a reset, a time-out, a broken TLS record
                raise _Interrupted(error) from error
            if not data:
                return
            try:
                _write(file, data)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                raise DiskFull(
                    f"the disk is full ({error.strerror}): {_size(part):,} bytes of {url} are kept in {part}. "
                    "Free some space and run the same command again; it goes on from there"
                ) from error
            done += len(data)
            show(name, f"{size_of(done)}{of_all}", done, total)


def _write(file: Any, data: bytes) -> None:
    """All of it: an unbuffered file may take only a part. (A buffered one could fail later, when it is closed.)"""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _range_start(headers: Any) -> int:
    """`Content-Range: bytes 500-999/1000` -> 500; -1 if there is none."""
    unit, _, span = headers.get("Content-Range", "").partition(" ")
    first = span.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else -1


def _retry_after(headers: Any) -> float:
    value = headers.get("Retry-After", "")
    return min(60.0, float(value)) if value.isdigit() else 0.0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _about(part: Path) -> Path:
    return Path(f"{part}.json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _about(part).unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def need_space(folder: Path, needed: int, what: str) -> None:
    """Better to say it before than to fail at 90 %."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise DiskFull(
            f"the disk is too full to {what}: {needed + SPARE:,} bytes are needed in {folder}, {free:,} are free. "
            "Free some space, or set MINI_BERT_HOME to a folder on another disk"
        )


# --- one at a time -----------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock on a file: whoever comes second waits. The system releases it if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        told = False
        while not _try_lock(file):
            if not told:
                waiting()
                told = True
            time.sleep(0.1)
        yield


def _try_lock(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt: Any = import_module("msvcrt")
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl: Any = import_module("fcntl")
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # no locks on this disk: do without
    return True
