"""Token files: their contents, that they are built once, and that incomplete or damaged ones are never used."""

import errno
import io
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from mini_bert.data import shards
from mini_bert.data.sentences import split
from mini_bert.data.shards import DamagedShards, open_shards, prepare
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "!", "?", *"abcdefghij", *(f"##{c}" for c in "abcdefghij")]
TOKENIZER = WordPieceTokenizer(PIECES)
FILES = ["documents.bin", "hashes.bin", "sentences.bin", "shards.json", "tokens.bin"]


def make_text(documents, seed=0):
    """Documents of a few sentences each, with words over ten letters"""
    random = np.random.default_rng(seed)

    def word():
        return "".join(random.choice(list("abcdefghij"), random.integers(1, 6)))

    def sentence():
        return " ".join(word() for _ in range(random.integers(1, 9))).capitalize() + random.choice([".", "!", "?"])

    return [" ".join(sentence() for _ in range(random.integers(1, 7))) for _ in range(documents)]


TEXT = make_text(61)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(TEXT), encoding="utf-8")
    return path


@pytest.fixture
def make(corpus, tmp_path):
    """Prepares the corpus silently, in the cache of this test"""

    def prepare_it(source=corpus, tokenizer=TOKENIZER, **options):
        return prepare(source, tokenizer, cache_dir=tmp_path / "cache", progress=False, **options)

    return prepare_it


@pytest.fixture
def small_jobs(monkeypatch):
    """Makes jobs so small that a small corpus has many"""
    monkeypatch.setattr(shards, "JOB", 200)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ------------------------------------------------------------------ what lies in the files


def test_the_layout(make, corpus, small_jobs):
    """Token by token, the files hold what a plain loop over documents and sentences gives, read without this module."""
    tokens, sentences, documents = [], [], []
    for document in corpus.read_text().split("\n\n"):
        tokens.append(TOKENIZER.sep_id)
        documents.append(len(sentences))
        for sentence in split(document):
            sentences.append(len(tokens))
            tokens += TOKENIZER.encode(sentence, add_special_tokens=False)
    tokens.append(TOKENIZER.sep_id)
    made = make()
    read = {name: np.fromfile(made.folder / f"{name}.bin", kind) for name, kind in
            {"tokens": "<u2", "sentences": "<i8", "documents": "<i8", "hashes": "<u8"}.items()}  # fmt: skip
    assert read["tokens"].tolist() == tokens
    assert read["sentences"].tolist() == [*sentences, len(tokens)]
    assert read["documents"].tolist() == [*documents, len(sentences)]
    assert len(set(read["hashes"].tolist())) == len(documents) == 61
    for name, array in read.items():
        np.testing.assert_array_equal(getattr(made, name), array)
    assert str(made) == f"{len(tokens):,} tokens in {len(sentences):,} sentences of 61 documents"
    assert sorted(contents(made.folder)) == FILES


def test_arrays_are_mapped_and_cannot_be_changed(make):
    """Arrays are memory-mapped; writing to one is an error and does no damage."""
    made = make()
    with pytest.raises(ValueError, match="read-only"):
        made.tokens[0] = 1
    base = made.tokens
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)


def test_a_large_vocabulary_takes_four_bytes(tmp_path, corpus):
    """Up to 65,536 pieces, a token takes two bytes, beyond that four."""
    for size, dtype in ((65_536, "<u2"), (65_537, "<u4")):
        tokenizer = WordPieceTokenizer([*PIECES[:5], *(f"word{i}" for i in range(size - 6)), "abc"])
        path = tmp_path / "abc.txt"
        path.write_text("abc abc")
        made = prepare(path, tokenizer, cache_dir=tmp_path / "cache", progress=False)
        assert made.tokens.dtype == dtype and made.tokens.tolist() == [3, size - 1, size - 1, 3]


def test_what_a_tokenizer_drops_is_no_sentence(make, tmp_path):
    """A line that gives no pieces is not a sentence; a document of such lines exists and is empty."""
    path = tmp_path / "odd.txt"
    path.write_text("\u200b\u200e\n\na b.\n\u200b\nc.\n\n\u200b\n\nd", encoding="utf-8")
    made = make(path)
    a, b, c, d, stop = (PIECES.index(piece) for piece in "abcd.")
    assert made.tokens.tolist() == [3, 3, a, b, stop, c, stop, 3, 3, d, 3]
    assert made.sentences.tolist() == [2, 5, 9, 11] and made.documents.tolist() == [0, 0, 2, 2, 3]


def test_pieces_with_their_space_make_running_text(make, tmp_path):
    """Sentences inside a document begin with a space, also in a later passage; the first one does not."""
    (tmp_path / "text.txt").write_text("The cat sat. It purred.\nThen it slept.\n\nDogs bark. They do.")
    bpe = load_tokenizer("bpe-8k")
    shard = make(tmp_path / "text.txt", bpe)
    first, second = "The cat sat. It purred. Then it slept.", "Dogs bark. They do."
    assert bpe.decode(shard.tokens) == f"</s>{first}</s>{second}</s>"
    assert len(shard.sentences) == 5 + 1


def test_special_tokens_in_the_text_are_text(make, tmp_path):
    """[SEP] in a text means these five characters: only our own tokens separate, pad or mask."""
    tokenizer = WordPieceTokenizer([*PIECES, "[", "]", "sep", "pad"])
    path = tmp_path / "about.txt"
    path.write_text("a [SEP] b\n[PAD].\n\n[SEP]")
    made = make(path, tokenizer)
    a, b, stop, left, right, sep, pad = (tokenizer.vocab[piece] for piece in ("a", "b", ".", "[", "]", "sep", "pad"))
    first, second = [a, left, sep, right, b], [left, pad, right, stop]
    assert made.tokens.tolist() == [3, *first, *second, 3, left, sep, right, 3]
    assert made.sentences.tolist() == [1, 6, 11, 15]


def test_a_document_in_many_passages_is_one(make, corpus, monkeypatch, small_jobs):
    """Text that is read and sent to processes in pieces of a few words gives the same tokens and documents."""
    whole = make()
    monkeypatch.setattr("mini_bert.corpora.formats.PASSAGE", 40)
    os.utime(corpus, (1, 1))
    pieces = make()
    assert pieces.folder != whole.folder
    np.testing.assert_array_equal(pieces.tokens, whole.tokens)
    np.testing.assert_array_equal(pieces.sentences[pieces.documents], whole.sentences[whole.documents])


def test_documents_are_known_by_their_text(make, corpus, tmp_path):
    """Equal documents have equal hashes, wherever they are and whatever the tokenizer."""
    hashes = make().hashes.tolist()
    documents = corpus.read_text().split("\n\n")
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join([*documents[30:], documents[5]]))
    assert make(other).hashes.tolist() == [*hashes[30:], hashes[5]]
    assert make(tokenizer=WordPieceTokenizer(PIECES[:-3])).hashes.tolist() == hashes


@pytest.mark.parametrize("processes", [2, 3])
def test_the_number_of_processes_leaves_no_trace(make, small_jobs, processes):
    """One process and several give the same bytes."""
    alone = make(processes=1)
    before = contents(alone.folder)
    shutil.rmtree(alone.folder)
    several = make(processes=processes)
    assert several.folder == alone.folder and contents(several.folder) == before


# ------------------------------------------------------------------ made once


def test_a_second_start_only_opens(make, monkeypatch):
    """The second time, no text is read or tokenized; modification times and contents of the files stay."""
    made = make()
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made.folder.iterdir()}
    monkeypatch.setattr(shards, "_build", None)
    again = make()
    assert again.digest == made.digest
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made.folder.iterdir()} == before


def test_other_text_or_another_tokenizer_is_another_folder(make, corpus):
    """The key changes with the corpus, the vocabulary, the settings and the format; the digest depends on the
    content."""
    first = make()
    cased = make(tokenizer=WordPieceTokenizer(PIECES, lowercase=False))
    fewer = make(tokenizer=WordPieceTokenizer(PIECES[:-1]))
    corpus.write_text(corpus.read_text() + " abc.")
    longer = make()
    assert len({made.folder for made in (first, cased, fewer, longer)}) == 4
    assert len({made.digest for made in (first, cased, fewer, longer)}) == 4
    assert longer.info["tokens"] > first.info["tokens"]


def test_what_the_key_is_made_of(monkeypatch):
    """Layout, rules, text, vocabulary and settings, separator: changing any of them gives another folder."""
    tokenizer = SimpleNamespace(fingerprint="f", sep_id=3)
    keys = [shards._key("text", tokenizer), shards._key("other", tokenizer)]
    keys += [shards._key("text", SimpleNamespace(fingerprint=f, sep_id=i)) for f, i in (("g", 3), ("f", 4))]
    for name in ("FORMAT", "RULES"):
        with monkeypatch.context() as patch:
            patch.setattr(shards, name, 999)
            keys.append(shards._key("text", tokenizer))
    assert len(set(keys)) == 6 and keys[0] == shards._key("text", SimpleNamespace(fingerprint="f", sep_id=3))


def test_the_digest_knows_the_tokenizer(make):
    """The digest depends on the tokenizer: equal ids under another vocabulary are not the same text."""
    one, two = make(), make(tokenizer=WordPieceTokenizer([*PIECES, "zzz"]))
    assert one.tokens.tolist() == two.tokens.tolist() and one.digest != two.digest


def test_a_copy_of_the_text_has_the_same_digest(make, corpus, tmp_path):
    """Another modification time gives another folder, because the text is not read completely to compare; the digest is
    the same."""
    first = make()
    os.utime(corpus, (1, 1))
    second = make()
    assert second.folder != first.folder and second.digest == first.digest


def test_standard_input_is_known_by_its_content(make, corpus, monkeypatch, caplog):
    """A pipe has no name: its text is tokenized each time, and stored once."""

    def piped():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
        return make("-")

    assert piped().folder == piped().folder
    np.testing.assert_array_equal(piped().tokens, make().tokens)
    assert not caplog.records


def test_a_file_that_changes_after_it_was_read(make, corpus, tmp_path, monkeypatch, caplog):
    """If a file changes while the next one is read, there is a warning, and the tokens are used for neither version of
    the text."""
    other = tmp_path / "other.txt"
    other.write_text("a b c.")
    build = shards._build

    def meanwhile(*arguments):
        info = build(*arguments)
        corpus.write_text("d e f.")
        return info

    monkeypatch.setattr(shards, "_build", meanwhile)
    mixed = make([corpus, other])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the text changed while it was read" in caplog.text
    monkeypatch.setattr(shards, "_build", build)
    assert make([corpus, other]).folder != mixed.folder and mixed.info["documents"] == 62


def test_the_cache_has_a_usual_place(corpus, tmp_path, monkeypatch):
    """Without cache_dir, the folder is `shards` in the cache folder given by MINI_BERT_HOME."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    assert prepare(corpus, TOKENIZER, progress=False).folder.parent == tmp_path / "home" / "shards"


def test_an_iterator_of_texts_is_known_by_its_content(make):
    """Texts from an iterator give the same shards as the same documents in a file, stored once."""
    made = make(iter(TEXT))
    assert made.digest == make().digest and make(text for text in TEXT).folder == made.folder != make().folder


def test_a_file_where_the_cache_should_be(corpus, tmp_path, monkeypatch):
    """The error names the folder, the file in its way, and the variable to set."""
    (tmp_path / "file").write_text("")
    for blocked in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            OSError, match=r"cannot create the folder .*file is a file; set MINI_BERT_HOME, or cache_dir, to another"
        ):
            prepare(corpus, TOKENIZER, cache_dir=blocked, progress=False)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot create the folder .*shards: .*file is a file; set MINI_BERT_HOME"):
        prepare(corpus, TOKENIZER, progress=False)


@pytest.mark.parametrize("where", ["in_order", "_checksums", "put_in_place"])
def test_a_full_disk_is_explained(make, tmp_path, monkeypatch, where):
    """The error names the folder, and says how to choose another."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards, where, full)
    with pytest.raises(OSError, match=r"No space left.*folder .*cache; set MINI_BERT_HOME, or cache_dir") as told:
        make()
    assert told.value.errno == errno.ENOSPC


def test_a_folder_that_cannot_be_written_is_explained(make, monkeypatch):
    """The folder belongs to someone else, or is on a read-only disk."""

    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/odd/.unfinished-123")

    monkeypatch.setattr(shards, "unfinished_folder", denied)
    with pytest.raises(PermissionError, match=r"Permission denied: cannot write .*the folder .*cache; set MINI"):
        make()


@pytest.mark.parametrize("processes", [0, -1, 1.5, True])
def test_processes_are_checked_even_if_none_are_needed(make, processes):
    """A wrong number is an error every time, even if the shards already exist."""
    make()
    with pytest.raises(ValueError, match=f"processes is {processes}, expected a whole number"):
        make(processes=processes)


# ------------------------------------------------------------------ half-made, damaged


def damage(path, how):
    raw = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "short":
        path.write_bytes(raw[:-1])
    elif how == "long":
        path.write_bytes(raw + b"\0")
    elif how == "empty":
        path.write_bytes(b"")
    else:
        raw[len(raw) // 2] ^= 4
        path.write_bytes(raw)


@pytest.mark.parametrize("how", ["gone", "short", "long", "empty", "flipped"])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_seen_said_and_mended(make, caplog, name, how):
    """If any file is missing, truncated, extended or changed by one bit, a warning names the folder, and it is
    rebuilt."""
    made = make()
    before, folder = contents(made.folder), made.folder
    del made
    if name == "shards.json" and how in ("long", "flipped"):
        (folder / name).write_bytes(before[name].replace(b'"bytes"', b'"bytez"'))
    else:
        damage(folder / name, how)
    with pytest.raises(DamagedShards, match="are damaged"):
        open_shards(folder)
    again = make()
    assert contents(again.folder) == before and again.folder == folder
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(folder) in caplog.text and "building them again" in caplog.text
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_large_files_are_checked_in_places(make, monkeypatch):
    """In a long file, the first, the last and evenly spaced blocks are compared."""
    monkeypatch.setattr(shards, "BLOCK", 16)
    monkeypatch.setattr(shards, "CHECKED", 3)
    made = make()
    blocks = len(made.info["files"]["tokens"]["crc32"])
    assert blocks > 100
    path = made.folder / "tokens.bin"
    good = path.read_bytes()
    for at, seen in ((0, True), (len(good) - 1, True), (len(good) // 2, True), (16, False)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        if seen:
            with pytest.raises(DamagedShards, match=r"tokens\.bin has changed at byte"):
                open_shards(made.folder)
        else:
            open_shards(made.folder)


def test_another_format_is_made_anew(make, monkeypatch):
    """Files from another version of this code are rebuilt."""
    made = make()
    info = json.loads((made.folder / "shards.json").read_text())
    (made.folder / "shards.json").write_text(json.dumps(info | {"format": 999}))
    with pytest.raises(DamagedShards, match="format 999, expected 1"):
        open_shards(made.folder)
    assert make().info["format"] == 1


@pytest.mark.parametrize("where", ["in_order", "_checksums", "force_to_disk", "put_in_place"])
@pytest.mark.parametrize("what", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(make, tmp_path, monkeypatch, where, what):
    """After a full disk or Ctrl-C at any point, nothing is left behind, and the next run succeeds."""

    def fail(*_):
        raise what

    with monkeypatch.context() as patch:
        patch.setattr(shards, where, fail)
        with pytest.raises(type(what)):
            make()
    assert list((tmp_path / "cache").iterdir()) == []
    assert open_shards(make().folder).info["documents"] == 61


def test_what_a_killed_process_left_is_never_used_and_cleared_later(make, tmp_path, monkeypatch):
    """A folder without its final name is ignored, and removed when it is a day old."""
    made = make()
    old, new = (made.folder.parent / f".unfinished-{name}" for name in ("old", "new"))
    for folder in (old, new):
        shutil.copytree(made.folder, folder)
        (folder / "tokens.bin").write_bytes(b"half")
    for path in (*old.iterdir(), old):
        os.utime(path, (time.time() - 90_000,) * 2)
    shutil.rmtree(made.folder)
    assert make().digest == made.digest
    assert not old.exists() and new.exists()


def test_two_processes_may_make_the_same(make, monkeypatch):
    """The process that finishes second finds the complete folder and uses it."""
    build = shards._build

    def meanwhile(*arguments):
        monkeypatch.setattr(shards, "_build", build)
        make()
        return build(*arguments)

    monkeypatch.setattr(shards, "_build", meanwhile)
    made = make()
    assert open_shards(made.folder).digest == made.digest
    assert [path.name for path in made.folder.parent.iterdir()] == [made.folder.name]


def test_many_may_mend_the_same_at_once(make, small_jobs, caplog):
    """If eight processes rebuild a damaged folder at the same time, all get complete shards, and nothing else
    is left."""
    folder = make().folder
    before = contents(folder)
    for _ in range(3):
        damage(folder / "tokens.bin", "flipped")
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: make(processes=1), range(8)))
        assert all(made.folder == folder for made in found) and contents(folder) == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_another_process_may_be_faster_at_any_moment(make, monkeypatch):
    """The damaged folder disappears just before it is moved away, or cannot be moved; nothing is left behind."""
    folder = make().folder
    before, rename = contents(folder), os.rename

    def too_late(source, target):
        if source == folder:
            shutil.rmtree(folder)
        return rename(source, target)

    damage(folder / "tokens.bin", "flipped")
    monkeypatch.setattr(os, "rename", too_late)
    assert contents(make().folder) == before

    def stuck(source, target):
        if source == folder:
            raise PermissionError(errno.EACCES, "in use")
        return rename(source, target)

    damage(folder / "tokens.bin", "flipped")
    monkeypatch.setattr(os, "rename", stuck)
    with pytest.raises(PermissionError, match="in use"):
        make()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_may_be_missing_for_a_moment(make, tmp_path, monkeypatch):
    """Another process that replaces the folder has moved it aside when it is opened, and moves its own in later. If it
    stays away, that is an error."""
    place, aside, moved = shards.put_in_place, tmp_path / "aside", []

    def move_aside(work, folder, keep):
        place(work, folder, keep)
        os.rename(folder, aside)
        moved.append(folder)

    monkeypatch.setattr(shards, "put_in_place", move_aside)
    monkeypatch.setattr(shards.time, "sleep", lambda seconds: None)
    with pytest.raises(DamagedShards, match="FileNotFoundError"):
        make()
    shutil.rmtree(aside)
    monkeypatch.setattr(shards.time, "sleep", lambda seconds: os.rename(aside, moved[-1]))
    assert make().folder == moved[-1]


def test_a_name_that_cannot_be_given_is_an_error(make, tmp_path, monkeypatch):
    """A failing rename is an error, unless the folder exists already; if it keeps appearing damaged, the
    retries end."""

    tried = []

    def refuse(*_):
        tried.append(1)
        raise PermissionError(errno.EACCES, "not here")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(PermissionError, match="not here"):
            make()
    assert len(tried) == 1
    assert list((tmp_path / "cache").iterdir()) == []

    def taken(*_):
        raise OSError(errno.ENOTEMPTY, "always taken")

    monkeypatch.setattr(os, "rename", taken)
    with pytest.raises(OSError, match="always taken"):
        make()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="permission bits are POSIX")
def test_folders_have_ordinary_permissions(make, tmp_path):
    """Others can read a shared cache if the umask allows it."""
    (tmp_path / "usual").mkdir()
    assert make().folder.stat().st_mode == (tmp_path / "usual").stat().st_mode


# ------------------------------------------------------------------ what it says


def test_text_without_words_is_an_error(make, tmp_path):
    """An empty file, and one that gives no tokens."""
    path = tmp_path / "empty.txt"
    path.write_text(" \n\n")
    with pytest.raises(ValueError, match="there is no text in"):
        make(path)
    path.write_text("\u200b\u200e", encoding="utf-8")
    with pytest.raises(ValueError, match="there is no word in the text"):
        make(path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_was_mended_is_told(make, tmp_path, caplog):
    """The reading report is logged if it contains anything, and stored with the shards."""
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a b c\xff d.")
    made = make(path)
    assert "reading the text" in caplog.text and str(path) in caplog.text
    assert made.info["report"].count("\n") >= 1


def test_progress(corpus, tmp_path, capsys, monkeypatch):
    """A line at the end says where the shards are; on a terminal, there is a progress bar; nothing is shown if unwanted
    or already prepared."""
    made = prepare(corpus, TOKENIZER, cache_dir=tmp_path / "a")
    tokens = f"{made.info['tokens'] - 1:,} tokens"
    told = capsys.readouterr().err
    assert told == f"tokenizing: {made.info['bytes'] / 1e3:.1f} kB, {tokens}\ntokenized text saved in {made.folder}\n"
    prepare(corpus, TOKENIZER, cache_dir=tmp_path / "a")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    prepare(corpus, TOKENIZER, cache_dir=tmp_path / "b")
    assert "tokenizing" in capsys.readouterr().err
    prepare(corpus, TOKENIZER, cache_dir=tmp_path / "c", progress=False)
    assert capsys.readouterr() == ("", "")
