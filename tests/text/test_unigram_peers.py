"""Compared live with `sentencepiece`, `tokenizers` and `transformers`: ids, offsets, normalisers, files."""

import base64
import io
import json
import lzma
import random
import unicodedata
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mini_bert.text.loading import load_tokenizer
from mini_bert.text.mark_tables import EXTENDING, OTHER_MARKS, UNDIVIDED_COMPATIBLY
from mini_bert.text.sentencepiece_model import CHARACTER_MAP, SentencePieceModel
from mini_bert.text.unicode_tables import MARKS, UNDIVIDED
from mini_bert.text.unigram import UnigramTokenizer

pytestmark = pytest.mark.peers
sentencepiece = pytest.importorskip("sentencepiece")
tokenizers = pytest.importorskip("tokenizers")

DATA = Path(__file__).parents[2].parent / "shared" / "data"
ALBERT = DATA / "vocab" / "albert-spiece.model"
needs_albert = pytest.mark.skipif(not ALBERT.is_file(), reason="needs ../shared/data/vocab/albert-spiece.model")
EVERYTHING = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
FUZZ = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = (  # noqa: SIM905
    "the a of and in to was naïve Zoë's straße, 2000, 1,234.56 (so) ``quoted'' don't -- £5 café résumé ﬁnally ½ of it "
    "日本 東京 한국어 Ελληνικά русский aaaa aaa banana bananas ababab zebra unaffable The THE Hello HELLO World."
).split()


def sentences(count=400, seed=0):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=12)) for _ in range(count)]


def trained(**options):
    """A SentencePiece model of a few hundred pieces, as bytes."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()),
        model_writer=out,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 150, "model_type": "unigram", "character_coverage": 0.98} | options,
    )
    return out.getvalue()


MODELS = {
    "nmt_nfkc": {},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "identity": {"normalization_rule_name": "identity"},
    "symbols": {"user_defined_symbols": ["don", "▁(", "½", "a b", "aa"], "control_symbols": ["<sep>", "<cls>"]},
    "bytes": {"byte_fallback": True, "vocab_size": 400},
    "spaces": {"remove_extra_whitespaces": False},
    "no prefix": {"add_dummy_prefix": False},
    "neither": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "suffix": {"treat_whitespace_as_suffix": True},
    "across words": {"split_by_whitespace": False},
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    """Our tokenizer and theirs, from the same file"""
    path = tmp_path_factory.mktemp("model") / "spiece.model"
    path.write_bytes(trained(**MODELS[request.param]))
    return load_tokenizer(path), sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.fixture(scope="module")
def albert():
    if not ALBERT.is_file():
        pytest.skip("needs ../shared/data/vocab/albert-spiece.model")
    return load_tokenizer(ALBERT), sentencepiece.SentencePieceProcessor(model_file=str(ALBERT))


CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("abcdefgABC 019.,!-'\"()£ "),
    st.sampled_from([*" \t\n\r\u00a0\u3000\u200b\u2581\ufffd\x00\x01\u00ad\u2028"]),
    st.sampled_from([*EXTENDING][:400]),
    st.integers(0x1100, 0x11FF).map(chr),
    st.integers(0xAC00, 0xD7A3).map(chr),
    st.integers(0x3040, 0x30FF).map(chr),
    st.integers(0xFB00, 0xFDFF).map(chr),
    st.integers(0x0900, 0x0DFF).map(chr),
)
CHUNKS = st.one_of(
    CHARACTERS, st.sampled_from(WORDS), st.sampled_from(["  ", " the", "aaaaaaa", "e\u0301", "▁a", "``"])
)
TEXTS = st.lists(CHUNKS, max_size=24).map("".join)


# ---- SentencePiece


@FUZZ
@given(text=TEXTS)
def test_any_text(pair, text):
    """With every setting of the normaliser, the normalised text and the ids are those of the library; so is the text
    that ids are decoded to."""
    ours, theirs = pair
    assert ours.text.normalised(text) == ours.text.traced(text).text == theirs.normalize(text)
    ids = theirs.encode(text)
    assert ours.ids([text], special=False) == [ids]
    if ours.unk_id not in ids:
        assert ours.decode(ids) == theirs.decode(ids)


@FUZZ
@given(raw=st.lists(st.one_of(st.binary(max_size=5), CHUNKS.map(str.encode)), max_size=20).map(b"".join))
def test_raw_bytes(pair, raw):
    """Bytes that are not UTF-8, decoded with errors="surrogateescape"."""
    ours, theirs = pair
    assert ours.ids([raw.decode("utf-8", "surrogateescape")], special=False) == [theirs.encode(raw)]


@FUZZ
@given(text=TEXTS)
def test_any_text_with_alberts_pieces(albert, text):
    """The published vocabulary: 30,000 pieces, 8 user-defined symbols."""
    ours, theirs = albert
    assert ours.text.normalised(text) == ours.text.traced(text).text == theirs.normalize(text)
    assert ours.ids([text], special=False) == [theirs.encode(text)]


@FUZZ
@given(raw=st.binary(max_size=40))
def test_raw_bytes_with_alberts_pieces(albert, raw):
    ours, theirs = albert
    assert ours.ids([raw.decode("utf-8", "surrogateescape")], special=False) == [theirs.encode(raw)]


def test_every_code_point_is_normalised_as_by_the_library(albert):
    """Each of the 1,112,064 characters between two letters, with ALBERT's character map (NFKC)."""
    ours, theirs = albert
    for first in range(0, len(EVERYTHING), 4096):
        text = "".join(f"a{character}e" for character in EVERYTHING[first : first + 4096])
        assert ours.text.normalised(text) == theirs.normalize(text), f"from U+{ord(EVERYTHING[first]):04X}"


@FUZZ
@given(words=st.lists(st.text("ab", max_size=30), min_size=1, max_size=30), long=st.integers(1, 3000))
def test_ties_are_decided_by_the_library_s_rounding(words, long):
    """Pieces whose sums are equal or nearly equal, after a text of any length."""
    scores = {"▁": -1.1, "a": -2.3, "b": -2.4, "aa": -4.6000004, "ab": -4.7, "ba": -4.7000003, "aab": -7.0, "bb": -4.8}
    model = SentencePieceModel.from_bytes(trained())
    pieces = [piece for piece in model.pieces if piece.kind != 1]
    normal = [type(pieces[0])(text, float(np.float32(score))) for text, score in scores.items()]
    data = SentencePieceModel((*pieces, *normal), model.trainer, model.normalizer).to_bytes()
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = from_bytes(data)
    text = " ".join(["ab"] * long + words)
    assert ours.ids([text], special=False) == [theirs.encode(text)]


def from_bytes(data):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spiece.model"
        path.write_bytes(data)
        return load_tokenizer(path)


@FUZZ
@given(
    words=st.lists(st.sampled_from([*(set(WORDS) - {"½", "ﬁnally"}), "日本語"]), max_size=12),
    spaces=st.sampled_from([" ", "  "]),
)
def test_offsets(pair, words, spaces):
    """Each piece has the span that the library gives it, without spaces."""
    ours, theirs = pair
    text = spaces.join(words)
    assume(not any(symbol in text for symbol in ours.symbols))  # the library gives them to one piece as a whole
    encoding = ours.encode_batch([text], add_special_tokens=False, special=False)[0]
    expected = theirs.encode(text, return_type="proto").pieces
    assert encoding.ids == [piece.id for piece in expected]
    for (first, last), piece in zip(encoding.offsets, expected, strict=True):
        begin, end = (len(text.encode()[:place].decode()) for place in (piece.begin, piece.end))  # theirs are bytes
        if ours.byte_fallback and ours.tokens[piece.id].startswith("<0x"):
            assert last == first + 1 and begin == first and end in (first, last)
        elif ours.piece_text(piece.id):
            assert (first, last) == trimmed(text, begin, end)


def trimmed(text, first, last):
    while first < last and text[first].isspace():
        first += 1
    while first < last and text[last - 1].isspace():
        last -= 1
    return first, last


# ---- tokenizer.json

CHARMAP = base64.b64encode(SentencePieceModel.from_bytes(trained()).normalizer.blob(CHARACTER_MAP)).decode()
QUOTES = [{"type": "Replace", "pattern": {"String": two}, "content": '"'} for two in ("``", "''")]
MAP = {"type": "Precompiled", "precompiled_charsmap": CHARMAP}
ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
WHITESPACE = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
PIPELINES = {
    "ALBERT": ([*QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, MAP], WHITESPACE),
    "ALBERT in transformers 4": (
        [*QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, MAP, ONE_SPACE],
        METASPACE,
    ),
    "XLNet": ([*QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, MAP], WHITESPACE),
    "accents kept": ([*QUOTES, MAP], WHITESPACE),
    "DeBERTa": (
        [
            {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
            {"type": "NFC"},
            {"type": "Strip", "strip_left": False, "strip_right": True},
        ],
        METASPACE,
    ),
    "DeBERTa in transformers 4": (
        [{"type": "Strip", "strip_left": True, "strip_right": True}, MAP, ONE_SPACE],
        METASPACE,
    ),
    "T5": (
        [MAP, {"type": "Strip", "strip_left": False, "strip_right": True}, ONE_SPACE | {"content": "▁"}],
        METASPACE,
    ),
    "no prefix, not cut": (
        [{"type": "NFKC"}, {"type": "NFD"}],
        METASPACE | {"prepend_scheme": "never", "split": False},
    ),
    "nothing": ([], METASPACE),
}


def content_of(name, byte_fallback=False, symbols=()):
    """A tokenizer.json with the pieces of a SentencePiece model"""
    model = SentencePieceModel.from_bytes(trained(control_symbols=["[CLS]", "[SEP]", "[MASK]"], pad_id=3))
    vocab = [[piece.text, piece.score] for piece in model.pieces]
    if byte_fallback:
        vocab += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    ids = {text: i for i, (text, _) in enumerate(vocab)}
    normalizers, pre_tokenizer = PIPELINES[name]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = ["<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]"]
    processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, ids[t]) for t in ("[CLS]", "[SEP]")],
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(
            ({"id": ids[text], "content": text, **plain, "special": text in special} for text in [*special, *symbols]),
            key=lambda token: token["id"],
        ),
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": json.loads(processor.__getstate__()),
        "decoder": METASPACE,
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": vocab, "byte_fallback": byte_fallback},
    }


@pytest.fixture(scope="module", params=[*PIPELINES, "bytes", "symbols"])
def json_pair(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "tokenizer.json"
    name = request.param if request.param in PIPELINES else "ALBERT"
    content = content_of(name, request.param == "bytes", ["a", ",", "▁the"] if request.param == "symbols" else ())
    path.write_text(json.dumps(content))
    return Both((load_tokenizer(path), tokenizers.Tokenizer.from_file(str(path))))


class Both(tuple):
    """Our tokenizer and theirs"""

    def __repr__(self):  # theirs shows its whole vocabulary
        return repr(self[0])


@FUZZ
@given(text=TEXTS, second=TEXTS)
def test_any_text_of_a_tokenizer_json(json_pair, text, second):
    """Ids, word ids, token types, and pairs; special tokens are recognised in the text."""
    ours, theirs = json_pair
    for texts in ((text,), (text, second), (f"{text}[MASK] {second}",)):
        expected = theirs.encode(*texts)
        mine = ours.encode_batch([texts if len(texts) == 2 else texts[0]])[0]
        assert mine.ids == expected.ids
        assert mine.type_ids == expected.type_ids
        if ours.text.cut:  # otherwise the library takes a text for one word
            assert mine.word_ids == expected.word_ids


@FUZZ
@given(words=st.lists(st.sampled_from([*(set(WORDS) - {"½", "ﬁnally", "``quoted''"}), "日本語"]), max_size=12))
def test_offsets_of_a_tokenizer_json(json_pair, words):
    """Each piece has the span that the library gives it, without spaces. (Where a replacement is shorter than what it
    replaces, ours covers all of that, and theirs only its end.)"""
    ours, theirs = json_pair
    text = " ".join(words)
    expected = theirs.encode(text)
    for mine, span, i in zip(ours.encode_batch([text])[0].offsets, expected.offsets, expected.ids, strict=True):
        if ours.piece_text(i) and not ours.byte_fallback:
            assert mine == trimmed(text, *span)


@FUZZ
@given(numbers=st.lists(st.integers(0, 10**6), max_size=12), skip=st.booleans())
def test_decoding_with_a_tokenizer_json(json_pair, numbers, skip):
    ours, theirs = json_pair
    ids = [number % len(ours) for number in numbers]
    if not ours.byte_fallback and ours.text.prefix:  # our files say which decoder they need, these do not
        first = next((i for i in ids if not skip or i not in ours.special_ids), None)
        if first is None or not ours.tokens[first].startswith("▁▁"):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_the_tables_are_the_references():
    """Each table is derived again from the library's output."""
    strip = tokenizers.normalizers.StripAccents().normalize_str
    marks = {*MARKS, *OTHER_MARKS}
    out = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        rules = Path("rules.tsv")
        patch.chdir(Path(__file__).parents[2] / ".pytest_cache")
        rules.write_text("61\t62\n")  # a becomes b, together with what belongs to the a
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ab cd"] * 3), model_writer=out, vocab_size=9, hard_vocab_limit=False,
            normalization_rule_tsv=str(rules), minloglevel=2,
        )  # fmt: skip
        rules.unlink()
    blob = SentencePieceModel.from_bytes(out.getvalue()).normalizer.blob(CHARACTER_MAP)
    cluster = tokenizers.normalizers.Precompiled(blob).normalize_str
    assert {c for c in EVERYTHING if strip(c) == ""} == marks
    assert {c for c in EVERYTHING if cluster(f"a{c}") == "b"} == {*EXTENDING}
    for form in ("NFKD", "NFKC", "NFC", "NFD"):
        theirs = getattr(tokenizers.normalizers, form)().normalize_str
        differ = {c for c in EVERYTHING if theirs(c) != unicodedata.normalize(form, c)}
        assert differ <= {*UNDIVIDED, *UNDIVIDED_COMPATIBLY}
        assert all(theirs(c) == c for c in (*UNDIVIDED, *UNDIVIDED_COMPATIBLY) if form in ("NFKD", "NFKC"))


# ---- files that others open


@pytest.mark.parametrize("name", [*PIPELINES])
def test_tokenizers_opens_what_we_save(tmp_path, name):
    """`Tokenizer.from_file` gives the same encodings; a file saved again by the library can be read back."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(content_of(name, symbols=["a"])))
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    for text in sentences(20, 1):
        encoding = ours.encode_batch([(text, "the É東")])[0]
        assert encoding.ids == theirs.encode(text, "the É東").ids
    theirs.save(str(tmp_path / "again.json"))
    again = load_tokenizer(tmp_path / "again.json")
    np.testing.assert_allclose(
        again.scores, ours.scores, rtol=1e-15
    )  # the library reads numbers with an error in the last bit
    assert again.settings | {"scores": 0} == ours.settings | {"scores": 0}


def test_transformers_opens_what_we_learn(tmp_path):
    """`AutoTokenizer` gives the same batches for a tokenizer that we learnt, padded and cut; pairs with token types."""
    transformers = pytest.importorskip("transformers")
    ours = UnigramTokenizer.train(iter(sentences()), vocab_size=200, progress=False)
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = sentences(20, 1)
    mine = ours(texts, padding=True, truncation=True, max_length=20, return_tensors="np")
    other = theirs(texts, padding=True, truncation=True, max_length=20, return_tensors="np")
    pairs, others = (
        ours([*zip(texts, texts[::-1], strict=True)], padding=True),
        theirs(texts, texts[::-1], padding=True),
    )
    assert pairs["token_type_ids"] == others["token_type_ids"]
    for name in mine:
        np.testing.assert_array_equal(mine[name], other[name])
    assert (theirs.pad_token_id, theirs.mask_token_id, theirs.cls_token_id) == (ours.pad_id, ours.mask_id, ours.cls_id)
    theirs.save_pretrained(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").ids(texts) == ours.ids(texts)


@pytest.mark.parametrize("kind", ["AlbertTokenizer", "XLNetTokenizer"])
def test_we_open_what_transformers_saves(tmp_path, kind):
    """A tokenizer.json that `transformers` makes from a spiece.model, with its special tokens and template."""
    transformers = pytest.importorskip("transformers")
    names = {
        "AlbertTokenizer": ["[CLS]", "[SEP]", "[MASK]"],
        "XLNetTokenizer": ["<cls>", "<sep>", "<mask>", "<eop>", "<eod>"],
    }
    (tmp_path / "spiece.model").write_bytes(trained(control_symbols=names[kind], pad_id=3))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "saved")
    ours = load_tokenizer(tmp_path / "saved")
    texts = sentences(20, 1)
    mine = ours(texts, texts[::-1], padding=True, return_tensors="np")
    other = theirs(texts, texts[::-1], padding=True, return_tensors="np", return_token_type_ids=True)
    assert ours.padding_type == (3 if kind == "XLNetTokenizer" else 0)
    mine["token_type_ids"] *= mine["attention_mask"]  # the library has token type 0 for padding
    for name in mine:
        np.testing.assert_array_equal(mine[name], other[name])


@pytest.mark.parametrize("sides", [(), ("lstrip",), ("rstrip",), ("lstrip", "rstrip")], ids="-".join)
@pytest.mark.parametrize("kind", ["AlbertTokenizer", "XLNetTokenizer", "DebertaV2Tokenizer"])
def test_white_space_beside_the_mask(tmp_path, kind, sides):
    """In a folder with a spiece.model, added_tokens_decoder says whether the mask takes the white space beside it: its
    span is that in `transformers`, and so are all ids. What we save says it again."""
    transformers = pytest.importorskip("transformers")
    mask, options = {
        "AlbertTokenizer": ("[MASK]", {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 3}),
        "XLNetTokenizer": ("<mask>", {"control_symbols": ["<cls>", "<sep>", "<mask>"], "pad_id": 3}),
        "DebertaV2Tokenizer": ("[MASK]", {  # which follows the pieces of the model
            f"{name}_{what}": value
            for i, (name, piece) in enumerate([("pad", "[PAD]"), ("bos", "[CLS]"), ("eos", "[SEP]"), ("unk", "[UNK]")])
            for what, value in (("id", i), ("piece", piece))
        }),
    }[kind]  # fmt: skip
    name = "spm.model" if kind == "DebertaV2Tokenizer" else "spiece.model"
    (tmp_path / name).write_bytes(trained(**options))
    config = {"tokenizer_class": kind}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    entry = {"content": mask, "lstrip": "lstrip" in sides, "rstrip": "rstrip" in sides, "special": True}
    entry |= {"normalized": False, "single_word": False}
    config["added_tokens_decoder"] = {str(load_tokenizer(tmp_path).mask_id): entry}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (f"the  {mask}  of it", f" {mask} {mask}{mask} banana", f"the\t{mask}, a{mask}of"):
        mine, other = (one(text, return_offsets_mapping=True, add_special_tokens=False) for one in (ours, theirs))
        assert mine["input_ids"] == other["input_ids"]
        for i, span, reference in zip(mine["input_ids"], mine["offset_mapping"], other["offset_mapping"], strict=True):
            if i == ours.mask_id:
                assert span == reference
                assert (text[span[0]] != mask[0]) <= ("lstrip" in sides)
    ours.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == ours.fingerprint


@pytest.mark.parametrize("name", [*MODELS])
def test_sentencepiece_opens_what_we_save(tmp_path, name):
    """A spiece.model is written byte for byte as it was read. One that is put together again gives the same ids."""
    data = trained(**MODELS[name])
    (tmp_path / "spiece.model").write_bytes(data)
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "spiece.model").read_bytes() == data
    assert load_tokenizer(tmp_path / "saved").fingerprint == ours.fingerprint
    ours.model_file = None
    ours.save(tmp_path / "again")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "again" / "spiece.model"))
    for text in sentences(20, 1):
        assert [theirs.encode(text)] == ours.ids([text], special=False)


# ---- real text


def lines_of(path):
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        while lines := [line.removesuffix("\n") for line in islice(file, 4000)]:
            yield lines


def some_lines():
    """10,000 lines from the middle of each corpus"""
    for path in sorted((DATA / "pretrain").glob("*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
            yield from (line.removesuffix("\n") for line in islice(file, 60_000, 70_000))


@pytest.mark.skipif(not (DATA / "pretrain").is_dir(), reason="needs ../shared/data/pretrain")
def test_some_lines(albert):
    ours, theirs = albert
    lines = list(some_lines())
    assert ours.ids(lines, special=False) == theirs.encode(lines)
    assert len(lines) == 20_000


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "pretrain").is_dir(), reason="needs ../shared/data/pretrain")
@pytest.mark.parametrize("lower", [False, True], ids=["as it is", "lower case"])
def test_every_line(albert, lower):
    """On all lines of the Wikipedia and book text, ids are equal, without exception."""
    ours, theirs = albert
    count = 0
    for path in sorted((DATA / "pretrain").glob("*.txt.xz")):
        for lines in lines_of(path):
            lines = [line.lower() for line in lines] if lower else lines
            for line, mine, other in zip(lines, ours.ids(lines, special=False), theirs.encode(lines), strict=True):
                assert mine == other, line
            count += len(lines)
    print(f"{count:,} lines, all equal")
    assert count >= 331_000


@pytest.mark.slow
@needs_albert
@pytest.mark.skipif(not (DATA / "pretrain").is_dir(), reason="needs ../shared/data/pretrain")
def test_every_line_with_a_tokenizer_json(tmp_path):
    """ALBERT's pieces with the rules of its tokenizer.json: ids and word ids are those of `tokenizers`."""
    model = SentencePieceModel.read(ALBERT)
    content = content_of("ALBERT")
    ids = {piece.text: i for i, piece in enumerate(model.pieces)}
    content["model"] |= {"vocab": [[piece.text, piece.score] for piece in model.pieces], "unk_id": ids["<unk>"]}
    for token in content["added_tokens"]:
        token["id"] = ids[token["content"]]
    content["added_tokens"].sort(key=lambda token: token["id"])
    content["post_processor"] = json.loads(
        tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
        ).__getstate__()
    )
    content["normalizer"]["normalizers"][-1] = MAP | {
        "precompiled_charsmap": base64.b64encode(model.normalizer.blob(CHARACTER_MAP)).decode()
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours, theirs = load_tokenizer(tmp_path), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    count = 0
    for path in sorted((DATA / "pretrain").glob("*.txt.xz")):
        for lines in lines_of(path):
            expected = theirs.encode_batch(lines, add_special_tokens=False)
            for line, mine, other in zip(lines, ours.ids(lines), expected, strict=True):
                assert mine == other.ids, line
            for line, other in list(zip(lines, expected, strict=True))[::20]:
                assert ours.spans(line)[1] == other.word_ids, line
            count += len(lines)
    assert count >= 331_000
