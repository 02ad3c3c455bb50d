"""Byte-level BPE: against stored results of the `tokenizers` library, worked examples, round trips."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_bert.text import bpe_conventions, byte_level
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, ROBERTA
from mini_bert.text.byte_level import BYTE_CHARACTERS, as_bytes, unwritten, words, written
from mini_bert.text.loading import load_tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bpe_cases.json").read_text(encoding="utf-8"))
MERGES = GOLDEN["merges"]
PIECES = [*sorted(BYTE_CHARACTERS), *dict.fromkeys(a + b for a, b in MERGES)]


def tokenizer_of(case):
    """The tokenizer of a stored case."""
    rules = dict(case["rules"])
    usual = getattr(bpe_conventions, rules.pop("like"))
    changed = {name: tuple(value) if isinstance(value, list) else value for name, value in rules.items()}
    return BpeTokenizer(case["vocab"], MERGES, usual._replace(**changed))


CASES = [(tokenizer_of(case), case) for case in GOLDEN["cases"]]


def roberta(**changed):
    special = [*ROBERTA.roles.values()]
    return BpeTokenizer([*special[:4], *PIECES, special[4]], MERGES, ROBERTA._replace(**changed))


def gpt2(**changed):
    return BpeTokenizer([*PIECES, "<|endoftext|>"], MERGES, GPT2._replace(**changed))


# ---- against the reference


@pytest.mark.parametrize("number", range(len(CASES)))
def test_stored_results(number):
    """Ids, offsets, word ids, token types and decoded texts are those of the library, under the rules of each model."""
    tok, case = CASES[number]
    for text, (ids, places, word_ids, type_ids), decoded in zip(
        GOLDEN["texts"], case["results"], case["decoded"], strict=True
    ):
        encoding = tok.encode_batch([text])[0]
        offsets = list(zip(places[::2], places[1::2], strict=True))
        assert encoding.ids == ids and encoding.offsets == offsets, ascii(text)
        assert encoding.word_ids == word_ids and encoding.type_ids == type_ids, ascii(text)
        assert tok.decode(ids) == decoded and tok.encode(text) == ids


# ---- words and bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi  all, we've 3 cats", ["Hi", " ", " all", ",", " we", "'ve", " 3", " cats"]),
        ("I'M don't", ["I", "'", "M", " don", "'t"]),
        ("a\n\n  b \n", ["a", "\n\n ", " b", " \n"]),
        ("x²½ ⅷ!?", ["x", "²½", " ⅷ", "!?"]),
        ("naïve東京2020年", ["naïve東京", "2020", "年"]),
        ("a\u00a0b\x1cc", ["a", "\u00a0", "b", "\x1c", "c"]),
        ("", []),
    ],
)
def test_words(text, expected):
    """Runs of letters, numbers, signs; one space goes to the next word; contractions in lower case only."""
    assert words(text) == expected


@given(st.text(st.one_of(st.characters(), st.sampled_from(" \n\t'sl.,1a\u00a0")), max_size=30))
def test_words_are_the_text(text):
    """Nothing is dropped; the pattern for ASCII and the one for all characters agree."""
    assert "".join(words(text)) == text
    ascii_text = text.encode("ascii", "ignore").decode()
    assert words(ascii_text) == byte_level._unicode().findall(ascii_text)


def test_bytes_are_written_as_printable_characters():
    """256 different characters, none of them white space; ASCII stays; writing can be undone."""
    assert len(set(BYTE_CHARACTERS)) == 256 and not any(character.isspace() for character in BYTE_CHARACTERS)
    everything = "".join(map(chr, range(256)))
    assert unwritten(written(everything)) == everything
    assert written(as_bytes(" naïve\n")) == "ĠnaÃ¯veĊ" and unwritten("x y") == "x y"


# ---- text to ids and back


def test_a_text_survives():
    """Capitals, spaces and characters of any script come back; what looks like a special token, too."""
    for tok in (roberta(), gpt2()):
        for text in GOLDEN["texts"]:
            ids = tok.ids([text], special=False)[0]
            assert tok.decode(ids) == text and tok.decode_bytes(ids) == text.encode()


UNUSUAL = roberta(add_prefix_space=True, compose=True)


@given(st.binary(max_size=40))
def test_any_bytes_survive(data):
    """Bytes that are not UTF-8 are spelt, too, and restored exactly, whatever happens to text."""
    tok = CASES[0][0]
    ids = tok.encode_bytes(data)
    assert tok.decode_bytes(ids) == data and tok.decode(ids) == data.decode("utf-8", "replace")
    assert tok.encode_bytes(bytearray(data)) == ids
    for more in (data, b"the cat" + data, b"e\xcc\x81" + data):
        assert UNUSUAL.decode_bytes(UNUSUAL.encode_bytes(more)) == more


@given(st.text(max_size=30))
def test_the_bytes_of_a_text_are_the_text(text):
    """encode_bytes of UTF-8 gives the ids of the text, since no special token is recognised in either."""
    tok = CASES[0][0]
    text = text.encode("utf-8", "replace").decode()
    assert tok.encode_bytes(text.encode()) == tok.ids([text], special=False)[0]


@given(
    st.lists(st.sampled_from(["the", " cat", "  ", "\n", "é", "東", ",", " ", "<mask>", "'s", "\u00a0x"]), max_size=12)
)
def test_offsets_point_at_what_was_spelt(parts):
    """Without trimming, the spans of a text of single-byte characters are the pieces; all ways of calling agree."""
    text, tok = "".join(parts), roberta(trim_offsets=False)
    encoding = tok.encode_batch([text], add_special_tokens=False)[0]
    assert encoding.ids == tok.ids([text])[0] == tok.encode(text)[1:-1]
    for i, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
        spelt = text[first:last]
        assert spelt.strip() == "<mask>" if i == tok.mask_id else tok.decode_bytes([i]) in spelt.encode()


@given(st.text(st.one_of(st.characters(), st.sampled_from(" the\n.,é東")), max_size=20), st.booleans(), st.booleans())
def test_spans_from_ids(text, trim, prefix):
    """With the ids of a text, or of its beginning, spans are the same."""
    text = text.encode("utf-8", "replace").decode()
    tok = gpt2(trim_offsets=trim, add_prefix_space=prefix)
    offsets, word_ids = tok.spans(text)
    for length in (len(offsets), len(offsets) // 2):
        ids = tok.ids([text])[0][:length]
        assert tok.spans(text, ids=ids) == (offsets[:length], word_ids[:length])


@given(
    st.lists(
        st.sampled_from(
            [*"'' abi3.,é東½", "'s", "'tis", "'ll", "n't", "I've", " the", " cats", "1990s", "\u00a0", "\t", "  "]
        ),
        max_size=9,
    ).map("".join)
)
def test_words_are_told_from_ids(text):
    """Contractions, numbers, signs, letters of other scripts: words begin where the pattern says, with a vocabulary in
    which contractions are pieces."""
    tok = bundled()
    assert tok._tables._contractions_are_pieces
    (ids,) = tok.ids([text], special=False)
    assert tok.spans(text, special=False, ids=ids) == tok.spans(text, special=False)


@cache
def bundled():
    return load_tokenizer("bpe-8k")


def test_special_tokens_take_spaces():
    """RoBERTa's mask takes all white space before it, but not what another token took; other tokens take none."""
    tok = roberta()
    assert tok.tokenize("the  <mask>\n <mask> sat") == ["the", "<mask>", "<mask>", *tok.tokenize(" sat")]
    assert tok.tokenize("the </s>")[-2:] == ["Ġ", "</s>"]
    assert tok.spans("at  <mask>")[0] == [(0, 2), (4, 10)]
    assert roberta(trim_offsets=False).spans("at  <mask>")[0] == [(0, 2), (2, 10)]
    assert roberta(lstrip=(), rstrip=("<mask>",)).tokenize("<mask> \n the") == ["<mask>", "the"]


def test_templates_of_the_models():
    """<s> a </s></s> b </s>, all of type 0; [CLS] a [SEP] b [SEP] with types 0 and 1; nothing around texts in GPT-2."""
    pair = roberta()("the", "cat")
    assert pair.tokens()[0] == "<s>" and [pair.tokens().index("</s>"), pair["input_ids"].count(2)] == [2, 3]
    assert pair["token_type_ids"] == [0] * len(pair["input_ids"])
    deberta = BpeTokenizer([*DEBERTA.roles.values(), *PIECES], MERGES, DEBERTA)
    assert deberta.decode(deberta.encode("the", "cat")) == "[CLS]the[SEP]cat[SEP]"
    assert deberta("the", "the")["token_type_ids"] == [0, 0, 0, 1, 1]
    tok = gpt2()
    assert tok.decode(tok.encode("the", " cat")) == "the cat" and tok.mask_token is None
    batch = tok(["the", "the cat sat"], padding=True)
    assert batch["input_ids"][0][1:] == [tok.sep_id] * (len(batch["input_ids"][1]) - 1)
    assert batch["attention_mask"][0][:2] == [1, 0]


def test_a_space_before_every_text():
    """With add_prefix_space, a first word is spelt like others, after special tokens, too; offsets do not count it."""
    tok = roberta(add_prefix_space=True, trim_first=False)
    assert tok.tokenize("the cat") == roberta().tokenize(" the cat") and tok.tokenize("") == []
    assert tok.tokenize("the<mask>the") == ["Ġthe", "<mask>", "Ġthe"]
    assert tok.spans("the cat")[0][0] == (0, 3)


def test_added_tokens_are_text():
    """They are found also where special tokens are not recognised, after normalisation."""
    tok = CASES[4][0]
    assert tok.tokenize("a  b")[1] == "  "
    special = tok.ids(["a  b [MASK]"], special=False)[0]
    assert tok.vocab["  "] in special and tok.mask_id not in special
    assert tok.vocab["  "] not in tok.special_ids and tok.decode(special) == "a  b [MASK]"


def test_what_continues_a_word():
    """As word ids do: a space, or a change between letters, numbers and signs, begins a word."""
    tok = roberta()
    for text in ("the unaffable runners, 2001: naïve 東京!", "walking20km affected... effectively"):
        ids = np.array(tok.encode(text))
        encoding = tok.encode_batch([text])[0]
        same = [b is not None and a == b for a, b in zip(encoding.word_ids, encoding.word_ids[1:], strict=False)]
        assert tok.continuing(ids).tolist() == [False, *same]
        assert tok.continuing(np.stack([ids, ids]))[1].tolist() == [False, *same]


def test_words_inside_a_text():
    """`split_ids` spells words as after a space; WordPiece has no such difference."""
    tok = roberta()
    assert tok.split_ids(["the", "cat"]) == tok.ids([" the", " cat"])
    assert tok.piece_text(tok.split_ids(["the"])[0][0]) == "the" and tok.piece_text(tok.mask_id) == "<mask>"


def test_missing_bytes():
    """A vocabulary without some bytes drops them, or has a token for them; offsets stay right."""
    kept = [piece for piece in PIECES if "z" not in piece and "Ã" not in piece]
    merges = [pair for pair in MERGES if not {"z", "Ã"} & set("".join(pair))]
    tok = BpeTokenizer([*kept, "<|endoftext|>"], merges, GPT2)
    assert tok.decode_bytes(tok.encode("azb zz é")) == b"ab  " + "é".encode()[1:]
    assert tok.spans("azb zz") == ([(0, 3), (3, 4)], [0, 1])
    assert tok.spans("z c")[1] == [1]  # the first word has no piece left
    unknown = BpeTokenizer([*ROBERTA.roles.values(), *kept], merges, ROBERTA._replace(unknown="<unk>"))
    assert unknown.tokenize("azzb") == ["a", "<unk>", "<unk>", "b"]
    assert unknown.spans("azzb")[0] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_surrogates_are_refused_unless_they_stand_for_bytes():
    """Half a pair is not a character; the message says where it may come from. PEP 383's stand for bytes."""
    with pytest.raises(ValueError, match=r"U\+D83D, half of a surrogate pair.*errors"):
        gpt2().encode("a \ud83d b")
    assert gpt2().ids(["a\udcff"]) == [gpt2().encode_bytes(b"a\xff")]
    with pytest.raises(TypeError, match="expected bytes, got str"):
        gpt2().encode_bytes("text")


def test_caches_are_bounded_and_change_nothing(monkeypatch):
    """Endless new chunks do not grow the caches, and the ids and spans stay the same."""
    large = roberta()
    monkeypatch.setattr("mini_bert.text.bpe.CHUNKS_KEPT", 16)
    small = roberta()
    for text in [*(f"h{i} cat{i}, {i}." for i in range(100)), "cat" * 40 + " x", *GOLDEN["texts"]]:
        assert small.ids([text]) == large.ids([text]) and small.spans(text) == large.spans(text)
        assert max(map(len, (small._chunks, small._firsts, small._words))) <= 16


def test_copies():
    """Pickle and copy give an equal tokenizer, also in another process; the fingerprint tells rules apart."""
    tok = roberta()
    for twin in (pickle.loads(pickle.dumps(tok)), copy.deepcopy(tok)):
        assert twin.fingerprint == tok.fingerprint and twin.encode("the é") == tok.encode("the é")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(tok.encode, ["the cat"]) == [tok.encode("the cat")]
    others = [roberta(add_prefix_space=True), roberta(lstrip=()), roberta(compose=True), roberta(trim_offsets=False)]
    fewer = BpeTokenizer(tok.tokens, MERGES[:-1], ROBERTA)
    assert len({one.fingerprint for one in (tok, fewer, *others)}) == 6


def test_merges_must_fit_the_vocabulary():
    """The error names the merge and the piece."""
    with pytest.raises(ValueError, match=r"merge 0, 'x' \+ 'qq', needs the piece 'qq', which is not in the vocabulary"):
        BpeTokenizer([*PIECES, "<|endoftext|>"], [("x", "qq")], GPT2)
    with pytest.raises(ValueError, match="merge 0 is 'ab', expected two pieces"):
        BpeTokenizer([*PIECES, "<|endoftext|>"], ["ab"], GPT2)


def test_every_kind_of_loading_finds_it(tmp_path):
    """A folder, its tokenizer.json, its vocab.json; by class, and by load_tokenizer."""
    tok = roberta()
    tok.save(tmp_path)
    for source in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.json"):
        for loaded in (load_tokenizer(source), BpeTokenizer.load(source), BpeTokenizer.from_pretrained(source)):
            assert isinstance(loaded, BpeTokenizer) and loaded.fingerprint == tok.fingerprint


def test_pieces_are_readable():
    """▁ is a space, bytes that are no characters are numbers, and special tokens stay as they are."""
    vocab = ["<|endoftext|>", *BYTE_CHARACTERS, "Ã¯", "Ġn"]
    tokenizer = BpeTokenizer(vocab, [("Ã", "¯"), ("Ġ", "n")], GPT2)
    shown = {token: tokenizer.readable(i) for i, token in enumerate(tokenizer.tokens)}
    assert [shown[token] for token in ("Ġn", "Ã¯", "Ã", "Ġ", "Ċ", "a", "<|endoftext|>")] == [
        "▁n", "ï", "\\xc3", "▁", "\\n", "a", "<|endoftext|>",
    ]  # fmt: skip
    assert all(text.isprintable() for text in shown.values())
    lines = tokenizer.explain("a naï").splitlines()  # as `tokenizer show` prints them
    assert [line.split()[0] for line in lines[1:-1]] == ["a", "▁n", "a", "ï"]
