"""Unigram tokenizers: stored results of three libraries, and their rules against definitions written out here."""

from __future__ import annotations

import base64
import copy
import json
import math
import pickle
import random
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.text.loading import load_tokenizer
from mini_bert.text.sentencepiece_model import SentencePieceModel
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_lattice import UNKNOWN, Lattice

CASES = json.loads((Path(__file__).parents[1] / "golden" / "unigram_cases.json").read_text(encoding="utf-8"))
TEXTS = CASES["texts"]
SPECIAL = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def loaded(folder, name, **config):
    """A stored model, beside the settings of a tokenizer_config.json"""
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(base64.b64decode(CASES["models"][name]))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(folder)


def small(scores=None, **options):
    """A tokenizer with SentencePiece's rules"""
    scores = scores or {"▁": -3.0, "a": -2.0, "b": -2.5, "ab": -3.5, "▁a": -3.0, "c": -4.0, "abc": -6.0}
    return UnigramTokenizer(
        [*SPECIAL.values(), *scores], [0.0] * 5 + list(scores.values()), SPECIAL, {"type": "sentencepiece"}, **options
    )


# ---- stored results


@pytest.mark.parametrize("name", CASES["models"])
def test_sentencepiece(tmp_path, name):
    """Normalised text, ids and spans are those of the library, with each setting of a model."""
    tokenizer = loaded(tmp_path, name)
    for text, (normalised, ids, spans) in zip(TEXTS, CASES["sentencepiece"][name], strict=True):
        assert tokenizer.text.normalised(text) == tokenizer.text.traced(text).text == normalised
        assert tokenizer.ids([text], special=False) == [ids]
        offsets, word_ids = tokenizer.spans(text, special=False)
        assert len(offsets) == len(word_ids) == len(ids) and word_ids == sorted(word_ids)
        for i, (first, last), begin, end in zip(ids, offsets, spans[::2], spans[1::2], strict=True):
            ours, theirs = text[first:last].encode(), text.encode()[begin:end].strip()
            assert tokenizer.byte_fallback or ours in text.encode()
            if (
                text.isascii()
                and text.isprintable()
                and '"' not in text
                and "aaa" not in text
                and tokenizer.piece_text(i)
            ):
                assert ours == theirs


def with_class(tmp_path, name):
    model, config = {
        "AlbertTokenizer": ("albert", {"tokenizer_class": "AlbertTokenizer"}),
        "AlbertTokenizer, accents": (
            "albert",
            {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True, "do_lower_case": False},
        ),
        "XLNetTokenizer": ("xlnet", {"tokenizer_class": "XLNetTokenizer"}),
        "DebertaV2Tokenizer": ("deberta", {"tokenizer_class": "DebertaV2Tokenizer"}),
    }[name]
    return loaded(tmp_path, model, **config)


@pytest.mark.parametrize(
    "name", ["AlbertTokenizer", "AlbertTokenizer, accents", "XLNetTokenizer", "DebertaV2Tokenizer"]
)
def test_published_classes(tmp_path, name):
    """Quotes, accents, lower case, commas after digits, special tokens and token types are those of each class."""
    tokenizer = with_class(tmp_path, name)
    for text, ids in zip(TEXTS, CASES[name]["singles"], strict=True):
        if not any(token in text for token in tokenizer.roles.values()):  # there, the library looks up unknown pieces
            assert tokenizer.encode(text, special=False) == ids
    pair = tokenizer(TEXTS[3], TEXTS[5])
    assert [pair["input_ids"], pair["token_type_ids"]] == CASES[name]["pair"]


def test_tokenizer_json(tmp_path):
    """Ids, spans, word ids and decoded text of a tokenizer.json are those of the `tokenizers` library."""
    case = CASES["tokenizers"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(case["content"]))
    tokenizer = load_tokenizer(tmp_path)
    for text, (ids, spans, word_ids), decoded in zip(TEXTS, case["results"], case["decoded"], strict=True):
        encoding = tokenizer.encode_batch([text])[0]
        assert encoding.ids == ids and encoding.word_ids == word_ids
        assert tokenizer.decode(ids) == decoded
        for i, ours, theirs in zip(ids, encoding.offsets, zip(spans[::2], spans[1::2], strict=True), strict=True):
            if text.isascii() and text.isprintable() and "''" not in text and tokenizer.piece_text(i):
                assert ours == theirs
    assert tokenizer.padding_side == "right" and tokenizer.roles == SPECIAL


def test_the_class_follows_from_the_model_s_config(tmp_path):
    """Without tokenizer_config.json, model_type in config.json decides; without both, text is as in SentencePiece."""
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    albert = loaded(tmp_path, "albert")
    assert albert.rules["steps"] == ["spaces", "quotes", "accents", "lower"] and albert.rules["split_commas"]
    plain = loaded(tmp_path / "plain", "albert")
    assert plain.rules["steps"] == [] and not plain.rules["split_commas"] and plain.roles == albert.roles == SPECIAL
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": {"content": "a"}, "sep_token": "the"}')
    (tmp_path / "tokenizer_config.json").write_text('{"sep_token": "[SEP]"}')  # takes precedence
    assert load_tokenizer(tmp_path).roles == SPECIAL | {"cls": "a"}
    (tmp_path / "special_tokens_map.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    renamed = tmp_path / "any-name.model"
    renamed.write_bytes((tmp_path / "plain" / "spiece.model").read_bytes())
    (tmp_path / "config.json").unlink()
    assert load_tokenizer(renamed).fingerprint == plain.fingerprint


def test_xlnet_pads_on_the_left_with_type_3(tmp_path):
    """a <sep> b <sep> <cls>, also if only the spelling of the special tokens says that it is XLNet."""
    for config in ({"tokenizer_class": "XLNetTokenizer"}, {}):
        tokenizer = loaded(tmp_path / str(len(config)), "xlnet", **config)
        batch = tokenizer([("the", "a a a"), ("the", "a")], padding=True)
        sep, cls, pad = tokenizer.sep_id, tokenizer.cls_id, tokenizer.pad_id
        assert batch["input_ids"][1][:2] == [pad, pad] and batch["input_ids"][1][-2:] == [sep, cls]
        assert batch["token_type_ids"][1] == [3, 3, 0, 0, 1, 1, 2]
        assert batch["attention_mask"][1] == [0, 0, 1, 1, 1, 1, 1]
        assert set(tokenizer.extra_special_tokens) == {"<s>", "</s>", "<eod>", "<eop>"}


def test_deberta_s_mask_follows_the_pieces(tmp_path):
    """[MASK] is not in spm.model; its id is the number of pieces."""
    tokenizer = with_class(tmp_path, "DebertaV2Tokenizer")
    pieces = len(SentencePieceModel.from_bytes(base64.b64decode(CASES["models"]["deberta"])).pieces)
    assert tokenizer.mask_id == pieces == len(tokenizer) - 1
    (tmp_path / "spiece.model").rename(tmp_path / "spm.model")
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == tokenizer.fingerprint
    assert tokenizer.ids(["the [MASK] a"])[0][1] == tokenizer.mask_id


def test_the_mask_takes_the_space_before_it_if_its_folder_says_so(tmp_path):
    """lstrip in added_tokens_decoder, which is saved again."""
    plain = loaded(tmp_path, "albert", tokenizer_class="AlbertTokenizer")
    entry = {"content": "[MASK]", "lstrip": True, "special": True}
    config = {"tokenizer_class": "AlbertTokenizer", "added_tokens_decoder": {str(plain.mask_id): entry}}
    strips = loaded(tmp_path, "albert", **config)
    for tokenizer, span in ((plain, (2, 8)), (strips, (1, 8))):
        (encoding,) = tokenizer.encode_batch(["a [MASK] a"], add_special_tokens=False)
        assert tokenizer.mask_id in encoding.ids
        assert encoding.offsets[encoding.ids.index(tokenizer.mask_id)] == span
    strips.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == strips.fingerprint != plain.fingerprint


# ---- the best segmentation


def segmentations(word, pieces):
    """All ways to spell a word; a character that is no piece is unknown."""
    if not word:
        return [()]
    found = []
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            found += [(word[:end], *rest) for rest in segmentations(word[end:], pieces)]
        elif end == 1:
            found += [(None, *rest) for rest in segmentations(word[1:], pieces)]
    return found


def test_the_best_of_all_segmentations():
    """Compared with every way to spell words of 1 to 9 characters, with random scores."""
    generator = random.Random(1)
    pieces = ["a", "b", "ab", "ba", "aab", "abab", "bb", "bab", "ca"]
    for _ in range(200):
        scores = {piece: -generator.uniform(1, 9) for piece in pieces}
        lattice = Lattice({piece: (i, scores[piece]) for i, piece in enumerate(pieces)}, -25.0)
        word = "".join(generator.choices("abc", [5, 5, 1], k=generator.randint(1, 9)))

        def total(way, scores=scores):
            return sum(scores.get(piece, -25.0) for piece in way)

        ways = sorted(segmentations(word, pieces), key=total, reverse=True)
        cut = lattice.best(word)
        assert [pieces[i] if i != UNKNOWN else None for i in cut.ids] == list(ways[0]) or cut.limit < 100  # a tie
        assert sum(cut.scores) == pytest.approx(total(ways[0])) and sum(cut.lengths) == len(word)
        assert lattice.exactly(word, 0.0)[0].ids == cut.ids or cut.limit < 100
        margin = total(ways[0]) - total(ways[1]) if len(ways) > 1 else math.inf
        assert cut.limit <= margin / (2 * (len(word) + 1)) * 2**24 * (1 + 1e-9)


def test_rounding_decides_between_equal_segmentations():
    """ "aa a" and "a aa" have the same score; which is chosen in 32 bits depends on the score before, and the ids of a
    text take that into account."""
    scores = {"▁": -1.7, "a": -2.3, "aa": -4.1, "b": -3.9}
    scores = {piece: float(np.float32(score)) for piece, score in scores.items()}
    tokenizer = small(scores)
    assert tokenizer.lattice.best("aaa").limit == 0
    found = set()
    for words in range(40):
        ids = tokenizer.ids(["b " * words + "aaa"])[0]
        text = tokenizer.text.normalised("b " * words + "aaa")
        assert ids == list(tokenizer.lattice.exactly(text, 0.0)[0].ids)
        found.add(tuple(tokenizer.tokens[i] for i in ids[-2:]))
    assert found == {("aa", "a"), ("a", "aa")}


def test_parts_are_cut_where_no_piece_crosses():
    """Letters and digits are apart unless a piece has both. A ▁ inside a piece, or a letter that is no piece by itself,
    makes cutting impossible."""
    pieces = ["▁", "a", "b", "1", ".", "ab", "▁a", "11", "."]
    entries = {piece: (i, -1.0) for i, piece in enumerate(pieces)}
    assert Lattice(entries, -9.0).parts.findall("▁ab11.▁▁.日本x▁a") == ["▁ab", "11", ".", "▁", "▁.", "日本x", "▁a"]
    assert Lattice(entries | {"b1": (9, -1.0)}, -9.0).parts.findall("▁ab11.") == ["▁ab11", "."]
    assert Lattice(entries | {"a▁b": (9, -1.0)}, -9.0).parts is None
    assert Lattice(entries | {"ac": (9, -1.0)}, -9.0).parts is None


def test_scores_beyond_the_reset():
    """A long text, whose score is set back several times, is split as one run of the exact algorithm."""
    tokenizer = small({"▁": -90.0, "a": -95.5, "b": -97.25, "ab": -190.0, "ba": -193.0, "aa": -191.0})
    text = "".join(random.Random(0).choices("ab ", [4, 4, 1], k=5000))
    normalised = tokenizer.text.normalised(text)
    assert tokenizer.ids([text])[0] == list(tokenizer.lattice.exactly(normalised, 0.0)[0].ids)


# ---- the tokenizer


def test_unknown_characters_are_one_token_or_bytes(tmp_path):
    """Neighbouring unknown characters are one <unk>; with byte fallback, their bytes, which decode to them."""
    tokenizer = small()
    assert tokenizer.tokenize("xyz a日本c") == ["▁", "<unk>", "▁a", "<unk>", "c"]
    assert tokenizer.spans("xyz a日本c")[0] == [(0, 0), (0, 3), (4, 5), (5, 7), (7, 8)]
    spelt = loaded(tmp_path, "bytes")
    ids = spelt.ids(["the ü日\x00"])[0]
    assert spelt.tokenize("ü")[-2:] == ["<0xC3>", "<0xBC>"] and spelt.decode(ids) == "the ü日\x00"
    assert spelt.decode(spelt.ids(["한"])[0][:-1]) == "\ufffd\ufffd" and spelt.piece_text(spelt.vocab["<0x41>"]) == "A"
    assert len(set(spelt.spans("한")[0][1:])) == 1


def test_special_tokens_in_a_text():
    """They are recognised unless special=False, and are never pieces of ordinary text."""
    tokenizer = small()
    assert tokenizer.tokenize("a[MASK]b") == ["▁a", "[MASK]", "▁", "b"]
    assert "[MASK]" not in [tokenizer.tokens[i] for i in tokenizer.ids(["a[MASK]"], special=False)[0]]
    assert tokenizer.encode("a", "b") == [2, 9, 3, 5, 7, 3] and tokenizer.decode([2, 9, 7, 3]) == "[CLS] ab[SEP]"
    assert tokenizer.decode([2, 9, 7, 3], skip_special_tokens=True) == "ab"
    assert [tokenizer.piece_text(i) for i in (5, 6, 9)] == ["", "a", "a"]
    np.testing.assert_array_equal(tokenizer.continuing(np.array([2, 9, 7, 7, 9, 3])), [0, 0, 1, 1, 0, 0])


def test_pieces_that_are_unused_are_not_chosen():
    tokenizer = small(unused=["ab"])
    assert tokenizer.tokenize("ab") == ["▁a", "b"]
    assert small().tokenize("bab") == ["▁", "b", "ab"] and tokenizer.tokenize("bab") == ["▁", "b", "a", "b"]


def test_copies_and_fingerprints():
    """A copy gives the same ids; a fingerprint depends on scores and rules."""
    tokenizer = small()
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert other.fingerprint == tokenizer.fingerprint and other.ids(["abc cab"]) == tokenizer.ids(["abc cab"])
    changed = [score - 0.5 * (i == 7) for i, score in enumerate(tokenizer.scores)]
    assert (
        UnigramTokenizer(tokenizer.tokens, **tokenizer.settings | {"scores": changed}).fingerprint
        != tokenizer.fingerprint
    )


@pytest.mark.parametrize("name", ["AlbertTokenizer", "AlbertTokenizer, accents", "XLNetTokenizer"])
def test_saved_as_it_was_read(tmp_path, name):
    """A spiece.model is written byte for byte; what is saved is read as the same tokenizer, also from a copy."""
    tokenizer = with_class(tmp_path, name)
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "spiece.model").read_bytes() == (tmp_path / "spiece.model").read_bytes()
    copy.deepcopy(tokenizer).save(tmp_path / "copied")
    for folder in ("saved", "copied"):
        assert load_tokenizer(tmp_path / folder).fingerprint == tokenizer.fingerprint


def test_tokenizer_json_is_saved_as_the_same_tokenizer(tmp_path):
    """Also with a token that is recognised in the raw text, as `transformers` writes user-defined symbols."""
    content = copy.deepcopy(CASES["tokenizers"]["content"])
    ids = {piece: i for i, (piece, _) in enumerate(content["model"]["vocab"])}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": ids["a"], "content": "a", **plain})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"padding_side": "left", "pad_token_type_id": 3}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.tokenize("was") == ["▁", "w", "a", "▁", "s"] or tokenizer.tokenize("was")[-3:] == ["a", "▁", "s"]
    assert tokenizer.spans("was a")[0][-1] == (4, 5) and tokenizer.padding == (tokenizer.pad_id, "left", 3)
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_surrogates():
    """Halves of pairs are refused, except those that stand for bytes that were not UTF-8."""
    tokenizer = small()
    raw = b"a\xff\xfeb".decode("utf-8", "surrogateescape")
    assert tokenizer.text.normalised(raw) == "▁a\ufffd\ufffdb"
    with pytest.raises(ValueError, match=r"U\+D800, half of a surrogate pair"):
        tokenizer.ids(["a\ud800"])


def test_the_spans_of_pieces_tile_the_text():
    """In a text without replacements, the spans of all pieces are the words, without gaps; a single ▁ has its space."""
    tokenizer = small()
    text = "abc  ab  cab "
    offsets, words = tokenizer.spans(text)
    assert "".join(text[first:last].strip() for first, last in offsets) == "abcabcab"
    assert all(first[1] <= second[0] for first, second in pairwise(offsets)) and words[-1] == 2


# ---- mistakes


@given(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" theTHE.,'`é½’▁İ")), max_size=20))
@settings(max_examples=300, deadline=None)
def test_spans_from_ids(text):
    """With the ids of a text, or of its beginning, spans are the same as without."""
    for tokenizer in (
        bundled(),
        small({"▁": -3.0, "t": -2.0, "h": -2.5, "e": -3.5, "▁the": -3.0, "é": -4.0, "’": -6.0}),
    ):
        offsets, word_ids = tokenizer.spans(text)
        for length in (len(offsets), len(offsets) // 2):
            ids = tokenizer.ids([text])[0][:length]
            found = tokenizer.spans(text, ids=ids)
            assert [values[:length] for values in found] == [offsets[:length], word_ids[:length]]


@cache
def bundled():
    return load_tokenizer("unigram-8k")


def test_text_that_is_normalised_character_by_character():
    """There, spans follow from the ids; elsewhere not."""
    tokenizer = bundled()
    assert all(map(tokenizer._is_plain, ("The cat sat.", "a", "É was “so” – naïve")))
    assert not any(map(tokenizer._is_plain, ("", " a", "a  b", "a ", "``a", "½ a", "ﬁne", "e\u0301", "▁a")))


def test_scores_are_checked():
    with pytest.raises(ValueError, match="6 pieces and 7 scores"):
        UnigramTokenizer([*SPECIAL.values(), "a"], [0.0] * 7, SPECIAL, {"type": "sentencepiece"})
    with pytest.raises(ValueError, match="the score of 'a' is nan, expected a finite number"):
        UnigramTokenizer([*SPECIAL.values(), "a"], [0.0] * 5 + [math.nan], SPECIAL, {"type": "sentencepiece"})
    with pytest.raises(ValueError, match=r"no piece <0x00>; add all 256"):
        small(byte_fallback=True)


CHANGES = {
    r"model.unk_id is 999, expected an id": lambda c: c["model"].update(unk_id=999),
    r"model.unk_id is None, expected the id": lambda c: c["model"].update(unk_id=None),
    r"model.vocab\[7\] is \['x'\], expected a piece and its score": lambda c: c["model"]["vocab"].__setitem__(7, ["x"]),
    r"the score of 'x' is nan": lambda c: c["model"]["vocab"].__setitem__(7, ["x", math.nan]),
    r"normalizer.type is 'Nmt', expected Sequence, Replace": lambda c: c.update(normalizer={"type": "Nmt"}),
    r"normalizer.normalizers\[1\].pattern is .*expected a String, or one": lambda c: c["normalizer"]["normalizers"][
        1
    ].update(pattern={"Regex": "x+"}),
    r"precompiled_charsmap is 'AAAA!', expected bytes in base64": lambda c: c["normalizer"]["normalizers"][5].update(
        precompiled_charsmap="AAAA!"
    ),
    r"precompiled_charsmap: it has 3 bytes, but its trie": lambda c: c["normalizer"]["normalizers"][5].update(
        precompiled_charsmap="AAAA"
    ),
    r"pre_tokenizer is ByteLevel, expected Metaspace": lambda c: c.update(pre_tokenizer={"type": "ByteLevel"}),
    r"prepend_scheme is 'first', expected": lambda c: c["pre_tokenizer"]["pretokenizers"][1].update(
        prepend_scheme="first"
    ),
    r"post_processor.type is 'ByteLevel', expected TemplateProcessing": lambda c: c.update(
        post_processor={"type": "ByteLevel"}
    ),
    r"post_processor.single has the special token '<pad2>', expected cls": lambda c: c["post_processor"]["single"][0][
        "SpecialToken"
    ].update(id="<pad2>"),
    r"added_tokens\[0\].single_word is True": lambda c: c["added_tokens"][0].update(single_word=True),
    r"added_tokens\[0\] gives '<pad>' the id 3, expected 0": lambda c: c["added_tokens"][0].update(id=3),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_tokenizer_json_with_other_rules_is_refused(tmp_path, message):
    """The error names the file, the field, its value, and what was expected."""
    content = copy.deepcopy(CASES["tokenizers"]["content"])
    CHANGES[message](content)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    for config, message in (
        ({"mask_token": "<mask>"}, r"tokenizer_config.json: mask_token is '<mask>', which is not in the vocab"),
        ({"do_lower_case": "yes"}, r"do_lower_case is 'yes', expected true or false"),
        ({"padding_side": "top"}, r"padding_side is 'top', expected left or right"),
        ({"added_tokens_decoder": {"500": {"content": "<x>"}}}, r"'<x>' has 500; take all files from the same folder"),
        (
            {"added_tokens_decoder": {"9": {"content": "a", "lstrip": True, "special": False}}},
            r"added_tokens_decoder\[0\].lstrip or .rstrip is True, expected false, except for special tokens",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            loaded(tmp_path, "albert", **config)
