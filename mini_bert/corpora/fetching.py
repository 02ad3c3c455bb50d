"""Download a file over HTTP, and unpack archives safely.

    fetch(url, path, sha256)   url ──▶ path.part ──size, sha256──▶ path

If the connection breaks, the next attempt requests only the missing bytes (a "Range" request), and so does the next
call after a crash or Ctrl-C. This needs a known sha256, to check that both pieces belong to the same file; a file
without one is fetched from the beginning. Only a complete and correct file is renamed to `path`.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import lzma
import os
import shutil
import stat
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from mini_bert.common.atomic import to_disk
from mini_bert.common.progress import counted, showing
from mini_bert.common.progress import size as size_of

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a single byte
ATTEMPTS = 5  # in a row without a single new byte
PAUSE = 1.0  # seconds before the second attempt; doubles each time
SPARE = 64 << 20  # bytes that should stay free on the disk
AGENT = "Mozilla/5.0 (compatible; mini-bert; Python urllib)"  # some hosts refuse Python's own
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}  # HTTP errors that are worth another attempt
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DownloadError(OSError):
    """The file could not be downloaded, or is not the expected one."""


class DiskFull(DownloadError):
    """There is not enough space on the disk."""


class _Interrupted(Exception):
    """The attempt failed, but another one may succeed."""


def fetch(url: str, path: Path, sha256: str | None = None, size: int | None = None, advice: str = "") -> str:
    """Download `url` to `path` and return its sha256. `advice` is added to the error about a wrong checksum."""
    if not url.startswith(("https://", "http://")):
        raise DownloadError(f"{url}: only https:// and http:// can be downloaded")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{path}.part")
    if not sha256:
        part.unlink(missing_ok=True)
    resumed = part.exists()
    failures = 0
    while not sha256 or not size or _size(part) != size:
        before = _size(part)
        try:
            _attempt(url, part, bool(sha256), size)
            break
        except (_Interrupted, http.client.HTTPException, TimeoutError, ConnectionError) as problem:
            failures = failures + 1 if _size(part) <= before or not sha256 else 0
            why = str(problem) or type(problem).__name__
            if failures >= ATTEMPTS:
                raise DownloadError(_gave_up(url, failures, why, _size(part) if sha256 else 0)) from problem
            wait = PAUSE * 2 ** max(0, failures - 1)
            again = f"attempt {failures + 1} of {ATTEMPTS}" if failures else "resuming"
            print(f"{url.rsplit('/', 1)[-1]}: {why}; {again} in {wait:.0f} s ...", file=sys.stderr, flush=True)
            time.sleep(wait)
    actual = hash_file(part)
    if sha256 and actual != sha256:
        part.unlink()
        if resumed:  # perhaps the old part was wrong: once more, from the beginning
            return fetch(url, path, sha256, size, advice)
        raise DownloadError(
            f"{url} has sha256 {actual}, expected {sha256}. The file was deleted and nothing was installed. Either it "
            f"was altered on the way, or its publisher has changed it. {advice}".rstrip()
        )
    to_disk(part)
    os.replace(part, path)
    return actual


def _gave_up(url: str, failures: int, why: str, kept: int) -> str:
    remedy = "Is there an internet connection? If this computer has none, download the file on another one"
    if why.startswith("HTTP "):
        remedy = "Try again later. If you find the file elsewhere, download it there"
    return (
        f"{url}: gave up after {counted(failures, 'attempt')} without progress ({why}). "
        + (f"{size_of(kept)} are kept, and the next call resumes from there. " if kept else "")
        + f"{remedy}, and use its path as the source of text"
    )


def _attempt(url: str, part: Path, resume: bool, size: int | None) -> None:
    """One request. Returns when `part` is complete."""
    have = _size(part) if resume else 0
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # the server has no such range: our part is too long
                part.unlink()
                raise _Interrupted("the server's file is shorter than our partial download") from error
            if error.code in TEMPORARY:
                raise _Interrupted(f"HTTP {error.code} {error.reason}") from error
            raise DownloadError(
                f"{url}: the server returned {error.code} {error.reason}. The file may have moved; "
                "docs/corpora.md explains how to use a copy of your own"
            ) from error
    except urllib.error.URLError as error:
        raise _Interrupted(error.reason) from error
    with response:
        start = have if response.status == 206 else 0
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        if total and size and total != size:
            raise DownloadError(_wrong_size(url, total, size))
        if not resume and response.headers.get_content_type() == "text/html":
            raise DownloadError(
                f"{url}: the server sent a web page instead of the file. Does this network require a login?"
            )
        need_space(part.parent, (total or size or start) - start, f"download {url}")
        try:
            with open(part, "ab" if start else "wb") as file:
                _receive(response, file, url.rsplit("/", 1)[-1], start, total)
        except OSError as error:
            if error.errno not in FULL:
                raise _Interrupted(error) from error  # a reset, a time-out, a broken TLS record
            kept = f"{_size(part):,} bytes are kept in {part}" if resume else "nothing is kept"
            raise DiskFull(
                f"the disk became full ({error.strerror}) while downloading {url}; {kept}. "
                "Free some space and run the same command again"
            ) from error
    received = _size(part)
    if received < (total or size or 0):
        raise _Interrupted(f"the connection broke after {received:,} of {total or size:,} bytes")
    if size and received != size:
        part.unlink()
        raise DownloadError(_wrong_size(url, received, size))
    if not received:
        raise DownloadError(f"{url}: the server sent an empty file")


def _wrong_size(url: str, found: int, expected: int) -> str:
    return f"{url} has {found:,} bytes, expected {expected:,}: its publisher has changed it"


def _receive(response: Any, file: Any, name: str, done: int, total: int | None) -> None:
    of_total = f" of {size_of(total)}" if total else ""
    with showing() as show:
        while data := response.read1(CHUNK):  # what has arrived; read() would lose it if the rest never comes
            file.write(data)
            done += len(data)
            show(name, f"{size_of(done)}{of_total}", done, total)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def need_space(folder: Path, needed: int, what: str) -> None:
    """Raise DiskFull before the work begins, instead of failing at 90 %."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise DiskFull(
            f"the disk is too full to {what}: {needed + SPARE:,} bytes are needed in {folder}, {free:,} are free. "
            "Free some space, or set MINI_BERT_HOME to a folder on another disk"
        )


# --- archives ----------------------------------------------------------------------------------------------


def is_archive(name: str) -> bool:
    return name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of plain files and folders. Links, and names that lead out of the folder, are refused."""
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                infos = packed.infolist()
                _check_members(archive, folder, [(i.filename, i.file_size, _is_plain(i)) for i in infos])
                packed.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                _check_members(archive, folder, [(i.name, i.size, i.isreg() or i.isdir()) for i in tar.getmembers()])
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # None: Python 3.11.0 to 3.11.3
                tar.extractall(folder)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise DownloadError(
            f"{archive.name} is not a complete archive ({error}); delete it and download it again"
        ) from error


def _is_plain(member: zipfile.ZipInfo) -> bool:
    return stat.S_IFMT(member.external_attr >> 16) in (stat.S_IFREG, stat.S_IFDIR, 0)  # 0: not written on Unix


def _check_members(archive: Path, folder: Path, members: list[tuple[str, int, bool]]) -> None:
    for name, _, plain in members:
        if not plain:
            raise DownloadError(f"{archive.name} contains a link or device, {name!r}: refused")
        if not stays_inside(name):
            raise DownloadError(f"{archive.name} contains {name!r}, a path outside of its folder: refused")
    need_space(folder, sum(size for _, size, _ in members), f"unpack {archive.name}")


def stays_inside(name: str) -> bool:
    r"""Whether a path in an archive stays below its folder on every system.

    >>> stays_inside("data/train.txt"), stays_inside("../x"), stays_inside("C:\\x"), stays_inside("/x")
    (True, False, False, False)
    """
    parts = PureWindowsPath(name).parts  # which understands both / and \
    absolute = PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor
    return bool(parts) and not absolute and ".." not in parts and not any(c in name for c in ":\0")
