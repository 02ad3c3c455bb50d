"""Learning byte-level BPE: the merges of the library, and of counting everything again after each merge."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.cli.text import tokenizer_train
from mini_bert.text import bpe_learning
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2, ROBERTA
from mini_bert.text.bpe_learning import blocks, count_words, learn, parts
from mini_bert.text.byte_level import BYTE_CHARACTERS, as_bytes, words, written
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.tokenizer_files import BUNDLED
from tests.text.test_bpe import GOLDEN, MERGES

PRETRAIN = Path(__file__).parents[2].parent / "shared" / "data" / "pretrain"


def nothing(*_):
    pass


def literally(texts, count, min_frequency=2):
    """Count all pairs, merge the most frequent one; of several, the one whose pieces are older."""
    table = Counter(written(as_bytes(word)) for text in texts for word in words(text))
    spelt = {word: list(word) for word in table}
    pieces, merges = sorted(BYTE_CHARACTERS), []
    while len(pieces) < 256 + count:
        pairs = Counter()
        for word, row in spelt.items():
            for pair in pairwise(row):
                pairs[pair] += table[word]
        if not pairs or max(pairs.values()) < min_frequency:
            break
        age = {piece: i for i, piece in enumerate(pieces)}
        best = min(pairs, key=lambda pair: (-pairs[pair], age[pair[0]], age[pair[1]]))
        merges.append(best)
        if "".join(best) not in age:
            pieces.append("".join(best))
        for row in spelt.values():
            place = 0
            while place < len(row) - 1:
                if (row[place], row[place + 1]) == best:
                    row[place : place + 2] = ["".join(best)]
                place += 1
    return merges


def test_the_merges_of_the_library():
    """Stored merges, learnt by `tokenizers` from the same lines: the same, in the same order."""
    pieces, merges, rules = learn(iter(GOLDEN["lines"]), GOLDEN["vocab_size"], min_frequency=1, progress=False)
    assert [list(pair) for pair in merges] == MERGES and rules == ROBERTA
    assert pieces[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and pieces[-1] == "<mask>"
    assert pieces[4:260] == sorted(BYTE_CHARACTERS) and len(pieces) == GOLDEN["vocab_size"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("ab é'.", max_size=20), min_size=1, max_size=6).filter(lambda texts: any(texts)))
def test_counting_everything_again(texts):
    """Adding only the differences after each merge finds the same merges."""
    _, merges, _ = learn(iter(texts), 280, progress=False)
    assert merges == literally(texts, 280 - 256 - 5)


def test_gpt2_conventions_and_small_text():
    """<|endoftext|> is the last token; a small text gives fewer pieces, and none that occurs once."""
    tok = BpeTokenizer.train(iter(["the cat sat", "the cat"]), 1000, conventions=GPT2, progress=False)
    assert tok.tokens[-1] == "<|endoftext|>" and len(tok) < 280 and tok.tokenize("the cat")[-1] == "Ġcat"
    assert "Ġsat" not in tok.vocab
    once = BpeTokenizer.train(iter(["the cat sat"]), 1000, min_frequency=1, progress=False)
    assert "Ġsat" in once.vocab and once.conventions == ROBERTA


def test_any_number_of_processes(monkeypatch):
    """The same counts, since the text alone decides how it is divided."""
    monkeypatch.setattr(bpe_learning, "LONGEST_TEXT", 40)
    texts = GOLDEN["lines"] * 3
    counts = [count_words(iter(texts), processes, nothing) for processes in (1, 2)]
    assert counts[0] == counts[1] and list(counts[0]) == list(counts[1])
    assert counts[0]["Ġthe"] == 3 * sum(words(line).count(" the") for line in GOLDEN["lines"])


def test_long_texts_are_cut_between_words():
    """At a space, so that the words are those of the whole text; without a space anywhere."""
    text = "the cat sat on the mat " * 20
    cut = list(parts(text.strip(), 50))
    assert "".join(cut) == text.strip() and max(map(len, cut)) <= 50
    assert [word for part in cut for word in words(part)] == words(text.strip())
    assert list(parts("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5] and list(parts("", 10)) == [""]
    assert sum(map(len, blocks(iter([text] * 3)))) == 3


def test_bad_sizes_and_no_text(tmp_path):
    """Errors name the value and what was expected."""
    with pytest.raises(
        ValueError, match="vocab_size is 260, expected at least 261, for 5 special tokens and 256 bytes"
    ):
        learn(iter(["a"]), 260, progress=False)
    with pytest.raises(ValueError, match="vocab_size is 256, expected at least 257"):
        learn(iter(["a"]), 256, GPT2, progress=False)
    with pytest.raises(ValueError, match="min_frequency is 0"):
        learn(iter(["a"]), 300, min_frequency=0, progress=False)
    with pytest.raises(ValueError, match="there is no word in the text"):
        learn(iter([""]), 300, progress=False)
    with pytest.raises(TypeError, match="text 0 of the iterator is a bytes"):
        learn(iter([b"a"]), 300, progress=False)
    (tmp_path / "a.txt").write_text("the cat and the dog\n")
    assert learn(tmp_path / "a.txt", 300, progress=False)[1][0] == ("h", "e")


# ---- the command


def test_the_command(tmp_path, capsys):
    """It learns merges, saves files that load, and prints tokens per word on held-out documents, and pieces."""
    documents = [f"document {number} is about the number {number}, of course" for number in range(120)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=300, out=tmp_path / "out", kind="bpe")
    told = capsys.readouterr().out
    assert "Read 1 file, 120 documents, " in told and "Learnt 300 pieces from 1,190 words" in told
    assert "On held-out text, 10 words: " in told and "Longest: " in told
    assert told.endswith("merges.txt, tokenizer.json, tokenizer_config.json, vocab.json\n")
    tokenizer = load_tokenizer(tmp_path / "out")
    others = documents[:50] + documents[51:]
    assert tokenizer.merges == learn(iter(others), 300, progress=False)[1] and tokenizer.mask_token == "<mask>"
    with pytest.raises(FileExistsError, match="already has a tokenizer"):
        tokenizer_train([str(tmp_path / "text.txt")], vocab_size=300, out=tmp_path / "out", kind="bpe")
    tokenizer_train([str(tmp_path / "text.txt")], vocab_size=300, out=tmp_path / "gpt", kind="bpe", like="gpt2")
    assert load_tokenizer(tmp_path / "gpt").conventions == GPT2


def test_options_of_other_kinds_are_refused(tmp_path):
    """--kind, --like and --limit-alphabet, each with what was expected."""
    for options, message in (
        ({"kind": "bytes"}, "--kind is 'bytes', expected one of wordpiece, bpe"),
        (
            {"kind": "bpe", "like": "bert"},
            "--like bert has another kind of tokenizer than --kind bpe; .* roberta or gp",
        ),
        ({"kind": "bpe", "limit_alphabet": 100}, "--limit-alphabet has no effect with --kind bpe"),
        ({"kind": "wordpiece", "like": "gpt2"}, "leave out --kind, or choose --like bert or distilbert or electra"),
        ({"like": "robert"}, r"--like is 'robert', expected a model: bert, .*deberta-v3.*roberta"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenizer_train(["builtin"], out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ---- what comes with the package


def test_the_bundled_tokenizer():
    """8,192 pieces, RoBERTa's special tokens, in files that agree; every piece is spelt as itself."""
    tok = load_tokenizer("bpe-8k")
    assert isinstance(tok, BpeTokenizer) and len(tok) == 8192 and tok.conventions == ROBERTA
    assert (tok.cls_id, tok.pad_id, tok.sep_id, tok.unk_id, tok.mask_id) == (0, 1, 2, 3, 8191)
    assert load_tokenizer(BUNDLED / "bpe-8k" / "vocab.json").fingerprint == tok.fingerprint
    assert tok._speller.regular and len(tok.merges) == 8192 - 256 - 5
    assert tok.tokenize("The city, in 1900.") == ["The", "Ġcity", ",", "Ġin", "Ġ19", "00", "."]
    assert tok.decode(tok.ids(["Don't stop, Zoë!\n 東京"])[0]) == "Don't stop, Zoë!\n 東京"


@pytest.mark.slow
@pytest.mark.skipif(not PRETRAIN.is_dir(), reason="needs ../shared/data/pretrain")
def test_the_bundled_tokenizer_can_be_learnt_again(tmp_path):
    """The command in vocabularies/README.md gives the bundled files, byte for byte."""
    files = [str(PRETRAIN / "wiki.txt.xz"), str(PRETRAIN / "books.txt.xz")]
    tokenizer_train(files, vocab_size=8192, out=tmp_path, kind="bpe")
    assert len(list(tmp_path.iterdir())) == 4
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUNDLED / "bpe-8k" / path.name).read_bytes()
