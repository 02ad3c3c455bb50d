"""Reading corpora: every format gives the same documents, memory stays bounded, and nothing is lost silently."""

import bz2
import dataclasses
import doctest
import gzip
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.cli.text import data_show
from mini_bert.common.extras import MissingExtra
from mini_bert.corpora import decoding, downloads, formats
from mini_bert.corpora import reading as corpora
from mini_bert.corpora.decoding import NotText
from mini_bert.corpora.reading import (
    Passage,
    Report,
    identity,
    read,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "pretrain"
TEXTS = ['First, a "quoted" one; with signs.', "Zweiter Text: äöü ß\nmit zwei Zeilen", "第三 text 🙂 end"]


def documents(source, report=None, **options):
    """The documents of a source, with their passages joined."""
    found: list[list[str]] = []
    for text, first in read(source, report or Report(), **options):
        if first:
            found.append([])
        found[-1].append(text)
    return ["\n".join(parts) for parts in found]


def zstd(data):
    return pytest.importorskip("zstandard").compress(data)


PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}
BODIES = {
    ".txt": "\n\n".join(TEXTS),
    ".jsonl": "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)),
    ".csv": "id,text\n" + "".join(f'{i},"{text.replace(chr(34), chr(34) * 2)}"\n' for i, text in enumerate(TEXTS)),
    ".tsv": "id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS) if "\n" not in text),
}


# --- formats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("ending", BODIES)
def test_every_format_gives_the_same_documents(tmp_path, ending, packing):
    """.txt, .jsonl, .csv and .tsv, plain or compressed, give the same documents; clean files give a clean report."""
    path = tmp_path / f"a{ending}{packing}"
    path.write_bytes(PACKERS[packing](BODIES[ending].encode()))
    report = Report()
    expected = [text for text in TEXTS if ending != ".tsv" or "\n" not in text]
    assert documents(path, report) == expected
    assert (report.files, report.documents) == (1, len(expected)) and report.clean
    assert report.characters == sum(map(len, expected))


def test_parquet(tmp_path):
    """A Parquet column of text with a null and with bytes that are not UTF-8; both are reported."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = arrow.array([*TEXTS, None]).cast(arrow.binary())
    parquet.write_table(arrow.table({"id": [1, 2, 3, 4], "Text": texts.cast(arrow.string())}), tmp_path / "a.parquet")
    report = Report()
    assert documents(tmp_path / "a.parquet", report) == TEXTS
    assert "without text in the chosen column: left out: 1" in str(report) and "row 4" in str(report)
    parquet.write_table(arrow.table({"text": arrow.array([b"a\xffb"])}), tmp_path / "b.parquet")
    assert documents(tmp_path / "b.parquet", report) == ["a\ufffdb"]
    with pytest.raises(ValueError, match=r"no column 'body'; it has 'id', 'Text'"):
        documents(f"{tmp_path / 'a.parquet'}::body")
    (tmp_path / "c.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"c\.parquet is not a complete Parquet file"):
        documents(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a\nb\n\nc", ["a\nb", "c"]),
        ("\n\n a\n \t \n\n\nb\n\n", ["a", "b"]),
        ("a\r\nb\r\n\r\nc\r\n", ["a\nb", "c"]),
        ("a\rb\r\rc", ["a\nb", "c"]),
        ("one line, no end", ["one line, no end"]),
    ],
)
def test_an_empty_line_ends_a_document(tmp_path, body, expected):
    """Lines end in \\n, \\r\\n or \\r; a line of white space counts as empty; documents are stripped of white space."""
    (tmp_path / "a.txt").write_bytes(body.encode())
    assert documents(tmp_path / "a.txt") == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_is_believed(tmp_path, encoding):
    """A byte order mark determines the Unicode encoding. It is dropped and reported."""
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "a.txt").write_bytes(mark + "Käse 🙂\r\n\r\nzwei".encode(encoding))
    report = Report()
    assert documents(tmp_path / "a.txt", report) == ["Käse 🙂", "zwei"]
    assert "byte order mark of UTF-" in str(report)


def test_compression_is_known_by_content(tmp_path):
    """A compressed file without the extension is decompressed; one with the extension but other content is refused."""
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"text", mtime=0))
    assert documents(tmp_path / "a.txt") == ["text"]
    (tmp_path / "a.txt.gz").write_bytes(b"text")
    with pytest.raises(ValueError, match=r"a\.txt\.gz is not a gzip file.*first bytes are b'text'"):
        documents(tmp_path / "a.txt.gz")
    (tmp_path / "a.txt.gz").write_bytes(b"")
    with pytest.raises(ValueError, match="it is empty"):
        documents(tmp_path / "a.txt.gz")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
def test_compressed_files_may_be_joined(tmp_path, packing):
    """`cat a.gz b.gz > c.gz` gives a gzip file of both, also with trailing zeros."""
    data = PACKERS[packing](b"one\n\n") + PACKERS[packing](b"two") + (b"\0" * 512 if packing in (".gz", ".xz") else b"")
    (tmp_path / f"a.txt{packing}").write_bytes(data)
    assert documents(tmp_path / f"a.txt{packing}") == ["one", "two"]


# --- columns -----------------------------------------------------------------------------------------------


def test_the_text_column_is_found_or_chosen(tmp_path):
    """The column is found by a usual name in upper or lower case, or chosen by `path::column` or by keyword."""
    path = tmp_path / "a.csv"
    path.write_text("Title,TEXT,note\nt,x,n\n")
    assert documents(path) == ["x"]
    assert documents(f"{path}::note") == ["n"] and documents(path, column="Title") == ["t"]
    with pytest.raises(ValueError, match=r"no column 'body'; it has 'Title', 'TEXT', 'note'. Choose one: .*::NAME"):
        documents(f"{path}::body")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column with a usual name.*it has 'a', 'b'"):
        documents(path)


def test_a_table_without_header(tmp_path):
    """A number chooses a column, counted from 1, and means that the first row is data."""
    (tmp_path / "a.csv").write_text("1,first row\n2,second row\n")
    assert documents(f"{tmp_path / 'a.csv'}::2") == ["first row", "second row"]
    for wrong in ("0", "3"):
        with pytest.raises(ValueError, match=f"no column '{wrong}'"):
            documents(f"{tmp_path / 'a.csv'}::{wrong}")


def test_csv_as_people_write_it(tmp_path):
    """Semicolons are recognised from the header; quoted fields may contain line breaks and have any length; short rows
    are counted."""
    long = "word " * 60_000
    (tmp_path / "a.csv").write_text(f'id;text\n1;"two\nlines"\n2\n3;{long}\n', newline="")
    report = Report()
    assert documents(tmp_path / "a.csv", report) == ["two\nlines", long.strip()]
    assert "rows without the chosen column: left out: 1" in str(report) and "line 4" in str(report)


def test_commas_in_a_text_without_quotation_marks(tmp_path):
    """In the last column, the text is joined again; elsewhere this is not possible, and it is reported."""
    report = Report()
    (tmp_path / "a.csv").write_text("text\nHello, dear world\nNo comma here,\n")
    assert documents(tmp_path / "a.csv", report) == ["Hello, dear world", "No comma here"]
    assert "rows with more fields than the header: is a separator in a text not quoted?: 1" in str(
        report
    ) and "line 2" in str(report)
    (tmp_path / "a.csv").write_text("id;text\n1;one; two;three\n2;four;\n")
    assert documents(tmp_path / "a.csv", Report()) == ["one; two;three", "four"]
    (tmp_path / "a.tsv").write_text('id\ttext\n1\tone\t"two\n')
    assert documents(tmp_path / "a.tsv", Report()) == ['one\t"two']
    report = Report()
    (tmp_path / "a.csv").write_text("text,id\nHello, dear world,1\nFine,2,\n")
    assert documents(tmp_path / "a.csv", report) == ["Hello", "Fine"]
    assert "a text not quoted?: 1" in str(report)


def test_a_quotation_mark_that_never_closes(tmp_path):
    """Everything after it is one field. This is reported."""
    (tmp_path / "a.csv").write_text('id,text\n1,fine\n2,"open\n3,swallowed\n')
    report = Report()
    assert documents(tmp_path / "a.csv", report) == ["fine", "open\n3,swallowed"]
    assert "quotation marks that never close" in str(report)


def test_a_runaway_quotation_stops_at_the_limit(tmp_path, monkeypatch):
    """An open quotation cannot fill the memory: the length of a field is limited, and the error says what to
    look for."""
    import csv

    limit = csv.field_size_limit()
    monkeypatch.setattr(formats, "LONGEST_RECORD", 100)
    csv.field_size_limit(100)
    try:
        (tmp_path / "a.csv").write_text('text\n"' + "line\n" * 100)
        with pytest.raises(ValueError, match=r"a\.csv, line \d+: cannot be read as a CSV .*never closed"):
            documents(tmp_path / "a.csv")
    finally:
        csv.field_size_limit(limit)


def test_json_lines_of_all_sorts(tmp_path):
    """Objects, bare strings and lists of paragraphs are read; records without text are counted, with the line."""
    rows = [{"text": "one"}, {"text": ["two", "lines"]}, "bare", {"text": None}, {"other": 1}, {"text": " "}, 7]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n{broken\n")
    report = Report()
    with pytest.raises(ValueError, match="5 of the first 8 lines are not JSON with text"):
        documents(tmp_path / "a.jsonl", report)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows[:4] + rows[5:6])) + "\n{broken\n")
    report = Report()
    assert documents(tmp_path / "a.jsonl", report) == ["one", "two\nlines"]
    assert "without text in the chosen column: left out: 2" in str(report) and "line 3" in str(report)
    assert "not JSON: left out: 1" in str(report) and "line 6" in str(report)
    assert "records of empty text: left out: 1" in str(report)


def test_bare_strings_are_documents(tmp_path):
    """A file of JSON strings needs no column."""
    (tmp_path / "a.jsonl").write_text('"one"\n"two"\n')
    assert documents(tmp_path / "a.jsonl") == ["one", "two"]


def test_mostly_broken_json_is_an_error(tmp_path):
    """A few broken lines are counted; if most are broken, the file is something else, and reading stops early."""
    good, broken = json.dumps({"text": "fine"}) + "\n", '{"text": "cut of\n'
    (tmp_path / "a.jsonl").write_text(good * 3 + broken + good)
    report = Report()
    assert documents(tmp_path / "a.jsonl", report) == ["fine"] * 4
    assert "lines that are not JSON: left out: 1" in str(report) and "a.jsonl, line 4" in str(report)
    (tmp_path / "b.jsonl").write_text("plain text\n" * 1000)
    with pytest.raises(ValueError, match=r"b\.jsonl: 100 of the first 100 lines are not JSON.*name it \.txt"):
        documents(tmp_path / "b.jsonl")


def test_json_can_say_what_text_cannot(tmp_path):
    """Escaped NULs and lone surrogates are repaired, so every passage can be encoded again."""
    (tmp_path / "a.jsonl").write_text('{"text": "a\\u0000b \\ud800 \\ud83d\\ude42"}\n')
    report = Report()
    assert documents(tmp_path / "a.jsonl", report) == ["ab \ufffd 🙂"]
    assert "NUL bytes: dropped: 1" in str(report) and "not Unicode: replaced by U+FFFD: 1" in str(report)


def test_a_json_document_is_not_json_lines(tmp_path):
    """One JSON document over many lines gives an error, not a corpus of brackets."""
    (tmp_path / "a.json").write_text('{\n "data": []\n}\n')
    with pytest.raises(ValueError, match="is one JSON document, expected JSON lines"):
        documents(tmp_path / "a.json")


# --- what is wrong with files ------------------------------------------------------------------------------


def test_invalid_utf8_is_replaced_and_counted(tmp_path):
    """Each invalid sequence becomes U+FFFD. The report has their number, the file, and the position of the first."""
    (tmp_path / "a.txt").write_bytes(b"gut " * 100 + b"sch\xfcn \xff caf\xe9 \xef\xbf\xbd" + b" word" * 50)
    report = Report()
    (text,) = documents(tmp_path / "a.txt", report)
    assert text.count("\ufffd") == 4  # the last one was there before
    assert "not UTF-8: replaced by U+FFFD: 3" in str(report) and "a.txt, byte 403" in str(report)


@given(
    st.lists(
        st.sampled_from(
            [b"word ", "é".encode(), "第".encode(), "🙂".encode(), b"\xff", b"\xf0\x9f", b"\0", b"\xef\xbf\xbd"]
        ),
        max_size=40,
    ),
    st.integers(1, 9),
)
@settings(max_examples=100, deadline=None)
def test_decoding_in_blocks_is_decoding(parts, block):
    """However the bytes are split into blocks, the text is that of `bytes.decode`, and every repair is counted once."""
    data = b"plain beginning of a text that is long enough " * 30 + b"".join(parts)
    counted = {"U+FFFD": 0, "NUL": 0}
    places = []

    def note(what, name, place, count):
        counted["NUL" if "NUL" in what else "U+FFFD"] += count
        places.append(place)

    blocks = (data[i : i + block] for i in range(0, len(data), block))
    text = "".join(decoding.decoded(blocks, "x", note))
    whole = data.decode("utf-8", "replace")
    assert text == whole.replace("\0", "")
    assert counted["NUL"] == data.count(0)
    assert counted["U+FFFD"] == whole.count("\ufffd") - data.decode("utf-8", "ignore").count("\ufffd")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        assert f"byte {error.start:,}" in places


def test_nul_bytes_are_dropped_and_counted(tmp_path):
    """NUL bytes belong to no alphabet. The words around them stay."""
    (tmp_path / "a.txt").write_bytes(b"one\0two " * 3 + b"and a longer text without any " * 5)
    report = Report()
    assert documents(tmp_path / "a.txt", report)[0].startswith("onetwo onetwo onetwo and")
    assert "NUL bytes: dropped: 3" in str(report) and "a.txt, byte 3" in str(report)


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_a_line_of_any_length(tmp_path, packing):
    """A line of 30 million characters becomes passages, cut at white space and counted, with little memory."""
    path = tmp_path / f"a.txt{packing}"
    with gzip.open(path, "wb", 1) if packing else open(path, "wb") as file:
        for _ in range(30):
            file.write(b"some word " * 100_000)
    report, words, longest = Report(), 0, 0
    tracemalloc.start()
    for number, (text, first) in enumerate(read(path, report)):
        words += text.count("some") + text.count("word")
        longest = max(longest, len(text))
        assert first == (number == 0) and text.startswith(("some", "word")) and text.endswith(("some", "word"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words == 6_000_000 and longest <= formats.PASSAGE
    assert report.documents == 1 and re.search(r"cuts in lines of .* characters: 28", str(report))
    assert peak < 12_000_000, f"{peak:,} bytes"


def test_a_word_of_any_length(tmp_path):
    """Text without white space is cut anyway, and the report says so."""
    (tmp_path / "a.txt").write_bytes(b"a" * 3_000_000)
    report = Report()
    passages = list(read(tmp_path / "a.txt", report))
    assert "".join(text for text, _ in passages) == "a" * 3_000_000 and len(passages) == 3
    assert "cuts in lines" in str(report)


def test_a_record_too_long_for_memory(tmp_path, monkeypatch):
    """A JSON line has to fit into memory: one beyond the limit is left out, with its line number."""
    monkeypatch.setattr(formats, "LONGEST_RECORD", 1000)
    rows = [{"text": "short"}, {"text": "long " * 300}, {"text": "short again"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = Report()
    assert documents(tmp_path / "a.jsonl", report) == ["short", "short again"]
    assert "lines of more than 1,000 characters: left out: 1" in str(report) and "line 2" in str(report)


@given(st.text(st.sampled_from("ab \n\té🙂"), max_size=200), st.integers(1, 7), st.integers(2, 20))
@settings(max_examples=150, deadline=None)
def test_cutting_loses_nothing(text, block, passage):
    """Whatever the block and passage sizes, every letter is kept in order, and documents end at empty lines."""
    limit, formats.PASSAGE = formats.PASSAGE, passage
    try:
        blocks = (text[i : i + block] for i in range(0, len(text), block))
        found = list(formats.text_passages(blocks, "x", lambda *_: None))
    finally:
        formats.PASSAGE = limit
    assert all(len(piece.text) <= passage and piece.text == piece.text.strip() != "" for piece in found)
    joined: list[str] = []
    for piece in found:
        if piece.first:
            joined.append("")
        joined[-1] += "".join(piece.text.split())
    assert joined == ["".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


BINARIES = {
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
    "noise": zlib.compress(os.urandom(5000), 0),
    "program": b"\x7fELF" + b"\0\1\2" * 2000,
    "zeros": bytes(5000),
    "pdf": b"%PDF-1.4\nthis looks like text for quite a while",
    "zip": b"PK\x03\x04" + os.urandom(100),
    "russian in cp1251": "Не всё то золото, что блестит. ".encode("cp1251") * 30,
    "utf-16 without a mark": "plain English, but two bytes a letter".encode("utf-16-le") * 5,
}


@pytest.mark.parametrize("kind", BINARIES)
def test_binary_files(tmp_path, kind):
    """Binary files are recognised by content: an error if named directly, skipped and reported in a folder."""
    (tmp_path / "x.txt").write_bytes(BINARIES[kind])
    (tmp_path / "fine.txt").write_text("fine")
    with pytest.raises(NotText, match=r"x\.txt (is .*not text|is not UTF-8 text)"):
        documents(tmp_path / "x.txt")
    for source in (tmp_path, str(tmp_path / "*.txt")):
        report = Report()
        assert documents(source, report) == ["fine"]
        assert report.files == 1 and "skipped, not text: 1" in str(report) and "x.txt" in str(report)


def test_no_text_at_all(tmp_path):
    """An empty file is reported; if there is nothing else, it is an error. So is a folder without text."""
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no text in .*empty\.txt.*files without text: 1"):
        documents(tmp_path / "empty.txt")
    (tmp_path / "white.txt").write_bytes(b" \n\n\t ")
    with pytest.raises(ValueError, match=r"files without text: 2"):
        documents(tmp_path)
    (tmp_path / "b.txt").write_text("text")
    report = Report()
    assert documents(tmp_path, report) == ["text"] and "files without text: 2" in str(report)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "cat.png").write_bytes(BINARIES["picture"])
    with pytest.raises(ValueError, match=r"no text in .*pictures.*skipped, \.png is not a known type.*cat\.png"):
        documents(tmp_path / "pictures")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 1])
def test_a_compressed_file_cut_short(tmp_path, packing, share):
    """Wherever the file ends, an error names it and how much was read; it never just ends silently."""
    path = tmp_path / f"a.txt{packing}"
    whole = PACKERS[packing](b"".join(b"line %d of a text\n" % i for i in range(20_000)))
    path.write_bytes(whole[: max(10, int(len(whole) * share) - 1)])
    size = path.stat().st_size
    with pytest.raises(ValueError, match=rf"a\.txt\{packing} is truncated.*ends after {size:,} bytes .*decompressed"):
        documents(path)


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
def test_a_damaged_compressed_file(tmp_path, packing):
    """Flipped bytes in the middle or garbage after the end give an error that names file and position."""
    path = tmp_path / f"a.txt{packing}"
    whole = PACKERS[packing](b"".join(b"line %d of a text\n" % (i * i) for i in range(20_000)))
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(255 - byte for byte in whole[middle : middle + 50]) + whole[middle + 50 :])
    with pytest.raises(ValueError, match=rf"a\.txt\{packing}: its \w+ data is damaged after [\d,]+ bytes|cut short"):
        documents(path)
    path.write_bytes(whole + b"and something else behind it, long enough to be noticed")
    with pytest.raises(ValueError, match=r"is damaged after [\d,]+ bytes"):
        documents(path)


@pytest.mark.parametrize("change", ["grows", "shrinks", "is replaced", "disappears"])
def test_a_file_that_changes_while_it_is_read(tmp_path, change):
    """Its size and time before and after differ: an error, because it is unclear what was read."""
    path = tmp_path / "a.txt"
    path.write_text("one document\n\n" * 50_000)
    passages = read(path, Report())
    next(passages)
    if change == "grows":
        with open(path, "a") as file:
            file.write("more")
    elif change == "shrinks":
        os.truncate(path, 1000)
    elif sys.platform == "win32":
        pytest.skip("Windows does not let an open file go")
    elif change == "is replaced":
        (tmp_path / "new").write_text("another text")
        os.replace(tmp_path / "new", path)
    else:
        path.unlink()
    match = "disappeared while" if change == "disappears" else r"changed while it was read: it had 700,000 bytes"
    with pytest.raises(ValueError, match=match):
        list(passages)


def test_permission_denied(tmp_path, monkeypatch):
    """An unreadable file is an error if named directly, skipped and reported in a folder."""
    (tmp_path / "a.txt").write_text("open")
    (tmp_path / "secret.txt").write_text("closed")
    true_open = open

    def refusing(path, *rest, **options):
        if str(path).endswith("secret.txt"):
            raise PermissionError(13, "Permission denied", str(path))
        return true_open(path, *rest, **options)

    monkeypatch.setattr("builtins.open", refusing)
    with pytest.raises(PermissionError, match=r"no permission to read this file.*secret\.txt"):
        documents(tmp_path / "secret.txt")
    report = Report()
    assert documents(tmp_path, report) == ["open"]
    assert f"skipped, permission denied: 1 (first in {(tmp_path / 'secret.txt').as_posix()})" in str(report)
    identity(tmp_path)


def test_missing_extras_are_named(tmp_path, monkeypatch):
    """Without zstandard or pyarrow, the one-line error has the command that installs it. In a folder, the file is
    skipped and reported with that command, and the identity of the corpus changes once the package is there."""
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")

    def missing(name):
        raise ImportError(name)

    with monkeypatch.context() as patch:
        patch.setattr(
            decoding, "import_module", lambda name: SimpleNamespace(ZstdDecompressor=None, ZstdError=ValueError)
        )
        installed = identity(tmp_path)
    monkeypatch.setattr(decoding, "import_module", missing)
    monkeypatch.setattr("mini_bert.common.extras.import_module", missing)
    monkeypatch.setattr(sys, "executable", "/a folder/python")
    install = r"'/a folder/python' -m pip install" if os.name != "nt" else r'"/a folder/python" -m pip install'
    with pytest.raises(MissingExtra, match=rf"zstd.*Install it: {install} zstandard$"):
        documents(tmp_path / "a.txt.zst")
    with pytest.raises(ValueError, match=rf"a\.parquet is a Parquet file.*Install it: {install} pyarrow$"):
        documents(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=rf"no text in .*zstandard is not installed, and `{install} zstandard` inst"):
        documents(tmp_path)
    (tmp_path / "b.txt").write_text("plain")
    report = Report()
    assert documents(tmp_path, report) == ["plain"]
    assert re.search(
        rf"skipped, pyarrow is not installed, and `{install} pyarrow` installs it: 1 \(.*a\.parq", str(report)
    )
    (tmp_path / "b.txt").unlink()
    assert identity(tmp_path) != installed


def test_another_encoding_is_converted_by_a_command_that_can_be_copied(tmp_path):
    """Text in Latin-1 is an error, or repaired and counted; in both cases the suggested command contains the
    file name."""
    command = r"iconv -f LATIN1 -t UTF-8 \S*a\.txt > \S*a\.utf8\.txt$"
    (tmp_path / "a.txt").write_bytes("äöü ".encode("latin-1") * 300)
    with pytest.raises(NotText, match=f"such as LATIN1, convert it: {command}"):
        documents(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes("plain words and a café ".encode("latin-1") * 100)
    report = Report()
    documents(tmp_path / "a.txt", report)
    assert re.search(f"such as Latin-1: {command}", str(report))
    (tmp_path / "a.txt").write_bytes("two bytes a letter ".encode("utf-16-be") * 100)
    with pytest.raises(NotText, match=r"iconv -f UTF-16BE -t UTF-8 \S*a\.txt > "):
        documents(tmp_path / "a.txt")
    assert decoding.conversion("a.txt.gz") == "decompress it, then iconv -f LATIN1 -t UTF-8 a.txt > a.utf8.txt"
    assert decoding.conversion(decoding.STANDARD_INPUT) == "... | iconv -f LATIN1 -t UTF-8 | ..."


# --- sources -----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a.txt", "b/c/x.jsonl", "B.md", "wiki_00"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "x.jsonl"}' if name.endswith("jsonl") else path.name)
    (tmp_path / "tree" / ".hidden.txt").write_text("hidden")
    (tmp_path / "tree" / "page.html").write_text("<p>")
    return tmp_path / "tree"


def test_folders_are_read_in_one_order(tree):
    """Folders are read recursively, sorted by path; hidden files and other types are skipped and reported."""
    report = Report()
    assert documents(tree, report) == ["B.md", "a.txt", "1.txt", "2.txt", "x.jsonl", "wiki_00"]
    assert report.files == 6
    assert "skipped, hidden: 1" in str(report) and ".html is not a known type of text file" in str(report)


def test_patterns_and_lists(tree):
    """A pattern is sorted; a list keeps its order and may contain repetitions; an empty list or pattern is an error."""
    assert documents(str(tree / "**" / "*.txt")) == ["a.txt", "1.txt", "2.txt"]
    assert documents(str(tree / "b*")) == ["1.txt", "2.txt", "x.jsonl"]
    assert documents([tree / "wiki_00", str(tree / "a.txt"), tree / "a.txt"]) == ["wiki_00", "a.txt", "a.txt"]
    with pytest.raises(FileNotFoundError, match="no file matches"):
        documents(str(tree / "*.nothing"))
    with pytest.raises(ValueError, match="list of sources is empty"):
        documents([])
    (tree / "odd[1].txt").write_text("odd")
    assert documents(str(tree / "odd[1].txt")) == ["odd"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_that_leads_back_up_ends(tree):
    """Linked folders are followed, but only once."""
    (tree / "b" / "up").symlink_to(tree)
    assert documents(tree) == ["B.md", "a.txt", "1.txt", "2.txt", "x.jsonl", "wiki_00"]


@pytest.mark.parametrize(
    "body", [b"one\n\ntwo", b'{"text": "one"}\n{"text": "two"}\n', gzip.compress(b"one\n\ntwo", mtime=0)]
)
def test_standard_input(monkeypatch, body):
    """`-` is standard input: plain text, JSON lines or compressed, recognised by content."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
    assert documents("-") == ["one", "two"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"t,text\n1,one\n")))
    assert documents("-", column="text") == ["one"]


def test_a_table_on_standard_input(monkeypatch):
    """Asked for a column, it is a table, with commas or tabs. Not asked, it is text."""

    def given(text):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    given('id,review\n1,"one, two"\n')
    assert documents("-", column="review") == ["one, two"]
    given('id\treview\n1\t"one" two\n')
    assert documents("-::review") == ['"one" two']
    given("id,review\n1,one\n")
    with pytest.raises(ValueError, match=r"standard input has no column 'text'; it has .* Choose one: --column NAME"):
        documents("-", column="text")
    given("id,review\n1,one\n")
    assert documents("-") == ["id,review\n1,one"]


def test_files_of_a_folder_are_named_with_it(tmp_path):
    """The file name in an error or report can be used as a source; the error explains how to read different columns."""
    (tmp_path / "a.csv").write_text("text,n\none,1\n")
    (tmp_path / "b.jsonl").write_text('{"body_of_it": "two"}\n')
    name = (tmp_path / "b.jsonl").as_posix()
    match = f"Choose one: {re.escape(name)}::NAME .*different columns, list the files, each with its own ::NAME"
    with pytest.raises(ValueError, match=match):
        documents(tmp_path)
    assert documents([f"{tmp_path / 'a.csv'}::text", f"{name}::body_of_it"]) == ["one", "two"]
    (tmp_path / "b.jsonl").write_text('{"text": "two"}\n{broken\n{"text": "three"}\n')
    report = Report()
    documents(tmp_path, report)
    assert f"(first in {name}, line 2)" in str(report)


def test_an_iterator_of_texts(monkeypatch):
    """Each text is a document, read one at a time; the error names an item that is not text; a long text is cut into
    passages."""
    report = Report()
    assert documents(iter(["one", "two\n\nlines", "  "]), report) == ["one", "two\n\nlines"]
    assert str(report) == (
        "2 documents, 13 characters\nrecords of empty text: left out: 1 (first in the iterator, text 2)"
    )
    with pytest.raises(TypeError, match="text 1 of the iterator is a bytes, expected str: b'two'"):
        documents(iter(["one", b"two"]))
    with pytest.raises(ValueError, match="there is no text in the iterator"):
        documents(iter([]))
    monkeypatch.setattr(formats, "PASSAGE", 10)
    assert len(list(read((text for text in ["four words of text"]), Report()))) == 2
    assert identity(iter(["one"])) != identity(iter(["one"]))


@pytest.mark.parametrize("source", [None, 5, b"a.txt", {"a.txt"}, {"a": 1}, [None], ["a.txt", 5]])
def test_what_is_no_source(source):
    """The error comes at once, shows the value, and says what a source is."""
    for function in (read, identity):
        with pytest.raises(
            TypeError, match=r"a (NoneType|int|bytes|set|dict): expected a path .*or an iterator of texts"
        ):
            function(source)


@pytest.mark.parametrize("text", ["The cat sat on the mat. " * 400, "Is it text?\nIt is.", "Only some words"])
def test_texts_in_the_place_of_names(text):
    """If texts are passed as a list or as one str, the error suggests an iterator."""
    for source in (text, [text]):
        with pytest.raises(FileNotFoundError, match=r"^.{1,250} use an iterator: iter\(texts\)\)$"):
            documents(source)


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
def test_a_named_pipe(tmp_path):
    """`<(zcat wiki.gz)` in a shell is a pipe with a path: it is read as data arrives."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "import sys, time\nwith open(sys.argv[1], 'w') as file:\n"
        "  for word in ('on', 'e\\n\\nt', 'wo'): print(word, end='', file=file, flush=True); time.sleep(.02)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(pipe)]):
        assert documents(pipe) == ["one", "two"]


def test_unknown_sources(tmp_path):
    """The error for a missing path names it; a misspelt data set name gets a suggestion."""
    with pytest.raises(FileNotFoundError, match=r"no file, folder or data set .*nowhere\.txt"):
        documents(tmp_path / "nowhere.txt")
    with pytest.raises(FileNotFoundError, match="Did you mean wikitext-2"):
        documents("wikitext2")
    with pytest.raises(ValueError, match="the built-in corpus has no part 'tset'"):
        documents("builtin:tset")


def test_identity(tree):
    """The identity is the same for the same files in any folder, and different if a file is edited, added or read
    differently."""
    before = identity(tree)
    assert before == identity(tree) and re.fullmatch("[0-9a-f]{64}", before)
    moved = tree.parent / "moved"
    shutil.copytree(tree, moved)
    assert identity(moved) == before
    seen = {before, identity(tree, column="body"), identity(tree / "a.txt"), identity([tree, tree])}
    time_ns = (tree / "a.txt").stat().st_mtime_ns
    (tree / "a.txt").write_text("b.txt")  # as long as before, and at the same time
    os.utime(tree / "a.txt", ns=(time_ns, time_ns))
    seen.add(identity(tree))
    os.utime(tree / "a.txt", ns=(time_ns + 10**9, time_ns + 10**9))
    seen.add(identity(tree))
    (tree / "new.txt").write_text("new")
    seen.add(identity(tree))
    assert len(seen) == 7
    assert identity("-") != identity("-")


def test_articles_of_wikitext(tmp_path, monkeypatch):
    """An article is one document, from its title to the next, although its paragraphs are separated by empty lines."""
    path = tmp_path / "wiki.train.raw"
    path.write_text(
        " \n = Gold dollar = \n \n The gold dollar was a coin . \n \n = = Origins = = \n \n At first = it was not . \n"
        " \n = = = More = = = \n \n Some . \n \n \n = A = B = \n \n Another . \n"
    )
    dataset = downloads.DATASETS["wikitext-2"]
    monkeypatch.setitem(downloads.DATASETS, "own", dataset)
    monkeypatch.setattr(downloads, "corpus_files", lambda source: [path])
    passages = list(read("own:train", Report()))
    assert [text for text, first in passages if first] == ["= Gold dollar =", "= A = B ="] and len(passages) == 8
    before = identity("own")
    monkeypatch.setitem(downloads.DATASETS, "own", dataclasses.replace(dataset, begins=None))
    assert all(first for _, first in read("own", Report())) and identity("own") != before
    path.write_text("No title. \n\n = A = \n\n One.")
    monkeypatch.setitem(downloads.DATASETS, "own", dataset)
    assert [first for _, first in read("own", Report())] == [True, True, False]


@pytest.mark.parametrize(("whole", "seen"), [(10_000, 10_000), (9_999, 64 * 50)])
def test_an_edit_that_keeps_size_and_time(tmp_path, monkeypatch, whole, seen):
    """In a small file, every such edit is noticed; in a large one, only at the first byte, the last byte and the
    sampled parts."""
    monkeypatch.setattr("mini_bert.corpora.reading.WHOLE", whole)
    monkeypatch.setattr("mini_bert.corpora.reading.SAMPLE", 50)
    path = tmp_path / "a.txt"
    text = b"a" * 10_000
    path.write_bytes(text)
    os.utime(path, (1, 1))
    before = identity(path)
    counted = []
    for at in [*range(0, 10_000, 101), 9_999]:
        path.write_bytes(text[:at] + b"b" + text[at + 1 :])
        os.utime(path, (1, 1))
        counted.append(identity(path) != before)
    assert counted[0] and counted[-1] and abs(sum(counted) / len(counted) - seen / 10_000) < 0.1


# --- reports -----------------------------------------------------------------------------------------------


def test_without_a_report_there_is_a_warning(tmp_path):
    """Without a report, a warning says what was repaired; clean files give no warning."""
    (tmp_path / "a.txt").write_bytes(b"fine text here, long enough")
    assert list(read(tmp_path / "a.txt")) == [Passage("fine text here, long enough", True)]
    (tmp_path / "a.txt").write_bytes(b"not so fine \xff, but long enough")
    with pytest.warns(UserWarning, match=r"(?s)reading .*a\.txt.*replaced by U\+FFFD: 1"):
        list(read(tmp_path / "a.txt"))


def test_a_report_stays_small(tmp_path):
    """Ten thousand bad files do not fill the memory or the screen: the first few are named, the rest counted."""
    report = Report()
    for number in range(10_000):
        report.note("NUL bytes: dropped", f"{number}.txt", "byte 1", 2)
    text = str(report)
    assert "NUL bytes: dropped: 20,000" in text and "0.txt, byte 1" in text and "and in 9,992 more files" in text
    assert len(text) < 400


def test_stopping_early_closes_the_file(tmp_path):
    """Reading only the first passage leaves no file open."""
    (tmp_path / "a.txt").write_text("one\n\n" * 100_000)
    passages = read(tmp_path / "a.txt")
    next(passages)
    passages.close()
    if Path("/proc/self/fd").is_dir():
        assert not any("a.txt" in os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())


def test_the_command_shows_report_and_samples(tree, capsys):
    """`mini-bert data show FOLDER` prints what was read, what was not, and some of the text."""
    data_show([str(tree)])
    shown = capsys.readouterr().out
    assert shown.startswith("6 files, 6 documents, ") and "skipped, hidden: 1" in shown and "  1.txt" in shown


@pytest.mark.parametrize("module", [formats, decoding, corpora])
def test_examples_in_docstrings(module):
    """Examples in docstrings give the outputs shown."""
    assert doctest.testmod(module).failed == 0


# --- real data ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/pretrain")
@pytest.mark.parametrize(("name", "count"), [("wiki", 11_184), ("books", 3_508)])
def test_real_corpora_word_for_word(name, count):
    """The shared corpora give exactly the documents that splitting the whole text at empty lines gives."""
    report = Report()
    found = documents(SHARED / f"{name}.txt.xz", report)
    whole = lzma.decompress((SHARED / f"{name}.txt.xz").read_bytes()).decode()
    assert found == [part.strip() for part in whole.split("\n\n") if part.strip()]
    assert len(found) == count and report.clean


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["one line of 100 MB", "gzip of one line of 1 GB", "JSON lines of 2 GB", "text of 2 GB"]
)
def test_memory_stays_bounded(tmp_path, kind):
    """Resident memory grows by less than 60 MB, whatever is read."""
    path = tmp_path / ("a.jsonl" if "JSON" in kind else "a.txt.gz" if "gzip" in kind else "a.txt")
    body = b"many words in a row without any end " * 29_000
    if "gzip" in kind:
        with gzip.open(path, "wb", 1) as packed:
            for _ in range(1000):
                packed.write(body)
    else:
        if "JSON" in kind:
            body = b"".join(b'{"text": "%s"}\n' % (b"a record of some words " * 40) for _ in range(1000))
        elif "text" in kind:
            body = b"a line of some words\n" * 50 + b"\n"
        size = 100_000_000 if "100 MB" in kind else 2_000_000_000
        with open(path, "wb") as file:
            for _ in range(size // len(body) + 1):
                file.write(body)
    code = (
        "import re, sys\nfrom mini_bert.corpora.reading import Report, read\n"
        "def peak(): return int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "before, report = peak(), Report()\n"
        "for passage in read(sys.argv[1], report): pass\n"
        "print(peak() - before, report.characters)"
    )
    begin = time.time()
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    grown, characters = map(int, done.stdout.split())
    print(f"{kind}: +{grown / 1000:.0f} MB, {characters / 1e6:.0f} MB of text in {time.time() - begin:.1f} s")
    assert grown < 60_000 and characters > 90_000_000
