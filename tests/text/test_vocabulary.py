"""Learning a vocabulary: by hand, compared with a naive version, for any buffers and processes, and with a peer
library."""

import importlib.util
import io
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.cli.text import tokenizer_train
from mini_bert.corpora.reading import read
from mini_bert.text import trained, vocabulary
from mini_bert.text.vocabulary import (
    Merges,
    choose,
    count_words,
    drop_rarest,
    frequent_alphabet,
    learn,
    tokens_per_word,
)
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.text.wordsplit import WordSplitter

ROOT = Path(__file__).parents[2]
PRETRAIN = ROOT.parent / "shared" / "data" / "pretrain"
BUNDLED = ROOT / "mini_bert" / "text" / "vocabularies"
SPECIAL = list(SPECIAL_TOKENS)

WORDS = {"the": 5, "then": 2, "at": 3}  # the example of the module's docstring
CHARACTERS = ["a", "e", "h", "n", "t", "##e", "##h", "##n", "##t"]


def quiet(*_):
    pass


def count(texts, max_word_chars=100, processes=1, splitter=None):
    return count_words(texts, splitter or WordSplitter(), max_word_chars, processes, quiet)


def length(piece):
    return len(piece.removeprefix("##"))


# --- the rule ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "learnt"),
    [
        (0, []),
        (1, ["th"]),  # used 7 times; the best pair left, th ##e, also stands 7 times: enough
        (2, ["the", "at"]),  # th is used no more; at, 3 times, is worth more than the ##n, 2 times
        (3, ["the", "at", "then"]),  # the 5, at 3, then 2: no pair is left, and th is used least
        (4, ["th", "the", "at", "then"]),  # room for all there is
        (9, ["th", "the", "at", "then"]),
    ],
)
def test_worked_example(room, learnt):
    """the ×5, then ×2, at ×3: the pieces for each size can be worked out by hand."""
    assert choose(WORDS, 5 + 9 + room, 2, 1000, quiet) == SPECIAL + CHARACTERS + learnt


def test_worked_example_as_text():
    """The same from text: split into words, lower-cased, counted."""
    texts = ["The, the THE then", "at, the AT thé", "then at"]  # two commas
    assert learn(iter(texts), 5 + 10 + 2, progress=False) == [*SPECIAL, ",", *CHARACTERS, "the", "at"]


def test_case_and_accents_stay_if_asked():
    """In cased mode "The" and "the" are two words, and é is a character."""
    pieces = learn(iter(["The the thé"] * 2), 40, lowercase=False, progress=False)
    assert {"T", "t", "##é", "The", "the", "thé"} <= set(pieces)
    assert "é" in learn(iter(["é"]), 40, strip_accents=False, progress=False)


def test_the_oldest_pieces_win_between_equals():
    """Pairs with equal counts are merged in the order in which their parts were learnt."""
    merges = Merges({"ba": 2, "dc": 2, "ab": 2})
    order = []
    while pair := merges.best():
        order.append(merges.pieces[ord(pair[0])] + merges.pieces[ord(pair[1])][2:])
        merges.merge(pair)
    assert order == ["ab", "ba", "dc"]


def test_runs_of_one_letter_merge_from_the_left():
    """aaaaa is aa aa a after the first merges; a piece that can be made in two ways is one piece."""
    merges = Merges({"aaaaaaa": 3, "baaaa": 2, "baaa": 4})
    while pair := merges.best():
        merges.merge(pair)
    assert [[merges.pieces[ord(symbol)] for symbol in word] for word in merges.spelt] == [
        ["aaaaaaa"],
        ["baaaa"],
        ["baaa"],
    ]
    assert len(set(merges.pieces)) == len(merges.pieces) == len(merges.uses)


words_and_counts = st.dictionaries(st.text("abcä", min_size=1, max_size=9), st.integers(1, 20), min_size=1, max_size=25)


@given(words_and_counts)
@settings(max_examples=60, deadline=None)
def test_merges_against_a_naive_version(words):
    """Updated counts equal recomputed ones, and the best pair is the most frequent one, at every step."""
    merges = Merges(words)
    spelt = [[word[0], *("##" + character for character in word[1:])] for word in words]
    while True:
        pairs, uses = Counter(), Counter()
        for word, number in zip(spelt, words.values(), strict=True):
            uses.update({piece: 0 for piece in word})
            for piece in word:
                uses[piece] += number
            for pair in pairwise(word):
                pairs[pair] += number
        named = {tuple(merges.pieces[ord(symbol)] for symbol in pair): n for pair, n in merges.pairs.items()}
        assert named == pairs
        assert {merges.pieces[i]: use for i, use in enumerate(merges.uses) if use} == uses
        found = merges.best()
        if found is None:
            assert not pairs
            break
        left, right = (merges.pieces[ord(symbol)] for symbol in found)
        assert pairs[left, right] == max(pairs.values())
        merges.merge(found)
        for word in spelt:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [left + right[2:]]
                i += 1


@given(words_and_counts, st.integers(0, 40), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_what_a_vocabulary_always_is(words, room, min_frequency):
    """It is at most as large as requested, without duplicates, characters first; every piece occurs in a word, and
    every word can be split."""
    least = len(choose(words, 1000, 10**9, 1000, quiet))
    pieces = choose(words, least + room, min_frequency, 1000, quiet)
    assert pieces[:5] == SPECIAL and len(pieces) <= least + room and len(set(pieces)) == len(pieces)
    assert [length(piece) == 1 for piece in pieces[5:]] == [True] * (least - 5) + [False] * (len(pieces) - least)
    for piece in pieces[5:]:
        if piece.startswith("##"):
            assert any(piece[2:] in word[1:] for word in words)
        else:
            assert any(word.startswith(piece) or (length(piece) == 1 and piece in word) for word in words)
    tokenizer = WordPieceTokenizer(pieces, lowercase=False)
    assert all(tokenizer.unk_id not in tokenizer.match(word) for word in words)


@given(words_and_counts, st.integers(1, 15))
@settings(max_examples=60, deadline=None)
def test_no_piece_left_out_is_used_more(words, room):
    """Every piece that is kept is used at least as often as every dropped piece and every remaining pair."""
    merges = []

    class Remembered(Merges):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            merges.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "Merges", Remembered)
        least = len(choose(words, 1000, 10**9, 1000, quiet))
        pieces = choose(words, least + room, 2, 1000, quiet)
    last = merges[-1]
    uses = dict(zip(last.pieces, last.uses, strict=True))
    kept = [uses.pop(piece) for piece in pieces[least:]]
    left_out = [use for piece, use in uses.items() if length(piece) > 1]
    if left_out:
        assert len(kept) == room and min(kept) >= max(left_out)
    if pair := last.best(2):
        assert len(kept) == room and min(kept) >= last.pairs[pair]


def test_the_alphabet_can_be_limited():
    """The most frequent characters are kept; words with other characters are ignored in training and become [UNK]."""
    texts = ["abba abba abca abxa ☃ ☃☃ ☃☃☃"]
    pieces = learn(iter(texts), 100, limit_alphabet=3, progress=False)
    assert pieces[5:10] == ["a", "b", "☃", "##a", "##b"]  # "☃" is a symbol, not punctuation
    assert not any("c" in piece or "x" in piece for piece in pieces)
    tokenizer = WordPieceTokenizer(pieces)
    assert tokenizer.tokenize("abba abca") == ["abba", "[UNK]"]
    assert frequent_alphabet({"a": 2, "b": 1, "c": 1}, 2) == {"a": 2, "b": 1}  # between equals, the lower code point


def test_rare_pairs_are_left_alone():
    """A pair below min_frequency is not merged, so a small text gives a small vocabulary."""
    for least, learnt in ((8, []), (7, ["th", "the"]), (3, ["th", "the", "at"]), (1, ["th", "the", "at", "then"])):
        assert choose(WORDS, 100, least, 1000, quiet)[14:] == learnt


# --- counting ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\t\x0b\x1c\x85ab.")), max_size=9)
)
@settings(max_examples=150, deadline=None)
def test_counting_in_pieces_is_counting(texts):
    """For any text and buffers, each word is counted as often as WordSplitter finds it in the separate texts."""
    splitter = WordSplitter()
    expected = Counter(word for text in texts for word in splitter.words(text))
    with pytest.MonkeyPatch.context() as patch:
        for slab, block in ((1, 1), (3, 2), (1000, 1)):
            patch.setattr(vocabulary, "SLAB", slab)
            patch.setattr(vocabulary, "BLOCK", block)
            assert count(texts) == expected


def test_an_iterator_longer_than_the_buffers(monkeypatch):
    """Texts are read as needed and no further ahead; long ones are cut at spaces, never within a word."""
    monkeypatch.setattr(vocabulary, "SLAB", 1000)
    taken = 0

    def texts():
        nonlocal taken
        for number in range(200):
            taken += 1
            yield f"Word{number % 7}, " * (number * 3) + "end."

    blocks = vocabulary.blocks(texts())
    first = next(blocks)
    assert len(first) == vocabulary.BLOCK and taken < 30
    slabs = [slab for block in blocks for slab in block]
    assert max(map(len, slabs)) < 2100
    assert count(texts()) == Counter(word for text in texts() for word in WordSplitter().words(text))


def test_text_without_any_space(monkeypatch):
    """Chinese has no spaces to cut at, and needs none: each character is a word, wherever the cut is."""
    monkeypatch.setattr(vocabulary, "SLAB", 1000)
    monkeypatch.setattr(vocabulary, "LONGEST_CHUNK", 100)
    assert count(["東京" * 5000, "京" * 1101]) == {"東": 5000, "京": 6101}


def test_words_longer_than_the_tokenizer_takes_are_ignored():
    """They would be [UNK] anyway, and nothing should be learnt from a line of base64."""
    assert count(["a" * 101 + " " + "b" * 100 + " c"]) == {"b" * 100: 1, "c": 1}


def test_the_rarest_words_are_forgotten():
    """Words seen once are dropped, then those seen twice, … until few enough are left; the others keep their counts."""
    words = Counter({"a": 5, "b": 1, "c": 2, "d": 2, "e": 3})
    assert drop_rarest(words, 3) == 3
    assert words == {"a": 5, "e": 3}


def test_memory_stays_bounded(monkeypatch):
    """If there are more different words than can be kept, frequent words are still counted exactly, with any number of
    processes."""
    monkeypatch.setattr(vocabulary, "SLAB", 500)
    monkeypatch.setattr(vocabulary, "MOST_WORDS", 300)
    sizes, notes = [], []
    texts = [f"often the new{number} and the rare{number * 7919 % 1000}" for number in range(2000)]

    def show(stage, note, done, total):
        sizes.append(int(note.split(", ")[1].split()[0]))
        notes.append(note)

    one = count_words(texts, WordSplitter(), 100, 1, show)
    assert max(sizes) <= 300 and "rare ones dropped" in notes[-1]
    assert (one["the"], one["often"], one["and"]) == (4000, 2000, 2000)
    assert count_words(texts, WordSplitter(), 100, 2, quiet) == one


PROGRAM = """
import hashlib, sys
from mini_bert.text import trained, vocabulary
vocabulary.SLAB = 20_000
texts = (" ".join(w.__doc__ or "" for w in vars(t).values()) + t.__name__
         for t in (str, bytes, int, float, dict, list, set, complex, tuple, bytearray, memoryview, type, slice) * 3)
pieces = vocabulary.learn(texts, 700, processes=int(sys.argv[1]), progress=False)
print(len(pieces), hashlib.sha256("\\n".join(pieces).encode()).hexdigest())
"""


def test_the_same_text_gives_the_same_vocabulary():
    """For any hash seed of Python and any number of processes; also in a script without a main guard."""
    found = set()
    for seed, processes in (("0", "1"), ("1", "2"), ("2", "3")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, processes]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1 and found.pop().startswith("700 ")


# --- sources, errors, what is shown ------------------------------------------------------------------------


def test_every_kind_of_source(tmp_path):
    """A file, a list of files, a folder, and the same texts as an iterator give the same vocabulary."""
    texts = ["the cat sat on the mat", "the dog sat on the log"]
    for name, text in zip(("a.txt", "b.txt"), texts, strict=True):
        (tmp_path / name).write_text(text)
    one = tmp_path / "both.jsonl"
    expected = learn(iter(texts), 60, progress=False)
    assert learn(tmp_path, 60, progress=False) == expected
    assert learn([str(tmp_path / "a.txt"), tmp_path / "b.txt"], 60, progress=False) == expected
    one.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert learn(str(one), 60, progress=False) == expected
    assert WordPieceTokenizer.train(iter(texts), 60, progress=False).tokens == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"vocab_size": 13},
            r"vocab_size is 13, but 5 special tokens and 9 pieces .* already need 14; raise vocab_size",
        ),
        ({"vocab_size": 5}, r"vocab_size is 5, expected more than the 5 special tokens"),
        ({"vocab_size": 10**7}, r"vocab_size is 10,000,000, expected .* at most 1,000,000"),
        ({"min_frequency": 0}, r"min_frequency is 0, expected at least 1"),
        ({"limit_alphabet": 0}, r"limit_alphabet is 0, expected at least 1"),
        ({"max_word_chars": -1}, r"max_word_chars is -1, expected at least 1"),
        ({"processes": 0}, r"processes is 0, expected at least 1"),
    ],
)
def test_settings_that_cannot_be(options, message):
    """Each error names the value, what was expected, and what to do."""
    with pytest.raises(ValueError, match=message):
        learn(iter(["the the at then"]), **{"vocab_size": 20, "progress": False} | options)


@pytest.mark.parametrize("texts", [[], ["", " \n"], ["\x00\u200b"]])
def test_text_without_words(texts):
    """A text without words is an error and does not give a vocabulary of five special tokens."""
    with pytest.raises(ValueError, match="there is no word in the text"):
        learn(iter(texts), progress=False)


def test_sources_that_are_none(tmp_path):
    """A list of texts is taken for paths, and the error says what to write instead; other values are named."""
    with pytest.raises(FileNotFoundError, match=r"use an iterator: iter\(texts\)"):
        learn(["the cat sat on the mat"], progress=False)
    with pytest.raises(TypeError, match="text 1 of the iterator is a bytes, expected str: b'mat'"):
        learn(iter(["cat", b"mat"]), progress=False)
    with pytest.raises(TypeError, match="source is a int, expected a path"):
        learn(7, progress=False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_progress(kind, monkeypatch):
    """Both stages show progress, as bars on a terminal and as plain lines elsewhere; progress=False is silent."""
    monkeypatch.setattr(sys, "stderr", kind())
    learn(iter(["the the at then"]), 20, progress=False)
    assert sys.stderr.getvalue() == ""
    learn(iter(["the the at then"]), 20)
    told = sys.stderr.getvalue()
    assert "counting" in told and "3 different words" in told and "merging" in told
    if kind is io.StringIO:
        assert "\x1b" not in told and len(told.splitlines()) == 2


def test_the_command(tmp_path, capsys):
    """It learns a vocabulary, saves files that `load` reads, and prints the size, tokens per word on held-out
    documents, and pieces."""
    documents = [f"document {number} is about the number {number}, of course" for number in range(120)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=60, out=tmp_path / "out")
    told = capsys.readouterr().out
    assert "Read 1 file, 120 documents, " in told and "Learnt 60 pieces from 1,190 words" in told
    assert "Learnt first: " in told and "Longest: " in told
    assert "On held-out text, 10 words: " in told  # document 50
    tokenizer = WordPieceTokenizer.load(tmp_path / "out")
    others = documents[:50] + documents[51:]
    assert tokenizer.tokens == learn(iter(others), 60, progress=False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "tokenizer.json",
        "vocab.txt",
        "tokenizer_config.json",
    }


def test_the_command_on_little_text(tmp_path, capsys):
    """If the text is too small for the size, or to hold out a document, the command says so. --cased is saved with the
    tokenizer."""
    (tmp_path / "text.txt").write_text("The cat. The mat.")
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=100, out=tmp_path / "out", cased=True)
    told = capsys.readouterr().out
    assert "fewer than 100" in told and "too few documents" in told
    assert WordPieceTokenizer.load(tmp_path / "out").tokenize("The mat") == ["The", "m", "##at"]


def test_the_command_says_what_was_mended(tmp_path, capsys):
    """The report says in plain words what was left out or repaired; no Python warning with a source line."""
    (tmp_path / "text.txt").write_bytes(b"the cat sat on the mat \xff and the cat sat there")
    tokenizer_train([str(tmp_path)], vocab_size=100, out=tmp_path / "out")
    told = capsys.readouterr()
    assert told.out.startswith("Read 1 file, 1 document, ") and "not UTF-8: replaced by U+FFFD: 1 (first" in told.out
    assert "Warning" not in told.err


def test_the_command_takes_a_column(tmp_path, capsys):
    """The chosen column of a table is used."""
    (tmp_path / "text.csv").write_text("text,other\nwrong,right\nwrong,right\n")
    tokenizer_train([str(tmp_path / "text.csv")], column="other", vocab_size=100, out=tmp_path / "out")
    assert WordPieceTokenizer.load(tmp_path / "out").tokenize("right wrong") == ["right", "[UNK]"]


def test_progress_of_little_text_makes_sense(capsys):
    """No millions for small numbers, and no more pieces to keep than were made."""
    learn(iter(["the the at then"]), 100)
    assert capsys.readouterr().err == "counting: 15 characters, 3 different words\nmerging: 2 pieces\n"
    learn(iter(["the the the the the then then at at at"]), 16)
    assert capsys.readouterr().err.endswith("merging: 3 pieces, keeping 2\n")


def test_the_folder_is_checked_before_the_work(tmp_path, monkeypatch):
    """If a file is in its place, or permission is missing, the error comes before anything is read and says
    what to do."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat")
    monkeypatch.setattr(trained, "read", None)  # whoever calls it fails
    for out in ("text.txt", "text.txt/x"):
        with pytest.raises(NotADirectoryError, match=r"text\.txt is a file, .* in a folder; choose one with --out"):
            tokenizer_train([str(tmp_path)], vocab_size=100, out=tmp_path / out)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=r"no permission to write in .*; choose another folder with --out"):
        tokenizer_train([str(tmp_path)], vocab_size=100, out=tmp_path / "new" / "folder")


def test_a_tokenizer_is_replaced_only_if_asked(tmp_path):
    """If the folder already holds one, the error names the folder and the option; with the option, it is replaced."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat, and the cat sat there")
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=50, out=tmp_path / "out")
    before = (tmp_path / "out" / "vocab.txt").read_text()
    with pytest.raises(FileExistsError, match=r"the folder .*out already has a tokenizer.*replace it with --force"):
        tokenizer_train([str(tmp_path / "text.txt")], vocab_size=40, out=tmp_path / "out")
    assert (tmp_path / "out" / "vocab.txt").read_text() == before
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=26, out=tmp_path / "out", force=True)
    assert (tmp_path / "out" / "vocab.txt").read_text() != before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("kept")
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=40, out=tmp_path / "other")
    assert (tmp_path / "other" / "notes.txt").read_text() == "kept"


def test_tokens_per_word():
    """Pieces per word, weighted by occurrence, and the share of unknown words."""
    tokenizer = WordPieceTokenizer([*SPECIAL, "a", "##b"])
    assert tokens_per_word(tokenizer, {"a": 2, "ab": 1, "abb": 1, "c": 4}) == ((2 + 2 + 3 + 4) / 8, 0.5)


# --- what comes with the package ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), [("8k", 8192), ("50k", 50000)])
def test_bundled_vocabularies(name, size):
    """The size in the name, special tokens at 0 to 4, then characters, then pieces; no duplicates; all files agree."""
    lines = (BUNDLED / name / "vocab.txt").read_bytes().decode().split("\n")
    assert lines.pop() == "" and len(lines) == len(set(lines)) == size
    assert lines[:5] == SPECIAL
    characters = [piece for piece in lines[5:] if length(piece) == 1]
    start = [piece for piece in characters if not piece.startswith("##") or piece == "#"]
    assert lines[5 : 5 + len(characters)] == sorted(start) + sorted(set(characters) - set(start))
    assert set("abcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") <= set(start)
    assert {"##" + character for character in "abcdefghijklmnopqrstuvwxyz0123456789"} <= set(characters)
    assert all(piece == piece.strip() and piece == piece.lower() for piece in lines[5:])
    assert max(map(length, lines)) < 25

    tokenizer = WordPieceTokenizer.load(name)
    assert tokenizer.tokens == lines and tokenizer.vocab_size == size and tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.splitter.lowercase and tokenizer.splitter.strip_accents
    content = json.loads((BUNDLED / name / "tokenizer.json").read_text(encoding="utf-8"))
    assert sorted(content["model"]["vocab"], key=content["model"]["vocab"].get) == lines
    assert tokenizer.tokenize("The city, in 1900.") == ["the", "city", ",", "in", "1900", "."]


def test_pieces_of_the_bundled_vocabularies_can_be_met():
    """Every piece is a word or part of a word that the tokenizer can produce, so no entry is wasted."""
    for name in ("8k", "50k"):
        tokenizer = WordPieceTokenizer.load(name)
        for piece in tokenizer.tokens[5:]:
            word = piece.removeprefix("##") if length(piece) else piece
            assert tokenizer.splitter.words(word) == [word], piece


# --- peers and real text -----------------------------------------------------------------------------------


def benchmark():
    spec = importlib.util.spec_from_file_location("vocabulary_benchmark", ROOT / "benchmarks" / "vocabulary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.peers
@pytest.mark.parametrize("vocab_size", [2000, 8192])
def test_as_good_as_the_trainer_of_tokenizers(vocab_size, tmp_path):
    """On 3 MB of the built-in corpus, at most 1 % more tokens per word on unseen text than the vocabulary of
    `tokenizers`."""
    pytest.importorskip("tokenizers")
    bench = benchmark()
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(passage.text for passage in read("builtin:train")), encoding="utf-8")
    unseen = count(passage.text for passage in read("builtin:validation"))
    tokens = {}
    for side, learner in (("ours", bench.ours), ("theirs", bench.peer)):
        pieces = learner([str(path)], vocab_size)
        assert len(pieces) == vocab_size and pieces[:5] == SPECIAL
        tokens[side], _ = tokens_per_word(WordPieceTokenizer(pieces), unseen)
    assert tokens["ours"] <= 1.01 * tokens["theirs"]


needs_text = pytest.mark.skipif(not PRETRAIN.is_dir(), reason="needs ../shared/data/pretrain")


@pytest.mark.slow
@needs_text
@pytest.mark.parametrize(("name", "size", "alphabet"), [("8k", 8192, 300), ("50k", 50000, 1000)])
def test_the_bundled_vocabularies_can_be_learnt_again(name, size, alphabet, tmp_path):
    """The commands in vocabularies/README.md give the bundled files, byte for byte."""
    files = [str(PRETRAIN / "wiki.txt.xz"), str(PRETRAIN / "books.txt.xz")]
    tokenizer_train(files, vocab_size=size, out=tmp_path, limit_alphabet=alphabet)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUNDLED / name / path.name).read_bytes()


@pytest.mark.slow
@pytest.mark.peers
@needs_text
def test_the_whole_text_against_the_trainer_of_tokenizers(tmp_path):
    """8,192 pieces from 122 MB: at most twice the time, 500 MB, and 1 % more tokens per word on unseen text."""
    pytest.importorskip("tokenizers")
    bench = benchmark()
    sources = [str(PRETRAIN / "wiki.txt.xz"), str(PRETRAIN / "books.txt.xz")]
    whole, train, unseen = bench.unpack(sources, tmp_path)
    seconds, memory, tokens = {}, {}, {}
    for side in bench.SIDES:
        seconds[side], memory[side] = bench.watched(side, 8192, tmp_path / "vocab.txt", whole)
        bench.watched(side, 8192, tmp_path / "vocab.txt", train)
        tokens[side], _ = tokens_per_word(WordPieceTokenizer.load(tmp_path / "vocab.txt"), unseen)
    ours, theirs = bench.SIDES
    assert seconds[ours] <= 2 * seconds[theirs]
    assert not memory[ours] > 500  # nan where there is no /proc
    assert tokens[ours] <= 1.01 * tokens[theirs]
