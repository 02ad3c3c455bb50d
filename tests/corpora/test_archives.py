"""Texts in .zip and .tar archives: the same passages as from a folder, nothing written, nothing followed, no bombs."""

import gzip
import io
import os
import stat
import tarfile
import zipfile

import pytest

from mini_bert.corpora import archives
from mini_bert.corpora.formats import format_of
from mini_bert.corpora.reading import Report, identity, read

FILES = {
    "b/two.jsonl": b'{"text": "Second."}\n',
    "a.txt": b"First.\n\nAnd more.\n",
    "c.csv.gz": gzip.compress(b"text,label\nThird.,1\n"),
    "d.md": b"Fourth.\n",
}
TEXTS = ["First.", "And more.", "Second.", "Third.", "Fourth."]


def zipped(path, files=FILES, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path, files=FILES, mode="w", entries=()):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in entries:
            archive.addfile(entry)
    return path


def texts(path, report=None):
    return [text for text, _ in read(path, report if report is not None else Report())]


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz", "tar.xz", "tar.bz2"])
def test_an_archive_is_read_like_a_folder(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    if ending == "zip":
        zipped(path)
    else:
        tarred(path, mode={"tar": "w", "tgz": "w:gz"}.get(ending, f"w:{ending[4:]}"))
    report = Report()
    assert format_of(path.name) == "archive" and sorted(texts(path, report)) == sorted(TEXTS)
    assert report.clean and report.documents == 5 and os.listdir(tmp_path) == [path.name]
    assert texts(tmp_path) == texts(path) == texts(path)  # also in a folder, and in the same order each time
    before = identity(path)
    zipped(path, {"a.txt": b"Other."})
    assert identity(path) != before


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_in_a_zip(method, tmp_path):
    assert sorted(texts(zipped(tmp_path / "a.zip", method=method))) == sorted(TEXTS)


def test_a_zip_is_sorted_and_a_column_can_be_chosen(tmp_path):
    path = zipped(tmp_path / "a.zip", {"b.csv": b"x,y\n1,two\n", "a.csv": b"x,y\n3,four\n"})
    assert texts(f"{path}::y") == ["four", "two"]


def test_what_is_skipped_in_a_zip_is_reported(tmp_path):
    link = zipfile.ZipInfo("link.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    skipped = {
        **{"../up.txt": b"x", "/etc/passwd.txt": b"x", "c:\\x.txt": b"x", ".hidden.txt": b"x", "__MACOSX/a.txt": b"x"},
        **{"cat.png": b"x", "inner.zip": b"x", "inner.tar.gz": b"x", "p.parquet": b"PAR1", "binary.txt": bytes(999)},
        **{link: b"/etc/passwd", "twice.txt.gz": gzip.compress(gzip.compress(b"Deep."))},
    }
    report = Report()
    assert texts(zipped(tmp_path / "a.zip", {"a.txt": b"Good.", **skipped}), report) == ["Good."]
    assert sum(remark.count for what, remark in report.remarks.items() if "skipped" in what) == len(skipped)
    said = str(report)
    for what in ("leads out of the archive: 3", "hidden: 2", "an archive in an archive: 2", "not text: 1", "twice: 1"):
        assert f"{what} (first in" in said
    assert "not a regular file: 1 (first in" in said and "link.txt" in said


def test_encrypted_members_are_skipped(tmp_path):
    path = zipped(tmp_path / "a.zip", {"a.txt": b"Good.", "b.txt": b"Secret."}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02")  # b.txt in the central directory; its flags follow 8 bytes on
    content[place + 8] |= 1
    path.write_bytes(content)
    report = Report()
    assert texts(path, report) == ["Good."] and "skipped, encrypted: 1" in str(report)


def test_links_and_devices_in_a_tar_are_skipped(tmp_path):
    def entry(kind, name="x.txt", target=""):
        one = tarfile.TarInfo(name)
        one.type, one.linkname = kind, target
        return one

    odd = [
        entry(tarfile.SYMTYPE, target="/etc/passwd"), entry(tarfile.LNKTYPE, target="a.txt"), entry(tarfile.FIFOTYPE),
        entry(tarfile.CHRTYPE), entry(tarfile.BLKTYPE), entry(tarfile.REGTYPE, "../up.txt"),
        entry(tarfile.DIRTYPE, "d"),
    ]  # fmt: skip
    report = Report()
    assert texts(tarred(tmp_path / "a.tar", {"a.txt": b"Good."}, entries=odd), report) == ["Good."]
    assert "not a regular file: 5" in str(report) and "leads out of the archive: 1" in str(report)


@pytest.mark.parametrize("kind", ["zip", "tar", "gz in zip", "gz in tar"])
def test_a_bomb_is_refused(kind, tmp_path, monkeypatch):
    """A thousand times its size in content: an error that says so, before much of it is read."""
    monkeypatch.setattr(archives, "SMALL", 1 << 20)
    content = b"a bomb " * (1 << 20)
    path = tmp_path / ("a.zip" if "zip" in kind else "a.tar.xz")
    if kind == "zip":
        zipped(path, {"a.txt": content})
    elif kind == "tar":
        tarred(path, {"a.txt": content}, "w:xz")
    else:
        files = {"a.txt.gz": gzip.compress(content)}
        zipped(path, files) if "zip" in kind else tarred(path, files, "w:xz")
    with pytest.raises(ValueError, match=r"is a decompression bomb: [\d,]+ bytes of it have more than"):
        texts(path)


def test_ordinary_repetition_is_no_bomb(tmp_path):
    assert len(texts(zipped(tmp_path / "a.zip", {"a.txt": b"Again.\n\n" * 100_000}))) == 100_000


@pytest.mark.parametrize(("ending", "mode"), [("zip", ""), ("tar", "w"), ("tar.gz", "w:gz"), ("tar.xz", "w:xz")])
def test_damaged_archives_are_named(ending, mode, tmp_path):
    """Cut anywhere, an archive is an error or reported; nothing is lost silently, and nothing else is raised."""
    path = tmp_path / f"a.{ending}"
    files = {f"{number}.txt": os.urandom(300).hex().encode() for number in range(5)}
    content = (tarred(path, files, mode) if mode else zipped(path, files)).read_bytes()
    for size in range(0, min(len(content), 5 * 1536), 97):
        path.write_bytes(content[:size])
        report = Report()
        try:
            texts(path, report)
        except ValueError as error:
            assert f"a.{ending}" in str(error)
        else:
            assert not report.clean, size
    path.write_bytes(b"This is not an archive at all. " * 99)
    with pytest.raises(ValueError, match=rf"a\.{ending}"):
        texts(path)
