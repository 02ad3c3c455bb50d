"""WordPiece: the worked example, stored outputs of the reference, every option of a call, files, and errors."""

import copy
import gc
import json
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_bert.text import tokenizer_files
from mini_bert.text.encoding import cut
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = [",", "un", "##aff", "##able", "##ably", "the", "a", "##b", "b", "c", ".", "'", "s", "!", "##é"]
VOCAB = [*SPECIAL_TOKENS, *PIECES]
PAD, UNK, CLS, SEP, MASK, COMMA, UN, AFF, ABLE, ABLY, THE, A, INNER_B, B, C = range(15)
CASES = json.loads((Path(__file__).parents[1] / "golden" / "tokenizer_cases.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tok():
    return WordPieceTokenizer(VOCAB)


# ---- the idea


def test_the_worked_example(tok):
    """The example at the top of the module is correct."""
    assert tok.tokenize("Unaffably, the ZEBRA") == ["un", "##aff", "##ably", ",", "the", "[UNK]"]
    assert tok.ids(["Unaffably, the ZEBRA"]) == [[6, 7, 9, 5, 10, 1]]


def longest_match(word, vocab, unk):
    """Greedy longest match by recursion: the definition, without optimisation."""

    def spell(rest, prefix):
        for end in range(len(rest), 0, -1):
            if prefix + rest[:end] in vocab:
                return [vocab[prefix + rest[:end]], *spell(rest[end:], "##")]
        return [] if not rest else [None]

    ids = spell(word, "")
    return (unk,) if None in ids else tuple(ids)


@given(st.text("abc", min_size=1, max_size=12), st.sets(st.text("abc", min_size=1, max_size=4), max_size=12))
def test_match_is_greedy(word, pieces):
    """For any small vocabulary, a word is split according to the definition, and is [UNK] if that fails."""
    tok = WordPieceTokenizer([*SPECIAL_TOKENS, *sorted({p if len(p) % 2 else f"##{p}" for p in pieces})])
    assert tok.match(word) == longest_match(word, tok.vocab, tok.unk_id)


def test_a_word_is_unknown_as_a_whole(tok):
    """If the rest of a word cannot be matched, the pieces found so far are discarded: the word is one [UNK]."""
    assert tok.tokenize("unaffablez un") == ["[UNK]", "un"]


def test_very_long_words_are_unknown():
    """A word of more than 100 characters is [UNK]; the limit can be changed."""
    tok = WordPieceTokenizer([*VOCAB, "##a"])
    assert tok.tokenize("a" * 100) == ["a", *["##a"] * 99]
    assert tok.tokenize("a" * 101) == ["[UNK]"]
    assert WordPieceTokenizer([*VOCAB, "##a"], max_word_chars=3).tokenize("aaa aaaa") == ["a", "##a", "##a", "[UNK]"]


@pytest.mark.parametrize("number", range(len(CASES["settings"])))
def test_stored_answers_of_the_reference(number):
    """For odd texts in every script, with every setting, ids, offsets and word ids equal those of `tokenizers`."""
    tok = WordPieceTokenizer(CASES["vocab"], **CASES["settings"][number])
    encodings = tok.encode_batch(CASES["texts"])
    for text, encoding, (ids, offsets, word_ids) in zip(
        CASES["texts"], encodings, CASES["results"][number], strict=True
    ):
        assert encoding.ids == ids == tok.encode(text), text
        assert [place for pair in encoding.offsets for place in pair] == offsets, text
        assert encoding.word_ids == word_ids, text


# ---- special tokens


def test_special_tokens_in_text(tok):
    """They are found in the raw text, also inside words; similar spellings are text."""
    assert tok.tokenize("a[MASK]b [mask] [MASK") == ["a", "[MASK]", "b", *["[UNK]"] * 5]
    assert tok.ids(["[PAD][UNK][CLS][SEP][MASK]"]) == [[0, 1, 2, 3, 4]]


def test_special_tokens_can_be_left_unrecognised():
    """With ids(…, special=False), they are ordinary text: the same ids as with a space inside."""
    tok = WordPieceTokenizer([*SPECIAL_TOKENS, "[", "]", "sep", "mask", "pad", "##ded", "a", "<e>"])
    for text in ("[SEP]", "a[MASK]a [PAD] [SEP", "[PAD]ded", "a [x] a", "[SEP]\x0b[SEP]"):
        apart = text.replace("[", "[ ")
        assert tok.ids([text, "a"], special=False) == [*tok.ids([apart]), [tok.vocab["a"]]]
    assert tok.ids(["[SEP]"], special=False) == [[5, 7, 6]] and tok.ids(["[SEP]"]) == [[3]]
    extra = WordPieceTokenizer([*tok.tokens, "<", ">", "e"], extra_special_tokens=["<e>"])
    assert extra.ids(["<e>"], special=False) == [[13, 15, 14]] and extra.ids(["<e>"]) == [[12]]


def test_extra_special_tokens():
    """Others can be added; the longest match at the leftmost position is used."""
    tok = WordPieceTokenizer([*VOCAB, "<e>", "<e>>"], extra_special_tokens=["<e>", "<e>>"])
    assert tok.tokenize("a<e>b <e>>c") == ["a", "<e>", "b", "<e>>", "c"]
    assert tok.special_ids == (0, 1, 2, 3, 4, 20, 21)
    assert tok.decode(tok.encode("a<e>b"), skip_special_tokens=True) == "a b"


def test_an_empty_special_token_is_refused():
    """It would match between any two characters."""
    with pytest.raises(ValueError, match="an extra special token is empty"):
        WordPieceTokenizer([*VOCAB, ""], extra_special_tokens=[""])


def test_attributes(tok):
    """Ids of the special tokens, the array of pieces that continue a word, and sizes."""
    assert (tok.pad_id, tok.unk_id, tok.cls_id, tok.sep_id, tok.mask_id) == (0, 1, 2, 3, 4)
    assert tok.vocab_size == len(tok) == len(VOCAB) and tok.tokens == VOCAB and tok.vocab["un"] == UN
    assert [token for token, more in zip(tok.tokens, tok.continues, strict=True) if more] == [
        token for token in VOCAB if token.startswith("##")
    ]
    assert tok.continues.dtype == bool and tok.special_ids == (0, 1, 2, 3, 4)
    assert repr(tok) == "WordPieceTokenizer(20 tokens, lower)"


# ---- encoding


def test_encode_adds_cls_and_sep(tok):
    """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP], or the bare text."""
    assert tok.encode("a b") == [CLS, A, B, SEP]
    assert tok.encode("a", "b c") == [CLS, A, SEP, B, C, SEP]
    assert tok.encode("a b", add_special_tokens=False) == [A, B]
    assert tok.encode("a", "b", add_special_tokens=False) == [A, B]
    assert tok.encode("") == [CLS, SEP] and tok.encode("", "") == [CLS, SEP, SEP]
    assert tok.encode("a b c", truncation=True, max_length=4) == [CLS, A, B, SEP]


def test_an_encoding_knows_where_it_came_from(tok):
    """Offsets cut the pieces out of the text; words are counted from 0 in each text; added tokens have no word."""
    text, pair = "Unaffably, [MASK]", "ab"
    encoding = tok.encode_batch([(text, pair)])[0]
    assert encoding.tokens == ["[CLS]", "un", "##aff", "##ably", ",", "[MASK]", "[SEP]", "a", "##b", "[SEP]"]
    assert encoding.offsets == [(0, 0), (0, 2), (2, 5), (5, 9), (9, 10), (11, 17), (0, 0), (0, 1), (1, 2), (0, 0)]
    assert encoding.word_ids == [None, 0, 0, 0, 1, 2, None, 0, 0, None]
    assert encoding.type_ids == [0] * 7 + [1] * 3 and encoding.attention_mask == [1] * 10
    assert len(encoding) == 10 and repr(encoding).startswith("Encoding([CLS] un ##aff")
    bare = tok.encode_batch([text], add_special_tokens=False)[0]
    assert bare.offsets == encoding.offsets[1:6] and bare.word_ids == [0, 0, 0, 1, 2]


@given(
    st.lists(st.sampled_from([*"ab,.'! é\u00ad\x0b\x1c東\n", "unaffable", "[MASK]", "the "]), max_size=12).map("".join)
)
def test_offsets_point_at_what_was_spelt(text):
    """The text at a piece's offsets is spelt like the piece; ids are the same for all ways of calling."""
    tok = WordPieceTokenizer(VOCAB)
    encoding = tok.encode_batch([text], add_special_tokens=False)[0]
    assert encoding.ids == tok.ids([text])[0] == tok.encode(text)[1:-1]
    for token, (first, last) in zip(encoding.tokens, encoding.offsets, strict=True):
        spelt = "".join(tok.splitter.words(text[first:last])) if token not in SPECIAL_TOKENS else text[first:last]
        assert token == "[UNK]" or spelt == token.removeprefix("##")
    numbers = [word for word in encoding.word_ids if word is not None]
    assert numbers == sorted(numbers) and set(numbers) == set(range(len(set(numbers))))


@pytest.mark.parametrize("choice", [(True, None), (False, None), (False, True)])
@given(
    text=st.lists(
        st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from([*"abc,. \t\n—é東", "Hello "]))
    ).map("".join)
)
def test_spans_from_ids(choice, text):
    """With the ids of a text, or of its beginning, spans are found without its words: the same ones."""
    tok = WordPieceTokenizer(CASES["vocab"], *choice)
    ids = tok.ids([text], special=False)[0]
    offsets, word_ids, _ = tok.plain_spans(text)
    for length in (len(ids), len(ids) // 2):
        found = tok.spans_of_ids(text, ids[:length])
        assert (found[0][:length], found[1][:length]) == (offsets[:length], word_ids[:length])


def test_call_on_one_text_a_pair_and_batches(tok):
    """One text gives flat lists, a batch gives lists of lists; pairs are a second argument or tuples."""
    assert tok("a b") == {"input_ids": [CLS, A, B, SEP], "token_type_ids": [0] * 4, "attention_mask": [1] * 4}
    assert tok("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]
    batch = tok(["a", "b c"])
    assert batch["input_ids"] == [[CLS, A, SEP], [CLS, B, C, SEP]]
    assert tok(["a", "b"], ["c", "a"])["input_ids"] == [[CLS, A, SEP, C, SEP], [CLS, B, SEP, A, SEP]]
    assert tok([("a", "c"), ("b", "a")]) == tok(["a", "b"], ["c", "a"])
    assert tok([])["input_ids"] == []
    assert tok(["ab c"]).word_ids(0) == [None, 0, 0, 1, None] and tok("ab").tokens() == ["[CLS]", "a", "##b", "[SEP]"]


def test_padding(tok):
    """To the longest of the batch or to max_length: [PAD], type 0, attention 0, no word id, offsets (0, 0)."""
    batch = tok(["a", "b c"], padding=True, return_offsets_mapping=True)
    assert batch["input_ids"] == [[CLS, A, SEP, PAD], [CLS, B, C, SEP]]
    assert batch["attention_mask"] == [[1, 1, 1, 0], [1] * 4]
    assert batch["offset_mapping"][0] == [(0, 0), (0, 1), (0, 0), (0, 0)] and batch.word_ids(0) == [None, 0, None, None]
    assert tok(["a", "b c"], padding="longest") == tok(["a", "b c"], padding=True)
    assert tok("a", "b", padding="max_length", max_length=7)["token_type_ids"] == [0, 0, 0, 1, 1, 0, 0]
    assert len(tok("a b c", padding="max_length", max_length=2)["input_ids"]) == 5  # padding never cuts


def test_arrays(tok):
    """return_tensors="np": int64 arrays (B,T), offsets (B,T,2), also for one text and for none."""
    batch = tok(["a", "b c"], padding=True, return_tensors="np", return_offsets_mapping=True)
    assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
        "input_ids": ((2, 4), np.int64),
        "token_type_ids": ((2, 4), np.int64),
        "attention_mask": ((2, 4), np.int64),
        "offset_mapping": ((2, 4, 2), np.int64),
    }
    assert tok("a", return_tensors="np")["input_ids"].tolist() == [[CLS, A, SEP]]
    assert tok([], return_tensors="np")["input_ids"].shape == (0, 0)


def one_by_one(lengths, space):
    """ "Longest first", literally: remove a token from the longer text until all fits; if both are equally long, from
    the one that was shorter originally (or the first)."""
    lengths, order = list(lengths), sorted(range(len(lengths)), key=lambda i: lengths[i])
    while sum(lengths) > space:
        lengths[max(order, key=lambda i: (lengths[i], -order.index(i)))] -= 1
    return lengths


@given(st.lists(st.integers(0, 30), min_size=1, max_size=2), st.integers(0, 50))
def test_longest_first(lengths, space):
    """The closed form gives the same lengths as removing one token at a time."""
    assert cut(lengths, space, True) == one_by_one(lengths, space)


def test_truncation(tok):
    """Which text is cut, and that offsets and word ids are cut with it."""
    pair = {"text": "a b c", "pair": "a b c b", "max_length": 8}
    assert tok(**pair, truncation=True)["input_ids"] == [CLS, A, B, SEP, A, B, C, SEP]
    assert tok(**pair, truncation="only_first")["input_ids"] == [CLS, A, SEP, A, B, C, B, SEP]
    assert tok(**pair, truncation="only_second")["input_ids"] == [CLS, A, B, C, SEP, A, B, SEP]
    encoded = tok("ab ab ab", truncation=True, max_length=5, return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (3, 4), (0, 0)] and encoded.word_ids() == [
        None, 0, 0, 1, None
    ]  # fmt: skip
    assert tok("a b", truncation=True, max_length=2)["input_ids"] == [CLS, SEP]
    assert tok("a b", truncation=True, max_length=1, add_special_tokens=False)["input_ids"] == [A]


# ---- decoding


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("Unaffably, the unaffable.", "unaffably, the unaffable."),
        ("a! b, c", "a! b, c"),
        ("a's", "a ' s"),  # the reference looks at each piece alone, and so leaves these apart
        ("", ""),
    ],
)
def test_decode(tok, text, decoded):
    """Pieces are joined, punctuation is attached to its word, special tokens are kept or removed."""
    ids = tok.encode(text)
    assert tok.decode(ids, skip_special_tokens=True) == decoded
    assert tok.decode(np.array(ids)) == f"[CLS] {decoded} [SEP]".replace("  ", " ").replace(" .", ".")


def test_decode_of_a_piece_without_its_word(tok):
    """A continuing piece at the beginning keeps its ##, because there is nothing to join it to."""
    assert tok.decode([ABLE, A, INNER_B]) == "##able ab" and tok.decode([]) == ""


def test_spelling_survives(tok):
    """Text in the alphabet of the vocabulary, with canonical spacing, survives the round trip."""
    for text in ("the unaffable ab, a b.", "un un! c"):
        assert tok.decode(tok.encode(text), skip_special_tokens=True) == text


# ---- memory and copies


def test_caches_are_bounded_and_change_nothing(monkeypatch):
    """Endless new chunks do not grow the caches, overlong ones are not kept, and the ids stay the same."""
    monkeypatch.setattr("mini_bert.text.wordpiece.CHUNKS_KEPT", 16)
    monkeypatch.setattr("mini_bert.text.wordpiece.SPANS_KEPT", 8)
    small, large = WordPieceTokenizer(CASES["vocab"]), WordPieceTokenizer(CASES["vocab"])
    large._words.entries = large._chunks.entries = large._spans.entries = 10**6
    texts = [f"h{i} hello{i}, {i}." for i in range(200)] + ["hello" * 20, *CASES["texts"]]
    texts += [f"{text} \u302e" for text in texts]  # a mark that quick_words leaves to the chunks
    for text in texts:
        assert small.ids([text]) == large.ids([text]) and small.spans(text) == large.spans(text)
        assert len(small._chunks) <= 16 and len(small._words) <= 16 and len(small._spans) <= 8
    assert not any("hello" * 20 in memory for memory in (large._words, large._chunks, large._spans))
    assert len(large._chunks) > 200 and len(large._words) > 200


def test_garbage_collection_is_left_as_it_was(tok):
    """`ids` pauses it, but not while a caller's iterator runs; afterwards it is on or off as before, also after an
    error."""
    for switch, on in ((gc.disable, False), (gc.enable, True)):
        switch()
        assert tok.ids(text for text in ("a", "b") if gc.isenabled() == on) == tok.ids(["a", "b"])
        with pytest.raises(TypeError):
            tok.ids(["a", None])
        assert gc.isenabled() == on


def test_copies(tok):
    """Pickle and copy give an equal tokenizer; a pickle contains no cache, so it stays small."""
    tok.ids(["a b c " * 100])
    assert len(pickle.dumps(tok)) < 1000
    for twin in (pickle.loads(pickle.dumps(tok)), copy.deepcopy(tok)):
        assert twin.fingerprint == tok.fingerprint and twin.encode("ab, the é") == tok.encode("ab, the é")
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.map(tok.encode, ["ab", "c"]) == [tok.encode("ab"), tok.encode("c")]


def test_from_pretrained(tok, tmp_path):
    """As people know it from other libraries: from a folder, a file, a bundled model or a bundled tokenizer."""
    tok.save(tmp_path)
    for source in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path / "vocab.txt")):
        assert WordPieceTokenizer.from_pretrained(source).fingerprint == tok.fingerprint
    bundled = WordPieceTokenizer.load("8k")
    assert WordPieceTokenizer.from_pretrained("mini-bert").fingerprint == bundled.fingerprint
    assert WordPieceTokenizer.from_pretrained("8k").fingerprint == bundled.fingerprint
    with pytest.raises(FileNotFoundError, match="no file or folder nowhere"):
        WordPieceTokenizer.from_pretrained("nowhere")


def test_fingerprint_tells_tokenizers_apart():
    """It depends on the vocabulary, its order and every setting."""
    variants = [
        WordPieceTokenizer(VOCAB),
        WordPieceTokenizer([*VOCAB[:5], *reversed(PIECES)]),
        WordPieceTokenizer([*VOCAB, "x"]),
        WordPieceTokenizer(VOCAB, lowercase=False),
        WordPieceTokenizer(VOCAB, strip_accents=False),
        WordPieceTokenizer(VOCAB, chinese_spacing=False),
        WordPieceTokenizer(VOCAB, max_word_chars=99),
        WordPieceTokenizer(VOCAB, extra_special_tokens=["the"]),
    ]
    assert len({tok.fingerprint for tok in variants}) == len(variants)
    assert WordPieceTokenizer(VOCAB).fingerprint == WordPieceTokenizer(VOCAB, True, True).fingerprint
    assert len(variants[0].fingerprint) == 64 and int(variants[0].fingerprint, 16)


# ---- files

SETTINGS = [
    {},
    {"lowercase": False},
    {"strip_accents": False, "chinese_spacing": False},
    {"max_word_chars": 7, "extra_special_tokens": ("the",)},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_saved_and_loaded(tmp_path, settings):
    """A folder, its tokenizer.json, and, where that is sufficient, its vocab.txt give the same tokenizer."""
    tok = WordPieceTokenizer([*VOCAB, "\u2028x", "x\x85", "é"], **settings)
    tok.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for source in (folder, str(folder), folder / "tokenizer.json"):
        assert WordPieceTokenizer.load(source).fingerprint == tok.fingerprint
    if "max_word_chars" not in settings:
        (folder / "tokenizer.json").unlink()
        for source in (folder, folder / "vocab.txt"):
            assert WordPieceTokenizer.load(source).fingerprint == tok.fingerprint


def test_a_bare_vocab_txt_with_capitals_is_read_as_cased(tmp_path, caplog):
    """Lower-cased, its texts would be unknown words. What a file or the caller says about it decides, silently."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, "C", "##C", "c", "o", "[unused1]"]) + "\n")
    assert WordPieceTokenizer.load(path).tokenize("CC o") == ["C", "##C", "o"]
    assert "has 2 tokens with capital letters, so texts keep theirs" in caplog.text
    caplog.clear()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert WordPieceTokenizer.load(path).tokenize("C o") == ["c", "o"] and not caplog.text
    (tmp_path / "tokenizer_config.json").unlink()
    path.write_text("\n".join([*SPECIAL_TOKENS, "c", "o", "[UNUSED1]"]) + "\n")
    assert WordPieceTokenizer.load(path).tokenize("C o") == ["c", "o"] and not caplog.text


def test_a_bare_vocab_txt(tmp_path):
    """One token per line; Windows line endings, a byte order mark and a missing final newline make no difference."""
    plain = "\n".join(VOCAB)
    for raw in (plain, plain + "\n", plain.replace("\n", "\r\n") + "\r\n", "\ufeff" + plain):
        (tmp_path / "vocab.txt").write_bytes(raw.encode())
        assert WordPieceTokenizer.load(tmp_path / "vocab.txt").tokens == VOCAB
    assert WordPieceTokenizer.load(tmp_path).splitter.lowercase
    assert not WordPieceTokenizer.load(tmp_path, lowercase=False).splitter.lowercase
    assert not WordPieceTokenizer.load(tmp_path, lowercase=False).splitter.strip_accents
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not WordPieceTokenizer.load(tmp_path).splitter.lowercase


@pytest.mark.parametrize("name", ["8k", "tokenizer_8k.json", "8k.json"])
def test_bundled(tmp_path, monkeypatch, name):
    """Bundled tokenizers are loaded by name; a file or folder of that name takes precedence."""
    monkeypatch.setattr(tokenizer_files, "BUNDLED", tmp_path / "vocabularies")
    monkeypatch.chdir(tmp_path)
    WordPieceTokenizer(VOCAB).save(tmp_path / "vocabularies" / "8k")
    assert WordPieceTokenizer.load(name).tokens == VOCAB
    WordPieceTokenizer([*VOCAB, "own"]).save(tmp_path / "own")
    (tmp_path / "own" / "tokenizer.json").rename(tmp_path / "tokenizer_8k.json")
    assert len(WordPieceTokenizer.load("tokenizer_8k.json")) == len(VOCAB) + 1
    with pytest.raises(FileNotFoundError, match=r"no file or folder 9k, and no bundled tokenizer.*or one of 8k"):
        WordPieceTokenizer.load("9k")


def saved(tmp_path, **changes):
    WordPieceTokenizer(VOCAB).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = content
        for name in parents:
            place = place[name]
        place[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path / "tokenizer.json"


def test_what_published_files_vary_in(tmp_path):
    """Files without a model type or with BertProcessing, with truncation and padding set, or with added tokens at the
    end, load."""
    path = saved(
        tmp_path,
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        truncation={"max_length": 128, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": {"Fixed": 128}},
        added_tokens=[{"id": len(VOCAB), "content": "<x>", "special": True, "normalized": False}],
    )
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["model"]["type"]
    path.write_text(json.dumps(content), encoding="utf-8")
    tok = WordPieceTokenizer.load(path)
    assert tok.tokens == [*VOCAB, "<x>"] and tok.tokenize("a<x>b") == ["a", "<x>", "b"]
    tok.save(tmp_path / "again")
    assert WordPieceTokenizer.load(tmp_path / "again").fingerprint == tok.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__type": "BPE"}, "a tokenizer of type 'BPE', expected WordPiece"),
        ({"model__type": "Unigram", "model__vocab": [["a", 0.0]]}, "a tokenizer of type 'Unigram', expected WordPiece"),
        ({"model__unk_token": "<unk>"}, "model's unk_token is <unk>, expected"),
        ({"model__continuing_subword_prefix": "@@"}, "continuing_subword_prefix is @@, expected ##"),
        ({"normalizer": {"type": "NFC"}}, "its normalizer is NFC, expected BertNormalizer"),
        ({"normalizer": None}, "its normalizer is None, expected BertNormalizer"),
        ({"normalizer__clean_text": False}, "clean_text is False, expected true"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "its pre_tokenizer is ByteLevel, expected BertPreTokenizer"),
        ({"post_processor": {"type": "RobertaProcessing"}}, "post_processor is RobertaProcessing, expected BertProc"),
        ({"post_processor__single": []}, "post_processor.single has the texts none, expected A"),
        ({"added_tokens": [{"id": 4, "content": "[MASK]", "lstrip": True}]}, r"token '\[MASK\]' is lstrip"),
        ({"model__vocab": {"[PAD]": 0, "[UNK]": 2}}, r"no token has id 1 \('\[UNK\]' has 2\)"),
        ({"model": {"type": "WordPiece"}}, "is not a tokenizer.json: it has no model with a vocabulary"),
        ({"model": []}, "is not a tokenizer.json: it has no model with a vocabulary"),
    ],
)
def test_other_kinds_are_refused_by_name(tmp_path, changes, message):
    """A tokenizer.json with settings that differ from BERT's is refused, and the error says which part."""
    changes = {"added_tokens": [], **changes} if "model__vocab" in changes else changes
    with pytest.raises(ValueError, match=message) as caught:
        WordPieceTokenizer.load(saved(tmp_path, **changes))
    assert "tokenizer.json" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"added_tokens": "x"}, "added_tokens is 'x', expected a list"),
        ({"added_tokens": {"a": 1}}, "added_tokens is {'a': 1}, expected a list"),
        ({"added_tokens": ["x"]}, r"added_tokens\[0\] is 'x', expected an object"),
        ({"added_tokens": [{"id": 5}]}, r"added_tokens\[0\]\.content is None, expected text"),
        ({"added_tokens": [{"content": ["a"], "id": 5}]}, r"added_tokens\[0\]\.content is \['a'\], expected text"),
        ({"added_tokens": [{"content": "a", "id": "5"}]}, r"added_tokens\[0\]\.id is '5', expected a whole number"),
        ({"model__vocab": ["a", "b"]}, r"model\.vocab is \['a', 'b'\], expected an object of tokens"),
        ({"model__vocab": {"a": "0"}}, r"model\.vocab\['a'\] is '0', expected a whole number"),
        ({"model__vocab": {"a": True}}, r"model\.vocab\['a'\] is True, expected a whole number"),
        ({"model__vocab": {"a": None, "b": 1}}, r"model\.vocab\['a'\] is None"),
        ({"model__max_input_chars_per_word": "9"}, r"model\.max_input_chars_per_word is '9', expected a number"),
        ({"model__max_input_chars_per_word": 0}, r"model\.max_input_chars_per_word is 0, expected a number"),
        ({"normalizer__lowercase": "no"}, r"normalizer\.lowercase is 'no', expected true or false"),
        ({"normalizer__strip_accents": 1}, r"normalizer\.strip_accents is 1, expected true or false"),
        ({"normalizer__handle_chinese_chars": []}, r"normalizer\.handle_chinese_chars is \[\], expected true or false"),
        ({"normalizer": []}, "normalizer is None, expected BertNormalizer"),
        ({"post_processor": "x"}, "post_processor is None, expected BertProcessing"),
    ],
)
def test_wrong_types_are_named(tmp_path, changes, message):
    """A field of the wrong type is named, in one sentence."""
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer.load(saved(tmp_path, **changes))


@pytest.mark.parametrize("field", ["do_lower_case", "tokenize_chinese_chars", "strip_accents"])
def test_wrong_types_beside_a_vocabulary(tok, tmp_path, field):
    """So is one in tokenizer_config.json, which belongs to a vocab.txt."""
    tok.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({field: "yes"}))
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json: {field} is 'yes', expected true or false"):
        WordPieceTokenizer.load(tmp_path / "vocab.txt")


def test_wrong_files_are_named(tmp_path):
    """A pickle, a folder without a tokenizer, invalid JSON, text that is not UTF-8."""
    with pytest.raises(ValueError, match=r"tok\.pkl is a pickle, and loading a pickle runs whatever code.*\.save"):
        WordPieceTokenizer.load(tmp_path / "tok.pkl")
    with pytest.raises(FileNotFoundError, match=r"has neither tokenizer\.json nor vocab\.txt"):
        WordPieceTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not valid JSON"):
        WordPieceTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tokenizer\.json contains a list, expected an object"):
        WordPieceTokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab\.txt is not UTF-8 text.*one token per line"):
        WordPieceTokenizer.load(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"vocab\.txt is not a vocabulary.* its 0 lines contain none of these"):
        WordPieceTokenizer.load(tmp_path / "vocab.txt")
    (tmp_path / "notes.txt").write_text("The cat sat on the mat.\nIt was tired.\n")
    match = r"notes\.txt is not a vocabulary.*its 2 lines contain none .*: `mini-bert tokenizer train .*notes\.txt"
    with pytest.raises(ValueError, match=match):
        WordPieceTokenizer.load(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    with pytest.raises(ValueError, match=r"notes\.txt is not a vocabulary for BERT: it lacks \[MASK\]"):
        WordPieceTokenizer.load(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match=r"the token 'a\\nb' contains a line break"):
        WordPieceTokenizer([*VOCAB, "a\nb"]).save(tmp_path)


# ---- errors


@pytest.mark.parametrize(
    ("vocab", "error", "message"),
    [
        ([], ValueError, r"the vocabulary is empty; expected special tokens"),
        (["a"], ValueError, r"lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]; WordPieceTokenizer needs"),
        ([token for token in VOCAB if token != "[UNK]"], ValueError, r"of 19 tokens lacks \[UNK\]"),
        ([*VOCAB, "the"], ValueError, "has 'the' twice, as ids 10 and 20"),
        ([*VOCAB, b"x"], TypeError, "token 20 of the vocabulary is b'x', a bytes, expected str"),
        ("abc", TypeError, "vocab is a str, expected a list of tokens"),
        ({"a": 0}, TypeError, "vocab is a dict, expected a list.*sorted"),
    ],
)
def test_bad_vocabularies(vocab, error, message):
    """Each error names the problem and says what to do."""
    with pytest.raises(error, match=message):
        WordPieceTokenizer(vocab)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.encode(b"a"), TypeError, r'expected text \(str\), got bytes.*value.decode\("utf-8"\)'),
        (lambda t: t.encode(None), TypeError, "got NoneType: None; is a field missing"),
        (lambda t: t.encode("a", 5), TypeError, r"got int: 5; convert it with str"),
        (lambda t: t.tokenize(["a"]), TypeError, "got list.*flat list of texts"),
        (lambda t: t.ids("abc"), TypeError, r"got one str; write ids\(\[text\]\)"),
        (lambda t: t.ids(["a", None]), TypeError, "got NoneType"),
        (lambda t: t.encode_batch("abc"), TypeError, r"write encode_batch\(\[text\]\)"),
        (lambda t: t.encode_batch([["a", "b"]]), TypeError, "got list"),
        (lambda t: t(b"abc"), TypeError, "got bytes"),
        (lambda t: t(7), TypeError, "got int: 7"),
        (lambda t: t(("a", "b")), TypeError, r"could be a pair or a batch; write tokenizer\(a, b\) for a pair"),
        (lambda t: t([("a", "b", "c")]), TypeError, "got tuple.*a pair has exactly two texts"),
        (lambda t: t([["a", "b"]]), TypeError, "got list.*join words"),
        (lambda t: t("a", ["b"]), TypeError, "text is one str, so pair must be one str, got list"),
        (lambda t: t(["a", "b"], "c"), TypeError, "text is a batch of 2, so pair must be a list of 2, got str"),
        (lambda t: t(["a", "b"], ["c"]), ValueError, "2 texts and 1 pairs; expected one pair for each"),
        (lambda t: t(["a"], [None]), TypeError, "got NoneType"),
        (lambda t: t("a", truncation=True), ValueError, "truncation needs max_length, for example"),
        (lambda t: t("a", truncation="left", max_length=5), ValueError, "truncation='left', expected False, True"),
        (lambda t: t("a b", truncation=True, max_length=1), ValueError, "max_length=1 is too small even for the 2"),
        (lambda t: t("a", "b", truncation=True, max_length=2), ValueError, "for the 3 special tokens; use at least 4"),
        (lambda t: t.encode("a b c", max_length=4), ValueError, "max_length=4 has no effect; add truncation=True"),
        (lambda t: t("a b c", max_length=4), ValueError, "max_length=4 has no effect; add truncation=True"),
        (
            lambda t: t("a", "b c b", truncation="only_first", max_length=6),
            ValueError,
            "first text, which has only 1",
        ),
        (lambda t: t("a b c", truncation="only_second", max_length=4), ValueError, "second text, which is missing"),
        (lambda t: t("a", padding="max_length"), ValueError, "needs max_length, for example"),
        (lambda t: t("a", padding="full"), ValueError, "padding='full', expected False, True"),
        (lambda t: t("a", return_tensors="pt"), ValueError, "return_tensors='pt', expected \"np\""),
        (
            lambda t: t(["a", "b c"], return_tensors="np"),
            ValueError,
            "texts of 3 to 4 tokens do not fit",
        ),
        (lambda t: t.decode([5, 20]), ValueError, "id 20 is outside the vocabulary, 0 to 19"),
        (lambda t: t.decode([-100]), ValueError, "id -100 is outside.*labels that contain -100"),
        (
            lambda t: t.decode([[5, 6]]),
            TypeError,
            r"one row of ids, but one of them is \[5, 6\]; for a batch",
        ),
        (lambda t: t.decode(["a"]), TypeError, "one of them is 'a'"),
        (lambda t: t.decode([1.5]), TypeError, "one of them is 1.5"),
        (lambda t: t.encode("\ud800"), ValueError, r"U\+D800, half of a surrogate pair"),
    ],
)
def test_bad_calls(tok, call, error, message):
    """Each error names the mistake, what was expected and what to try."""
    with pytest.raises(error, match=message):
        call(tok)


def test_it_shows_itself():
    """`python -m mini_bert.text.wordpiece` prints the worked example."""
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "mini_bert.text.wordpiece"], capture_output=True, text=True, check=True
    )
    assert " ".join(run.stdout.split()).startswith("piece id word from [CLS] 2 - '' un 6 0 'Un' ##aff 7 0 'aff'")
    assert run.stdout.endswith("decoded: [CLS] unaffably, the [UNK] [SEP]\n")
