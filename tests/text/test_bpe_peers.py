"""Byte-level BPE compared live with `tokenizers` and `transformers`: every code point, any text, any bytes, every line
of our corpora, and what each side saves and learns."""

import gzip
import json
import lzma
import random
import unicodedata
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, ROBERTA
from mini_bert.text.bpe_learning import learn
from mini_bert.text.byte_level import as_bytes, unwritten, words, written
from mini_bert.text.canonical import composed
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.unicode_tables import LETTERS, MARKS, MOVING, NUMBERS, UNDIVIDED, WHITE_SPACE
from tests.text.test_bpe import GOLDEN, MERGES, PIECES, gpt2, roberta

pytestmark = pytest.mark.peers
tokenizers = pytest.importorskip("tokenizers")

DATA = Path(__file__).parents[2].parent / "shared" / "data"
EVERYTHING = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
needs_vocabulary = pytest.mark.skipif(not (DATA / "vocab").is_dir(), reason="needs ../shared/data/vocab")


# ---- single characters


def test_the_classes_are_the_references():
    """Letters, numbers and white space of the pattern, derived again from the library's splits."""
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    for c in EVERYTHING:
        assert (c in LETTERS) == (len(split(f"a{c}")) == 1)
        assert (c in NUMBERS) == (len(split(f"1{c}")) == 1)
        sign = len(split(f".{c}")) == 1
        assert (c in WHITE_SPACE) == (c not in LETTERS and c not in NUMBERS and not sign)


def test_every_code_point():
    """Each of the 1,112,064 characters, after a letter, a number, a sign and a space, gives the same words."""
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    for first in range(0, len(EVERYTHING), 512):
        text = "".join(f"a{c}1{c}.{c} {c}" for c in EVERYTHING[first : first + 512])
        ours = [written(as_bytes(word)) for word in words(text)]
        assert ours == [word for word, _ in split(text)], f"from U+{ord(EVERYTHING[first]):04X}"


def test_composition_of_every_code_point():
    """NFC of each character between others that may combine with it."""
    normal = tokenizers.normalizers.NFC().normalize_str
    for c in EVERYTHING:
        text = f"a{c}\u0301{c}e\u0323"
        assert composed(c)[0] == normal(c) and composed(text)[0] == normal(text), f"U+{ord(c):04X}"


# ---- property-based, over all of Unicode

COMBINING = [c for c in EVERYTHING if unicodedata.decomposition(c)[:1] not in ("", "<")]
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("abcdefgzABC 019.,!-'[]<>|"),
    st.sampled_from(list(WHITE_SPACE)),
    st.sampled_from("\x1c\x1f\u180e\u200b\ufeff"),
    *(st.sampled_from(list(table)) for table in (MARKS, MOVING, UNDIVIDED, NUMBERS)),
    st.sampled_from(COMBINING),
    st.integers(0x1100, 0x11FF).map(chr),
    st.integers(0xAC00, 0xD7A3).map(chr),
    st.integers(0x1F000, 0x1FAFF).map(chr),
)
SPECIAL = [*ROBERTA.roles.values(), *DEBERTA.roles.values(), "<|endoftext|>", "|||IP|||", "[unused0]"]
CHUNKS = st.one_of(
    CHARACTERS,
    st.sampled_from([*SPECIAL, " <mask>", "\n[MASK]", "<mas", "  ", "    ", "'s", "'LL", " the", "running ", "Ġ", "é"]),
    st.sampled_from(GOLDEN["texts"]),
)
TEXTS = st.lists(CHUNKS, max_size=16).map("".join)
ADDED = ("  ", "    ", "|||IP|||", "[unused0]")
MODERN = DEBERTA._replace(special_tokens=("<|endoftext|>",), added_tokens=ADDED, compose=True)
RULES = {
    "GPT-2": GPT2,
    "GPT-2, trimmed": GPT2._replace(trim_offsets=True),
    "GPT-2, prefix": GPT2._replace(trim_offsets=True, trim_first=False, add_prefix_space=True),
    "RoBERTa": ROBERTA,
    "RoBERTa, prefix": ROBERTA._replace(add_prefix_space=True, trim_first=False),
    "RoBERTa, prefix, trimmed": ROBERTA._replace(add_prefix_space=True),
    "RoBERTa, not trimmed": ROBERTA._replace(trim_offsets=False, add_prefix_space=True),
    "DeBERTa": DEBERTA,
    "ModernBERT": MODERN,
    "ModernBERT, trimmed": MODERN._replace(trim_offsets=True, rstrip=("[CLS]",)),
    "whole words first": GPT2._replace(ignore_merges=True, added_tokens=ADDED),
    "added, prefix": GPT2._replace(
        added_tokens=ADDED, lstrip=("[unused0]",), trim_offsets=True, trim_first=False, add_prefix_space=True
    ),
}


def tokenizer_with(rules, pieces=PIECES, merges=MERGES):
    special = dict.fromkeys((*rules.roles.values(), *rules.special_tokens, *rules.added_tokens))
    return BpeTokenizer([*pieces, *special], merges, rules)


def theirs(ours, folder):
    ours.save(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    found = {}
    for name, rules in RULES.items():
        ours = tokenizer_with(rules)
        found[name] = ours, theirs(ours, tmp_path_factory.mktemp("bpe"))
    kept = [piece for piece in PIECES if not set("zÃĊ") & set(piece)]
    merges = [pair for pair in MERGES if not set("zÃĊ") & set("".join(pair))]
    unknown = tokenizer_with(ROBERTA._replace(unknown="<unk>"), kept, merges)
    found["bytes missing"] = unknown, theirs(unknown, tmp_path_factory.mktemp("bpe"))
    return found


def same(ours, expected, types=True):
    """All fields of two encodings are equal, except that the library shows the spaces that a token took."""
    return (
        ours.ids == expected.ids
        and ours.offsets == expected.offsets
        and ours.word_ids == expected.word_ids
        and (ours.type_ids == expected.type_ids or not types)
        and ours.attention_mask == expected.attention_mask
    )


FUZZ = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


def any_text(pairs, text, pair, name):
    """Ids, offsets and word ids of any text and pair, under the rules of any model; and what they decode to."""
    ours, reference = pairs[name]
    expected = reference.encode(text)
    assert same(ours.encode_batch([text])[0], expected)
    assert ours.ids([text])[0] == reference.encode(text, add_special_tokens=False).ids
    assert ours.decode(expected.ids) == reference.decode(expected.ids, skip_special_tokens=False)
    skipped = reference.decode(expected.ids, skip_special_tokens=True)
    assert ours.decode(expected.ids, skip_special_tokens=True) == skipped
    for special in (True, False):
        encoding = ours.encode_batch([(text, pair)], add_special_tokens=special)[0]
        expected = reference.encode(text, pair, add_special_tokens=special)
        assert same(encoding, expected, types="cls" in ours.roles)  # GPT-2 has no token types, so ours are all 0


NAMES = st.sampled_from([*RULES, "bytes missing"])
test_any_text = FUZZ(given(text=TEXTS, pair=TEXTS, name=NAMES)(any_text))
test_any_text_at_length = pytest.mark.slow(
    settings(FUZZ, max_examples=30_000)(given(text=TEXTS, pair=TEXTS, name=NAMES)(any_text))
)


@FUZZ
@given(text=TEXTS)
def test_special_tokens_as_text(pairs, text):
    """special=False is the library's encode_special_tokens: added tokens that are not special are still found."""
    for name in ("RoBERTa", "ModernBERT"):
        ours, reference = pairs[name]
        reference.encode_special_tokens = True
        expected = reference.encode(text)
        reference.encode_special_tokens = False
        assert same(ours.encode_batch([text], special=False)[0], expected)


PARTS_OF_BYTES = [b"\xff", b"\xc3", b"\xa9", b"\xe6\x9d", b"\xf0\x9f\x98", b" the", b" ", b"\n", b"ab", b"\xed\xa0\x80"]
BYTES = st.one_of(
    st.binary(max_size=60), TEXTS.map(str.encode), st.lists(st.sampled_from(PARTS_OF_BYTES), max_size=12).map(b"".join)
)


@FUZZ
@given(data=BYTES)
def test_any_bytes(pairs, data):
    """Words of any bytes, UTF-8 or not, are merged as the library's model merges them; all bytes survive."""
    ours, reference = pairs["GPT-2"]
    ids = ours.encode_bytes(data)
    assert ours.decode_bytes(ids) == data
    expected = []
    for word in words(data.decode("utf-8", "surrogateescape")):
        expected += [token.id for token in reference.model.tokenize(written(as_bytes(word)))]
    assert ids == expected
    assert ours.decode(ids) == reference.decode(ids)


# ---- files that others open


@pytest.mark.parametrize("name", RULES)
def test_files_of_either_side(tmp_path, name):
    """A tokenizer.json that the library saved again can be read back, with the same rules."""
    ours = tokenizer_with(RULES[name])
    theirs(ours, tmp_path).save(str(tmp_path / "again.json"))
    (tmp_path / "again.json").rename(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint


@pytest.mark.parametrize("name", ["GPT-2", "RoBERTa", "RoBERTa, prefix, trimmed", "DeBERTa", "ModernBERT"])
def test_transformers_opens_what_we_save(tmp_path, name):
    """`AutoTokenizer` gives the same ids, offsets and special tokens; what it saves can be read back."""
    transformers = pytest.importorskip("transformers")
    rules = RULES[name]
    ours = tokenizer_with(rules._replace(trim_first=not rules.add_prefix_space))
    ours.save(tmp_path)
    other = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = GOLDEN["texts"]
    a = ours(texts, padding=True, return_offsets_mapping=True)
    b = other(texts, padding=True, return_offsets_mapping=True)
    for field in ("input_ids", "attention_mask", "offset_mapping"):
        assert a[field] == b[field]
    for role, token in ours.roles.items():
        if role in ("mask", "pad", "cls", "sep") and "cls" in ours.roles:
            assert getattr(other, f"{role}_token") == token
    other.save_pretrained(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again")
    assert again.ids(texts) == ours.ids(texts) and again.roles == ours.roles


@pytest.mark.parametrize("kind", ["RobertaTokenizer", "GPT2Tokenizer"])
def test_vocab_and_merges_of_either_side(tmp_path, kind):
    """transformers reads our vocab.json and merges.txt; without tokenizer.json it leaves spaces before the mask."""
    transformers = pytest.importorskip("transformers")
    ours = gpt2() if kind == "GPT2Tokenizer" else roberta(lstrip=())
    ours.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    other = getattr(transformers, kind).from_pretrained(tmp_path)
    texts = GOLDEN["texts"]
    a = ours(texts, return_offsets_mapping=True)
    b = other(texts, return_offsets_mapping=True)
    assert a["input_ids"] == b["input_ids"] and a["offset_mapping"] == b["offset_mapping"]


# ---- training


def test_training_finds_the_same_merges():
    """On lines of several kinds, with many ties, for several sizes."""
    generator = random.Random(0)
    parts = [
        "the",
        " cat",
        " running",
        "ab",
        "aaa",
        "  ",
        "\n",
        "é",
        "東京",
        " 20",
        ",",
        "'s",
        "x",
        " unaffable",
        "\n\n",
    ]
    for size in (270, 300, 400):
        texts = ["".join(generator.choices(parts, k=30)) for _ in range(30)]
        reference = tokenizers.Tokenizer(tokenizers.models.BPE())
        reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            special_tokens=list(ROBERTA.roles.values()),
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        reference.train_from_iterator(texts, trainer)
        expected = json.loads(reference.to_str())["model"]["merges"]
        assert [list(pair) for pair in learn(iter(texts), size, progress=False)[1]] == expected


# ---- real vocabularies and text


def published(rules):
    """GPT-2's pieces and merges, with the special tokens and ids of GPT-2, or of RoBERTa."""
    vocab = json.loads(gzip.decompress((DATA / "vocab" / "gpt2-vocab.json.gz").read_bytes()))
    lines = gzip.decompress((DATA / "vocab" / "gpt2-merges.txt.gz").read_bytes()).decode().split("\n")
    pieces = list(vocab)
    if rules is ROBERTA:
        pieces = [*list(ROBERTA.roles.values())[:4], *pieces[:-1], "<mask>"]
    return BpeTokenizer(pieces, [line.split(" ") for line in lines[1:] if line], rules)


@needs_vocabulary
def test_published_pieces_are_spelt_as_themselves():
    """Every piece of GPT-2's vocabulary is the spelling of its bytes; that is what `Speller` relies on."""
    ours = published(GPT2)
    assert ours._speller.regular and len(ours) == 50_257
    model = theirs_of(ours).model
    for token in random.Random(0).sample(ours.tokens, 2000):
        assert [piece.value for piece in model.tokenize(token)] == [token] or token == "<|endoftext|>"
        raw = unwritten(token)
        assert ours._speller.merge(raw) == ours._speller.spell(raw)


def theirs_of(ours):
    merges = [tuple(pair) for pair in ours.merges]
    reference = tokenizers.Tokenizer(tokenizers.models.BPE(dict(ours.vocab), merges))
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return reference


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "pretrain").is_dir(), reason="needs ../shared/data/pretrain")
@pytest.mark.parametrize("name", ["GPT-2", "RoBERTa", "bpe-8k"])
def test_every_line(name):
    """On all lines of the Wikipedia and book text, ids, offsets and word ids are equal, without exception."""
    ours = load_tokenizer(name) if name == "bpe-8k" else published(RULES[name])
    reference = theirs_of(ours)
    trim = ours.conventions.trim_offsets
    reference.post_processor = tokenizers.processors.ByteLevel(trim_offsets=trim, add_prefix_space=False)
    count = 0
    for path in sorted((DATA / "pretrain").glob("*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
            while lines := [line.removesuffix("\n") for line in islice(file, 4000)]:
                expected = reference.encode_batch(lines)
                for line, ids, encoding in zip(lines, ours.ids(lines, special=False), expected, strict=True):
                    offsets, word_ids = ours.spans(line, special=False, ids=ids)
                    assert ids == encoding.ids and offsets == encoding.offsets and word_ids == encoding.word_ids, line
                count += len(lines)
    print(f"{name}: {count:,} lines, all equal")
    assert count >= 331_000
