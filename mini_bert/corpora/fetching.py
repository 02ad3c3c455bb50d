"""Download a file over HTTP, and unpack archives safely.

    fetch(url, path, sha256)   url ──▶ path.part ──sha256──▶ path

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
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path

from mini_bert.common.atomic import to_disk
from mini_bert.common.progress import counted, showing, size

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a single byte
ATTEMPTS = 5  # in a row without a single new byte
PAUSE = 1.0  # seconds before the second attempt; doubles each time
AGENT = "Mozilla/5.0 (compatible; mini-bert; Python urllib)"  # some hosts refuse Python's own
TEMPORARY = {408, 416, 425, 429, 500, 502, 503, 504}  # HTTP errors that are worth another attempt
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DownloadError(OSError):
    """The file could not be downloaded, or is not the expected one."""


def fetch(url: str, path: Path, sha256: str | None = None, advice: str = "") -> str:
    """Download `url` to `path` and return its sha256. `advice` is added to the error about a wrong checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{path}.part")
    if not sha256:
        part.unlink(missing_ok=True)
    resumed = part.exists()
    if not resumed or hash_file(part) != sha256:
        _fetch_part(url, part, resume=bool(sha256))
    actual = hash_file(part)
    if sha256 and actual != sha256:
        part.unlink()
        if resumed:  # perhaps the old part was wrong: once more, from the beginning
            return fetch(url, path, sha256, advice)
        raise DownloadError(
            f"{url} has sha256 {actual}, expected {sha256}. The file was deleted and nothing was installed. Either it "
            f"was altered on the way, or its publisher has changed it. {advice}".rstrip()
        )
    to_disk(part)
    os.replace(part, path)
    return actual


def _fetch_part(url: str, part: Path, resume: bool) -> None:
    """Attempts until `part` is complete, or until several in a row have brought nothing new."""
    failures = 0
    while True:
        before = _size(part)
        try:
            return _attempt(url, part, before if resume else 0)
        except (http.client.HTTPException, OSError) as problem:  # a reset, a time-out, a broken TLS record, …
            if isinstance(problem, DownloadError) or getattr(problem, "errno", None) in FULL:
                raise
            failures = 0 if resume and _size(part) > before else failures + 1
            why = str(problem) or type(problem).__name__
            if failures >= ATTEMPTS:
                kept = f"{size(_size(part))} are kept, and the next call resumes from there. " if resume else ""
                raise DownloadError(
                    f"{url}: gave up after {counted(failures, 'attempt')} without progress ({why}). {kept}Is there an "
                    "internet connection? You can also download the file elsewhere and use its path as the source"
                ) from problem
            wait = PAUSE * 2 ** max(0, failures - 1)
            again = f"attempt {failures + 1} of {ATTEMPTS}" if failures else "resuming"
            print(f"{url.rsplit('/', 1)[-1]}: {why}; {again} in {wait:.0f} s ...", file=sys.stderr, flush=True)
            time.sleep(wait)


def _attempt(url: str, part: Path, have: int) -> None:
    """One request, for what comes after the first `have` bytes. Returns when `part` is complete."""
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no such range: our part is too long
            part.unlink()
        if error.code in TEMPORARY:
            raise
        raise DownloadError(
            f"{url}: the server returned {error.code} {error.reason}. The file may have moved; docs/corpora.md "
            "explains how to use a copy of your own"
        ) from error
    with response:
        done = have if response.status == 206 else 0
        total = done + int(response.headers.get("Content-Length") or 0)
        if response.headers.get_content_type() == "text/html":
            raise DownloadError(
                f"{url}: the server sent a web page instead of the file. Does this network require a login?"
            )
        with open(part, "ab" if done else "wb") as file, showing() as show:
            while data := response.read1(CHUNK):  # what has arrived; read() would lose it if the rest never comes
                file.write(data)
                done += len(data)
                show(url.rsplit("/", 1)[-1], f"{size(done)} of {size(total)}" if total else size(done), done, total)
    if done < total:
        raise ConnectionError(f"the connection broke after {done:,} of {total:,} bytes")
    if not done:
        raise DownloadError(f"{url}: the server sent an empty file")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- archives ----------------------------------------------------------------------------------------------


def is_archive(name: str) -> bool:
    return name.endswith((".zip", ".tar.gz"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive. Nothing is written outside the folder: `zipfile` drops such paths, and writes links as plain
    files; the filter of `tarfile` refuses both."""
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # None: Python 3.11.0 to 3.11.3
                tar.extractall(folder)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise DownloadError(
            f"{archive.name} is not a complete archive of plain files ({error}); delete it and download it again"
        ) from error
