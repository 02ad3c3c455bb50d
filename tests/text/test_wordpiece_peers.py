"""Compared live with `tokenizers` and `transformers`: every code point, every kind of text, every line of our
corpora."""

import gzip
import json
import lzma
import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert.text import tokenizer_files
from mini_bert.text.unicode_tables import CHINESE, LOWER, MARKS, MOVING, PUNCTUATION, REMOVED, SPACES, UNDIVIDED
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.text.wordsplit import JOINING, WordSplitter

pytestmark = pytest.mark.peers
tokenizers = pytest.importorskip("tokenizers")

DATA = Path(__file__).parents[2].parent / "shared" / "data"
CASES = json.loads((Path(__file__).parents[1] / "golden" / "tokenizer_cases.json").read_text(encoding="utf-8"))
CHOICES = [(low, strip, chinese) for low in (True, False) for strip in (None, True, False) for chinese in (True, False)]
EVERYTHING = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def reference(vocab, lowercase=True, strip_accents=None, chinese_spacing=True):
    return tokenizers.BertWordPieceTokenizer(
        {token: i for i, token in enumerate(vocab)},
        lowercase=lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=chinese_spacing,
    )


def same(ours, theirs):
    """All fields of two encodings are equal."""
    return (
        ours.ids == theirs.ids
        and ours.offsets == theirs.offsets
        and ours.word_ids == theirs.word_ids
        and ours.type_ids == theirs.type_ids
        and ours.attention_mask == theirs.attention_mask
        and ours.tokens == theirs.tokens
    )


# ---- single characters


@pytest.mark.parametrize("choice", [(True, None, True), (False, None, True), (False, True, False)])
def test_every_code_point(choice):
    """Each of the 1,112,064 characters, between two letters, gives the same words."""
    splitter = WordSplitter(*choice)
    normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=choice[2], strip_accents=choice[1], lowercase=choice[0]
    )
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for first in range(0, len(EVERYTHING), 512):
        text = " ".join(f"a{c}E" for c in EVERYTHING[first : first + 512])
        theirs = [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]
        assert splitter.words(text) == theirs, f"from U+{ord(EVERYTHING[first]):04X}"


def test_the_tables_are_the_references():
    """Each table is derived again from the library's output."""

    def bert(**rule):
        rules = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
        return tokenizers.normalizers.BertNormalizer(**rules | rule).normalize_str

    clean, chinese, strip, lower = (
        bert(clean_text=True),
        bert(handle_chinese_chars=True),
        bert(strip_accents=True),
        bert(lowercase=True),
    )
    split = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    parts = tokenizers.normalizers.NFD().normalize_str
    for c in EVERYTHING:
        cleaned = clean(c)
        assert (c in REMOVED) == (cleaned == "") and (c in SPACES) == (cleaned == " ")
        assert (c in CHINESE) == (chinese(c) != c)
        assert (c in PUNCTUATION) == (len(split(f"a{c}b")) == 3)
        assert (c in MARKS) == (strip(c) == "")
        assert lower(c) == LOWER.get(c, c.lower())
        if c not in MARKS and parts(c) == c:  # U+0334 sorts before every other mark, U+0345 after
            assert (c in MOVING) == (parts(f"a{c}\u0334") != f"a{c}\u0334" or parts(f"a\u0345{c}") != f"a\u0345{c}")
    assert all(parts(c) == c for c in UNDIVIDED)


# ---- property-based, over all of Unicode

CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("abcdefgABC 019.,!-'[]"),
    *(st.sampled_from(list(table)) for table in (MARKS, MOVING, PUNCTUATION, [*SPACES, *JOINING], UNDIVIDED, LOWER)),
    st.sampled_from(list(islice(REMOVED, 300))),
    st.integers(0xAC00, 0xD7A3).map(chr),
    st.integers(0x3400, 0x9FFF).map(chr),
    st.integers(0x0590, 0x08FF).map(chr),
    st.integers(0x1F000, 0x1FAFF).map(chr),
)
CHUNKS = st.one_of(
    CHARACTERS,
    st.sampled_from(
        [*SPECIAL_TOKENS, "[MASK", "[mask]", "the ", "running", "👩🏽\u200d🚒", "🇩🇪", "e\u0301", "é", "a" * 99]
    ),
    st.sampled_from(CASES["texts"]),
)
TEXTS = st.lists(CHUNKS, max_size=16).map("".join)
PAIRS = {
    choice: (WordPieceTokenizer(CASES["vocab"], *choice), reference(CASES["vocab"], *choice)) for choice in CHOICES
}
FUZZ = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


def any_text(text, choice):
    """Ids, tokens, offsets and word ids of any text, with any setting."""
    ours, theirs = PAIRS[choice]
    assert same(ours.encode_batch([text])[0], theirs.encode(text))
    assert ours.ids([text])[0] == theirs.encode(text, add_special_tokens=False).ids


test_any_text = FUZZ(given(TEXTS, st.sampled_from(CHOICES))(any_text))
test_any_text_at_length = pytest.mark.slow(
    settings(FUZZ, max_examples=30_000)(given(TEXTS, st.sampled_from(CHOICES))(any_text))
)


@FUZZ
@given(TEXTS, TEXTS, st.sampled_from(["longest_first", "only_first", "only_second"]), st.integers(3, 40), st.booleans())
def test_any_pair_cut_and_padded(text, pair, strategy, max_length, special):
    """Pairs, truncated in every way and padded; where the reference refuses to truncate, so do we."""
    ours, theirs = PAIRS[True, None, True]
    theirs.enable_truncation(max_length, strategy=strategy)
    theirs.enable_padding(length=max_length)
    options = {"truncation": strategy, "max_length": max_length, "padding": "max_length"}
    for second in (pair, None):
        try:
            expected = theirs.encode(text, second, add_special_tokens=special)
        except Exception as error:
            assert "Truncation error" in str(error)
            with pytest.raises(ValueError, match="tokens too many"):
                ours(text, second, add_special_tokens=special, **options)
        else:
            batch = ours(text, second, add_special_tokens=special, return_offsets_mapping=True, **options)
            assert same(batch.encodings[0], expected) and batch["offset_mapping"] == expected.offsets
            assert batch["input_ids"] == expected.ids and batch.word_ids() == expected.word_ids


@FUZZ
@given(st.lists(st.integers(0, 10**6), max_size=12), st.booleans())
def test_decoding(numbers, skip):
    """Any ids decode to the same text; the vocabulary contains everything that the clean-up of English looks for."""
    odd = ["n't", "'m", "do not", "'s", "'ve", "'re", "' ", " . ", "##.", "##n't", "##", "x ' y", "do", "not", "a ."]
    vocab = [*SPECIAL_TOKENS, *odd, *",.!?'abc", "##d", "##'s"]
    ids = [number % len(vocab) for number in numbers]
    theirs = reference(vocab).decode(ids, skip_special_tokens=skip)
    assert WordPieceTokenizer(vocab).decode(ids, skip_special_tokens=skip) == theirs


def test_long_and_mixed_text():
    """A long text in every script, with special tokens, as one string: shortcuts make no difference at their
    boundaries."""
    generator = random.Random(0)
    pieces = [*CASES["texts"], *"\n \t" * 10, *SPECIAL_TOKENS, "the", "running,", *generator.sample(EVERYTHING, 500)]
    text = "".join(generator.choices(pieces, k=20_000))
    for choice in CHOICES[::5]:
        ours, theirs = PAIRS[choice][0], reference(CASES["vocab"], *choice)
        assert same(ours.encode_batch([text])[0], theirs.encode(text))


# ---- files that others open

FILES = [
    {},
    {"lowercase": False},
    {"lowercase": False, "strip_accents": True},
    {"strip_accents": False, "chinese_spacing": False},
    {"extra_special_tokens": ("[unused1]",)},
]


@pytest.mark.parametrize("options", [*FILES, {"max_word_chars": 7}])
def test_tokenizers_opens_what_we_save(tmp_path, options):
    """`Tokenizer.from_file` gives the same encodings and texts; a file saved again by the library can be read back."""
    ours = WordPieceTokenizer(CASES["vocab"], **options)
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*CASES["texts"], "a[unused1]b"]:
        encoding = ours.encode_batch([(text, "the É東")])[0]
        assert same(encoding, theirs.encode(text, "the É東"))
        assert ours.decode(encoding.ids) == theirs.decode(encoding.ids, skip_special_tokens=False)
    theirs.save(str(tmp_path / "again.json"))
    assert WordPieceTokenizer.load(tmp_path / "again.json").fingerprint == ours.fingerprint


@pytest.mark.parametrize("options", FILES)
def test_transformers_opens_what_we_save(tmp_path, options):
    """`AutoTokenizer` and `BertTokenizer` give the same batches; what they save can be read back.

    (max_word_chars is left out: transformers rebuilds the model, always with 100.)
    """
    transformers = pytest.importorskip("transformers")
    ours = WordPieceTokenizer(CASES["vocab"], **options)
    ours.save(tmp_path)
    texts = CASES["texts"]
    for kind in (transformers.AutoTokenizer, transformers.BertTokenizerFast):
        theirs = kind.from_pretrained(tmp_path)
        a = ours(texts, padding=True, truncation=True, max_length=20, return_tensors="np", return_offsets_mapping=True)
        b = theirs(
            texts, padding=True, truncation=True, max_length=20, return_tensors="np", return_offsets_mapping=True
        )
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        assert [a.word_ids(i) for i in range(len(texts))] == [b.word_ids(i) for i in range(len(texts))]
        assert (theirs.pad_token_id, theirs.mask_token_id) == (ours.pad_id, ours.mask_id)
        theirs.save_pretrained(tmp_path / "again")
        assert WordPieceTokenizer.load(tmp_path / "again").fingerprint == ours.fingerprint


# ---- real text

BUNDLED = [name for name in ("8k", "50k") if (tokenizer_files.BUNDLED / name).is_dir()]


def vocabulary(name):
    if name in BUNDLED:
        return WordPieceTokenizer.load(name).tokens
    with gzip.open(DATA / "vocab" / "bert-base-uncased-vocab.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "pretrain").is_dir(), reason="needs ../shared/data/pretrain")
@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("name", ["published", *BUNDLED])
def test_every_line(name, lowercase):
    """On all lines of the Wikipedia and book text, ids, offsets and word ids are equal, without exception."""
    vocab = vocabulary(name)
    ours, theirs = WordPieceTokenizer(vocab, lowercase), reference(vocab, lowercase)
    count = 0
    for path in sorted((DATA / "pretrain").glob("*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
            while lines := [line.removesuffix("\n") for line in islice(file, 4000)]:
                expected = theirs.encode_batch(lines, add_special_tokens=False)
                for line, ids, encoding in zip(lines, ours.ids(lines), expected, strict=True):
                    offsets, word_ids = ours.spans(line, ids=ids)
                    assert ids == encoding.ids and offsets == encoding.offsets and word_ids == encoding.word_ids, line
                count += len(lines)
    print(f"{name}, {'uncased' if lowercase else 'cased'}: {count:,} lines, all equal")
    assert count >= 331_000
