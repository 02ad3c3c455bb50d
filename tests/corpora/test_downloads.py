"""Downloads from a local test server: whatever goes wrong, a file arrives complete and correct, or not at all."""

import errno
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.text import data_get, data_list
from mini_bert.corpora import downloads, fetching
from mini_bert.corpora.downloads import (
    DATASETS,
    Dataset,
    Remote,
    corpus_files,
    get,
    installed,
)
from mini_bert.corpora.fetching import DownloadError, fetch, unpack
from mini_bert.corpora.reading import Report, read

CONTENT = np.random.default_rng(0).bytes(1_000_000)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Site:
    """A server whose every response can be planned. `plan` has one entry for each of the next requests: ("cut", n): n
    bytes, then the connection breaks; ("status", code); ("redirect", path); ("slow", seconds); ("ignore",): hang up
    without a response. Without a plan: the content, with or without ranges."""

    def __init__(self):
        self.content, self.etag, self.ranges, self.length = {"/file": CONTENT}, '"one"', True, True
        self.kind = "application/octet-stream"
        self.plan, self.seen = [], []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                site.seen.append(dict(self.headers))
                site.answer(self, *(site.plan.pop(0) if site.plan else ("send",)))

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that hangs up is what we test
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/file"

    def answer(self, request, what, value=None):
        request.close_connection = True
        data = self.content.get(request.path)
        if what == "ignore":
            return
        if what == "status" or data is None:
            request.send_response(value or 404)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if what == "redirect":
            request.send_response(302)
            request.send_header("Location", value)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        start, asked = 0, re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if self.ranges and asked and request.headers.get("If-Range", self.etag) == self.etag:
            start = int(asked[1])
            if start >= len(data):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(data)}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            request.send_response(200)
        request.send_header("Content-Type", self.kind)
        if self.length:
            request.send_header("Content-Length", str(len(data) - start))
        if self.etag:
            request.send_header("ETag", self.etag)
        request.end_headers()
        body = data[start : start + value] if what == "cut" else data[start:]
        if what == "slow":
            request.wfile.write(body[:1000])
            time.sleep(value)
            body = body[1000:]
        request.wfile.write(body)


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    site = Site()
    yield site
    site.server.shutdown()
    site.server.server_close()


# --- one file ----------------------------------------------------------------------------------------------


def test_a_file_arrives(site, tmp_path):
    """Whole, under its name, with nothing left beside it; its sha256 comes back."""
    assert fetch(site.url, tmp_path / "new" / "x", sha256(CONTENT)) == sha256(CONTENT)
    assert (tmp_path / "new" / "x").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "new") == ["x"]
    assert "Range" not in site.seen[0] and "mini-bert" in site.seen[0]["User-Agent"]


def test_a_broken_connection_is_continued(site, tmp_path):
    """After each break, only the rest is requested; the bytes are the same."""
    site.plan = [("cut", 300_000), ("cut", 1), ("ignore",), ("cut", 400_000)]
    assert fetch(site.url, tmp_path / "x", sha256(CONTENT)) == sha256(CONTENT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    asked = [headers.get("Range") for headers in site.seen]
    assert asked == [None, "bytes=300000-", "bytes=300001-", "bytes=300001-", "bytes=700001-"]


def test_without_a_checksum_it_begins_again(site, tmp_path):
    """Without a checksum, nothing could show whether the two pieces belong to the same file."""
    (tmp_path / "x.part").write_bytes(b"of another file")
    site.plan = [("cut", 300_000)]
    fetch(site.url, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [headers.get("Range") for headers in site.seen] == [None, None]
    site.plan = [("cut", 300_000)] * 9  # each attempt gets as far as the one before: that is no progress
    with pytest.raises(DownloadError, match="gave up after 5 attempts"):
        fetch(site.url, tmp_path / "y")


def test_the_next_run_goes_on(site, tmp_path, monkeypatch):
    """A program that gave up or died leaves a partial file; the next one downloads only the rest."""
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    site.plan = [("cut", 600_000), ("ignore",)]
    with pytest.raises(DownloadError, match=r"gave up after 1 attempt without progress.*600\.0 kB are kept"):
        fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert not (tmp_path / "x").exists()
    fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT and site.seen[-1]["Range"] == "bytes=600000-"


def test_a_complete_part_is_recognised(site, tmp_path):
    """If the program died just before the rename, nothing is downloaded again."""
    (tmp_path / "y.part").write_bytes(CONTENT)
    fetch(site.url, tmp_path / "y", sha256(CONTENT))
    assert len(site.seen) == 0


@pytest.mark.parametrize("part", [CONTENT * 2, b"rubbish"])
def test_a_bad_part_does_not_spoil_the_file(site, tmp_path, part):
    """If it is too long, or the completed file has the wrong checksum, the file is downloaded from the beginning."""
    (tmp_path / "x.part").write_bytes(part)
    fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT and site.seen[-1].get("Range") is None


def test_a_server_without_ranges(site, tmp_path):
    """The server sends everything again, so the partial file is replaced, not continued."""
    site.ranges = False
    site.plan = [("cut", 300_000), ("cut", 700_000)]
    fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(site, tmp_path):
    """Nothing is installed and nothing is kept; the message has both hashes."""
    expected = sha256(b"something else")
    with pytest.raises(
        DownloadError, match=f"has sha256 {sha256(CONTENT)}, expected {expected}.*nothing was installed"
    ):
        fetch(site.url, tmp_path / "x", expected)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [404, 403, 410])
def test_answers_that_are_final(site, tmp_path, code):
    """Responses that cannot change are not retried."""
    site.plan = [("status", code)] * 9
    with pytest.raises(DownloadError, match=f"the server returned {code}"):
        fetch(site.url, tmp_path / "x")
    assert len(site.seen) == 1


def test_answers_that_may_change(site, tmp_path):
    """500, 503 and 429 are retried a few times."""
    site.plan = [("status", 500), ("status", 503), ("status", 429)]
    fetch(site.url, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT and len(site.seen) == 4
    site.plan = [("status", 503)] * 9
    with pytest.raises(DownloadError, match=r"gave up after 5 attempts without progress.*503"):
        fetch(site.url, tmp_path / "y")


def test_pauses_grow(site, tmp_path, monkeypatch):
    """Between attempts without progress, the pause doubles each time."""
    waited = []
    monkeypatch.setattr(fetching, "PAUSE", 1.0)
    monkeypatch.setattr(fetching.time, "sleep", waited.append)
    site.plan = [("status", 500)] * 9
    with pytest.raises(DownloadError):
        fetch(site.url, tmp_path / "x")
    assert waited == [1, 2, 4, 8]


def test_a_redirect_is_followed(site, tmp_path):
    """A redirect leads to the new address of the file."""
    site.content["/moved"] = CONTENT
    site.plan = [("redirect", "/moved")]
    fetch(site.url, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_server_that_falls_silent(site, tmp_path, monkeypatch):
    """After a time-out, the rest is requested again."""
    monkeypatch.setattr(fetching, "TIMEOUT", 0.2)
    site.plan = [("slow", 0.6)]
    fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT and site.seen[1]["Range"] == "bytes=1000-"


def test_an_empty_file_is_refused(site, tmp_path):
    """A file of zero bytes is not a data set."""
    site.content["/file"] = b""
    with pytest.raises(DownloadError, match="sent an empty file"):
        fetch(site.url, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_web_page_is_no_data(site, tmp_path):
    """A network that requires a login sends its own page for every address. Without a checksum, the content type shows
    this."""
    site.kind = "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="a web page instead of the file"):
        fetch(site.url, tmp_path / "x")


def test_no_server_at_all(tmp_path, monkeypatch, capsys):
    """Each attempt is told while one waits; in the end an error that names the address, and what to do."""
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/x: gave up after 5 attempts") as caught:
        fetch("http://127.0.0.1:9/x", tmp_path / "x")
    assert "You can also download the file elsewhere and use its path" in str(caught.value)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("; ")[2] for line in told] == [f"attempt {n} of 5 in 0 s ..." for n in (2, 3, 4, 5)]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of this kind are Unix")
def test_a_real_limit_of_the_system(site, tmp_path):
    """A process that may write files of 500 kB only: it is not tried again, and the part is kept and continued."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom mini_bert.corpora.fetching import fetch\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "fetch(sys.argv[1], Path(sys.argv[2]), sys.argv[3])"
    )
    words = [site.url, str(tmp_path / "x"), sha256(CONTENT)]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert "File too large" in ended.stderr and "resuming in" not in ended.stderr
    assert (tmp_path / "x.part").read_bytes() == CONTENT[:500_000]
    fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT and site.seen[-1]["Range"] == "bytes=500000-"


def test_progress_is_shown(site, tmp_path, capsys):
    """During the download, standard error shows the name, and how many of how many megabytes."""
    fetch(site.url, tmp_path / "x")
    told = capsys.readouterr()
    size = f"{len(CONTENT) / 1e6:,.1f} MB"
    assert told.out == "" and f"{size} of {size}" in told.err


def test_what_has_come_is_told(site, tmp_path, monkeypatch, capsys):
    """A connection that breaks after some bytes is not a failed attempt; the last message says how much is kept."""
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    site.plan = [("cut", 5000), ("status", 500)]
    with pytest.raises(DownloadError, match=r"500.*5\.0 kB are kept, and the next call resumes.*elsewhere"):
        fetch(site.url, tmp_path / "x", sha256(CONTENT))
    assert "broke after 5,000 of 1,000,000 bytes; resuming in 0 s ..." in capsys.readouterr().err


# --- archives ----------------------------------------------------------------------------------------------


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def tar_of(files, **special):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in special.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_archives_are_unpacked(tmp_path, pack):
    """Files and folders are unpacked byte for byte."""
    path = tmp_path / ("a.zip" if pack is zip_of else "a.tar.gz")
    path.write_bytes(pack({"a/b.txt": b"one", "c.txt": CONTENT}))
    (tmp_path / "out").mkdir()
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"one" and (tmp_path / "out/c.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil"])
def test_no_file_leaves_its_folder(tmp_path, name):
    """A name that leads elsewhere is refused, or the file is written inside."""
    for archive, content in (("a.zip", zip_of({name: b"evil"})), ("a.tar.gz", tar_of({name: b"evil"}))):
        (tmp_path / archive).write_bytes(content)
        (tmp_path / "below" / "out").mkdir(parents=True, exist_ok=True)
        with suppress(DownloadError):
            unpack(tmp_path / archive, tmp_path / "below" / "out")
        assert os.listdir(tmp_path / "below") == ["out"] and not (tmp_path / "evil").exists()
    assert not Path("/evil").exists()


def test_links_lead_nowhere(tmp_path):
    """A symbolic link in an archive may point anywhere: refused, or a plain file."""
    (tmp_path / "a.tar.gz").write_bytes(tar_of({"link": b""}, type=tarfile.SYMTYPE, linkname="/etc"))
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc")
    with pytest.raises(DownloadError, match="link"):
        unpack(tmp_path / "a.tar.gz", tmp_path)
    unpack(tmp_path / "a.zip", tmp_path)
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_damaged_archive(tmp_path, name):
    """An archive that is truncated, or no archive at all, gives an error that names it."""
    whole = zip_of({"x": CONTENT}) if name == "a.zip" else tar_of({"x": CONTENT})
    for data in (whole[:500_000], b"<html>not found</html>", b""):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DownloadError, match=f"{name} is not a complete archive"):
            unpack(tmp_path / name, tmp_path)


# --- data sets ---------------------------------------------------------------------------------------------


@pytest.fixture
def library(site, tmp_path, monkeypatch):
    """Two data sets on the test server: an archive with a known checksum, and a plain file without one."""
    site.content["/texts.zip"] = zip_of({"t/train.txt": b"one text\n\ntwo texts", "t/dev.txt": b"a third"})
    site.content["/plain.txt"] = b"a plain text"
    base = site.url.removesuffix("/file")
    packed = Remote(f"{base}/texts.zip", sha256(site.content["/texts.zip"]), len(site.content["/texts.zip"]))
    texts = Dataset("About texts", "CC0", (packed,), {"train": "*/train.txt", "validation": "*/dev.txt"})
    monkeypatch.setitem(DATASETS, "texts", texts)
    monkeypatch.setitem(DATASETS, "plain", Dataset("About it", "CC0", (Remote(f"{base}/plain.txt"),), {}))
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "data"


def test_a_data_set_is_fetched_once(site, library, capsys):
    """`data get` unpacks it, prints where, and finds it there the second time; it can be read by name."""
    data_get(["texts"])
    assert capsys.readouterr().out == f"texts: 2 files in {library / 'texts'}\n"
    data_get(["texts"])
    assert "(already installed)" in capsys.readouterr().out and len(site.seen) == 1
    assert [text for text, _ in read("texts", Report())] == ["one text", "two texts"]
    assert [text for text, _ in read("texts:validation", Report())] == ["a third"]
    assert sorted(path.name for path in library.iterdir()) == [".texts.lock", "texts", "texts.json"]


def test_trust_on_first_use(site, library):
    """Without a known checksum, that of the first download is recorded; different content later is refused, with
    advice."""
    assert (get("plain") / "plain.txt").read_bytes() == b"a plain text"
    site.content["/plain.txt"] = b"a forged text"
    with pytest.raises(DownloadError, match=r"has sha256 .*delete plain\.json"):
        get("plain", force=True)
    assert (library / "plain" / "plain.txt").read_bytes() == b"a plain text" and installed("plain")
    (library / "plain.json").unlink()
    assert (get("plain", force=True) / "plain.txt").read_bytes() == b"a forged text"


def test_a_failure_leaves_the_old_one(site, library):
    """The old version stays until the new one is complete and correct; nothing half-finished is left behind."""
    get("texts")
    site.plan = [("status", 404)]
    with pytest.raises(DownloadError, match="404"):
        get("texts", force=True)
    assert installed("texts")
    assert sorted(path.name for path in library.iterdir()) == [".texts.lock", "texts", "texts.json"]


def test_a_full_disk_while_unpacking(site, library, monkeypatch):
    """The error is one clear line, and no half-unpacked folder is left."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(DownloadError, match="the disk is full, cannot install texts"):
        get("texts")
    assert not (library / "texts").exists() and not installed("texts")
    monkeypatch.undo()


def test_a_file_where_the_cache_should_be(site, library, tmp_path, monkeypatch):
    """The error names the file, and the variable to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot create the folder .*: .*file is a file; set MINI_BERT_HOME to another"):
        get("texts")


def test_names_that_are_not_there(library):
    """An unknown name gets a suggestion before anything is downloaded; for a data set that is not installed, the error
    says how to get it."""
    with pytest.raises(ValueError, match=r"no data set named 'wikitext2'\. Did you mean wikitext-2\?"):
        data_get(["texts", "wikitext2"])
    assert not library.exists()
    with pytest.raises(FileNotFoundError, match="texts is not installed; download it: `mini-bert data get texts`"):
        list(read("texts"))
    get("texts")
    get("plain")
    with pytest.raises(ValueError, match="has no part 'tset'; expected train, validation"):
        corpus_files("texts:tset")
    with pytest.raises(ValueError, match="plain is a labelled data set, not a text corpus"):
        list(read("plain"))


def test_two_processes_take_turns(site, library):
    """If two processes fetch the same data set at once, one downloads it, and the other waits and finds it."""
    site.plan = [("slow", 0.3)]
    results = []
    threads = [threading.Thread(target=lambda: results.append(get("texts"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [library / "texts"] * 2 and len(site.seen) == 1 and installed("texts")


def test_a_waiting_process_says_so(site, library, capsys):
    """While another process downloads, `get` says what it is waiting for; if that process dies, it continues."""
    library.mkdir(parents=True)
    code = (
        "import sys, time\nfrom filelock import FileLock\n"
        "with FileLock(sys.argv[1]):\n  print('held', flush=True)\n  time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(library / ".texts.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline().strip() == b"held"
        threading.Timer(0.3, holder.kill).start()
        get("texts")
    assert "waiting: another process is downloading texts" in capsys.readouterr().out


def test_the_list(library, capsys):
    """Every data set is listed with its size, how it is checked, and whether it is installed."""
    get("texts")
    capsys.readouterr()
    data_list()
    shown = capsys.readouterr().out
    for name in DATASETS:
        assert name in shown
    assert re.search(r"^texts .* pinned +installed +About", shown, re.M) and re.search(
        r"^plain .* first use +About", shown, re.M
    )
    assert str(library) in shown


def test_the_table():
    """Addresses are https, checksums are sha256, and no file name occurs twice in a set."""
    for name, dataset in DATASETS.items():
        assert re.fullmatch("[a-z0-9-]+", name) and dataset.about and dataset.licence
        assert len({remote.name for remote in dataset.files}) == len(dataset.files) > 0
        for remote in dataset.files:
            assert remote.url.startswith("https://")
            assert remote.sha256 is None or (re.fullmatch("[0-9a-f]{64}", remote.sha256) and remote.size)


SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "file", "copy"),
    [
        ("squad", "dev-v1.1.json", "qa/squad_dev-v1.1.json.gz"),
        ("ud-ewt", "en_ewt-ud-train.conllu", "ud_ewt/en_ewt-ud-train.conllu.gz"),
    ],
)
def test_checksums_against_copies(name, file, copy):
    """Where a byte-identical copy of a published file is available, its size and sha256 match the table."""
    import gzip

    data = gzip.decompress((SHARED / copy).read_bytes())
    (remote,) = (remote for remote in downloads.DATASETS[name].files if remote.name == file)
    assert (remote.sha256, remote.size) == (sha256(data), len(data))
