"""spiece.model: the wire format, the character map, and files that are damaged."""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.text.character_map import CharacterMap
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.sentencepiece_model import (
    BYTES,
    CHARACTER_MAP,
    CONTROL,
    FOUR_BYTES,
    NORMAL,
    UNKNOWN,
    VARINT,
    Field,
    Piece,
    SentencePieceModel,
    Spec,
    bytes_of,
    fields_of,
)

CASES = json.loads((Path(__file__).parents[1] / "golden" / "unigram_cases.json").read_text(encoding="utf-8"))
DATA = {name: base64.b64decode(text) for name, text in CASES["models"].items()}
UNK = Piece("<unk>", 0.0, UNKNOWN)


# ---- the wire format


def test_fields_written_by_hand():
    """The examples of the published description of the format: 150 as a varint, a text, and a negative number."""
    assert bytes_of([Field(1, VARINT, 150)]) == bytes.fromhex("089601")
    assert bytes_of([Field(2, BYTES, b"testing")]) == bytes.fromhex("120774657374696e67")
    assert bytes_of([Field(5, VARINT, -1)]) == bytes.fromhex("28ffffffffffffffffff01")
    assert fields_of(bytes.fromhex("089601120774657374696e67"), "x") == [(1, VARINT, 150), (2, BYTES, b"testing")]


@given(
    st.lists(
        st.one_of(
            st.builds(Field, st.integers(1, 1 << 28), st.just(VARINT), st.integers(0, (1 << 64) - 1)),
            st.builds(Field, st.integers(1, 300), st.just(BYTES), st.binary(max_size=300)),
            st.builds(Field, st.integers(1, 300), st.just(FOUR_BYTES), st.binary(min_size=4, max_size=4)),
        )
    )
)
def test_fields_come_back(fields):
    assert fields_of(bytes_of(fields), "x") == fields


@pytest.mark.parametrize("name", DATA)
def test_a_file_is_written_as_it_was_read(name):
    """Byte for byte, with all fields that are not interpreted."""
    assert SentencePieceModel.from_bytes(DATA[name]).to_bytes() == DATA[name]


def test_unknown_fields_are_kept():
    """In the file, in its settings, and in pieces."""
    more = bytes_of([Field(201, BYTES, b"extension")])
    piece = bytes_of([Field(1, BYTES, b"a"), Field(2, FOUR_BYTES, struct.pack("<f", -1.5))]) + more
    unknown = bytes_of([Field(1, BYTES, b"<unk>"), Field(2, FOUR_BYTES, bytes(4)), Field(3, VARINT, UNKNOWN)])
    data = bytes_of(
        [
            Field(1, BYTES, unknown),
            Field(1, BYTES, piece),
            Field(2, BYTES, more),
            Field(3, BYTES, b""),
            Field(4, BYTES, b""),
        ]
    )
    model = SentencePieceModel.from_bytes(data + more)
    assert model.to_bytes() == data + more
    assert model.pieces[1][:3] == ("a", -1.5, NORMAL) and model.pieces[1].more == more


def test_settings_have_defaults_and_negative_values():
    model = SentencePieceModel.from_bytes(DATA["albert"])
    assert model.trainer.number("bos_id", 1) == -1 and model.trainer.number("unk_id", 0) == 1
    assert Spec({"absent": 999}, model.trainer.fields).number("absent", 7) == 7
    assert not model.trainer.flag("byte_fallback", False)
    changed = model.trainer.with_fields(unk_id=5, eos_id=-7, byte_fallback=1)
    assert changed.number("unk_id", 0) == 5 and changed.number("eos_id", 0) == -7
    assert changed.flag("byte_fallback", False)


# ---- the character map


def test_every_rule_is_found():
    """The map has exactly the rules that it was made from; the longest key wins."""
    blob = SentencePieceModel.from_bytes(DATA["albert"]).normalizer.blob(CHARACTER_MAP)
    found = CharacterMap(blob)
    for old, new in CASES["rules"].items():
        assert found.match(f"x{old}y", 1) == (new, len(old)) and found.shortest(f"{old}y") == new
    firsts = {old[0] for old in CASES["rules"]}
    for code in [*range(0xD800), *range(0xE000, 0x11000)]:
        if chr(code) not in firsts:
            assert found.match(chr(code), 0) is None
    assert found.match("e", 0) is None and found.match("か", 0) is None and found.match("ex", 0) is None
    assert found.leaves("plain text.") and not found.leaves("a\tb") and not found.leaves("é")
    assert found.keeps_chunks_apart() and CharacterMap().match("a", 0) is None


def changed_unit(blob, place, value):
    return blob[: 4 + 4 * place] + struct.pack("<I", value) + blob[8 + 4 * place :]


def test_damaged_maps_are_refused():
    """Errors name the field and what does not fit."""
    blob = SentencePieceModel.from_bytes(DATA["albert"]).normalizer.blob(CHARACTER_MAP)
    size = int.from_bytes(blob[:4], "little")
    units = struct.unpack(f"<{size // 4}I", blob[4 : 4 + size])
    value = next(i for i, unit in enumerate(units) if unit >> 31)
    for bad, message in (
        (b"abc", r"m: it has 3 bytes, but its trie is said to have"),
        (blob[:-5], r"m: its last replacement has no end"),
        (struct.pack("<I", 1 << 20) + blob[4:], r"its trie is said to have 1,048,576, expected a multiple of 1,024"),
        (struct.pack("<I", size + 4) + blob[4:], r"expected a multiple of 1,024 that leaves room"),
        (changed_unit(blob, 0, 0x7FFFFC00), r"unit 0 of its trie points to unit 2,097,151 or beside it, but there are"),
        (changed_unit(blob, value, 0x80000000 | 99999), r"has the value 99,999, but there are"),
        (blob[:-3] + b"\xff\xff\0", r"its replacements are not UTF-8"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            CharacterMap(bad, "m")
        assert "download it again" in str(error.value)


def test_a_map_whose_root_is_a_value_is_refused():
    """Every search begins at the root, so it must be a node."""
    blob = SentencePieceModel.from_bytes(DATA["albert"]).normalizer.blob(CHARACTER_MAP)
    with pytest.raises(ValueError, match="the root, is a value"):
        CharacterMap(changed_unit(blob, 0, 1 << 31))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_map_with_any_change_is_refused_or_harmless(data):
    """A trie in which units were overwritten is refused, or still gives some text; it never runs forever or fails."""
    blob = SentencePieceModel.from_bytes(DATA["albert"]).normalizer.blob(CHARACTER_MAP)
    for _ in range(data.draw(st.integers(1, 30))):
        place = data.draw(st.integers(0, int.from_bytes(blob[:4], "little") // 4 - 1))
        blob = changed_unit(blob, place, data.draw(st.one_of(st.integers(0, (1 << 32) - 1), st.integers(0, 1 << 20))))
    try:
        found = CharacterMap(blob)
    except ValueError as error:
        assert "download it again" in str(error)
        return
    found.keeps_chunks_apart()
    for text in CASES["texts"]:
        for place in range(len(text)):
            assert found.match(text, place) is None or found.match(text, place)[1] >= 1


# ---- damaged files


@pytest.mark.parametrize("name", ["albert", "bytes"])
def test_a_file_that_is_cut_off_is_refused(name):
    """At every byte: the error is a ValueError that names the file. (Cut between two fields of the file, it may be a
    model with fewer pieces.)"""
    data = DATA[name]
    refused = 0
    for end in range(0, len(data), 1 if name == "albert" else 7):
        try:
            SentencePieceModel.from_bytes(data[:end], "folder/spiece.model")
        except ValueError as error:
            assert str(error).startswith("folder/spiece.model: ")
            refused += 1
    assert refused > 0.8 * len(range(0, len(data), 1 if name == "albert" else 7))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_a_value_error(data):
    """Random bytes anywhere: the file is read, or refused with a sentence."""
    content = bytearray(DATA["xlnet"])
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        SentencePieceModel.from_bytes(bytes(content))
    except ValueError as error:
        assert "spiece.model" in str(error)


LETTER = Piece("a", -1.0)


def model_with(*fields, pieces=(UNK, LETTER)):
    return SentencePieceModel(tuple(pieces)).to_bytes() + bytes_of(list(fields))


def raw_piece(*fields):
    return model_with(Field(1, BYTES, bytes_of(list(fields))))


TEXT, SCORE = Field(1, BYTES, b"x"), Field(2, FOUR_BYTES, struct.pack("<f", -1.0))
BAD = {
    r"pieces\[2\]: its text is a varint, expected a length and bytes": raw_piece(Field(1, VARINT, 5), SCORE),
    r"pieces\[2\]: its score is a varint, expected 4 bytes": raw_piece(TEXT, Field(2, VARINT, 5)),
    r"pieces\[2\]: its kind is a length and bytes, expected a varint": raw_piece(TEXT, SCORE, Field(3, BYTES, b"")),
    r"pieces\[2\]: the score of 'x' is nan": raw_piece(TEXT, Field(2, FOUR_BYTES, struct.pack("<f", math.nan))),
    r"pieces\[2\]: the score of 'x' is inf": raw_piece(TEXT, Field(2, FOUR_BYTES, struct.pack("<f", math.inf))),
    r"pieces\[2\]: the kind of 'x' is 9, expected 1 to 6 \(normal": raw_piece(TEXT, SCORE, Field(3, VARINT, 9)),
    r"pieces\[2\]: its text is '', expected at least one": raw_piece(SCORE),
    r"pieces\[2\]: its text b'\\xff' is not UTF-8": raw_piece(Field(1, BYTES, b"\xff"), SCORE),
    r"pieces\[2\]: its text has 9,000 bytes": raw_piece(Field(1, BYTES, b"x" * 9000), SCORE),
    r"pieces is a varint, expected a length and bytes": model_with(Field(1, VARINT, 3)),
    r"trainer_spec is 4 bytes, expected": model_with(Field(2, FOUR_BYTES, bytes(4))),
    r"trainer_spec: model_type is a length and bytes, expected a varint": model_with(
        Field(2, BYTES, bytes_of([Field(3, BYTES, b"x")]))
    ),
    r"trainer_spec.model_type is BPE, expected UNIGRAM": model_with(Field(2, BYTES, bytes_of([Field(3, VARINT, 2)]))),
    r"normalizer_spec: field 2 at byte 0 needs 100 bytes, but only 1 are left": model_with(
        Field(3, BYTES, b"\x12\x64x")
    ),
    r"denormalizer_spec.precompiled_charsmap is not empty": model_with(
        Field(5, BYTES, bytes_of([Field(2, BYTES, b"x")]))
    ),
    r"it has no pieces": b"",
    r"it has 0 pieces of the kind 'unknown', expected one": model_with(pieces=(Piece("a", -1.0),)),
    r"it has 2 pieces of the kind 'unknown'": model_with(pieces=(UNK, Piece("b", -1.0, UNKNOWN))),
    r"byte_fallback is true, so it should have 256 pieces .* missing: <0x00>": model_with(
        Field(2, BYTES, bytes_of([Field(35, VARINT, 1)]))
    ),
    r"has the type 3, expected 0, 1, 2 or 5": model_with() + b"\x0b",
    r"the number at byte .* has no end": model_with() + b"\x80",
    r"the number at byte .* has more than 10 bytes": model_with() + b"\x80" * 11,
    r"has the number 0, expected at least 1": model_with() + b"\x00\x01",
}


@pytest.mark.parametrize("message", BAD)
def test_mistakes_are_named(tmp_path, message):
    """The error names the file, the field, and what was expected."""
    path = tmp_path / "spiece.model"
    path.write_bytes(BAD[message])
    with pytest.raises(ValueError, match=message) as error:
        load_tokenizer(path)
    assert str(error.value).startswith(str(path))


def test_a_damaged_map_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_with(Field(3, BYTES, bytes_of([Field(2, BYTES, b"abc")]))))
    with pytest.raises(ValueError, match="precompiled_charsmap: it has 3 bytes") as error:
        load_tokenizer(path)
    assert str(error.value).startswith(str(path))


def test_a_piece_twice_is_refused(tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_with(pieces=(UNK, Piece("a", -1.0), Piece("a", 0.0, CONTROL))))
    with pytest.raises(ValueError, match="the vocabulary has 'a' twice, as ids 1 and 2"):
        load_tokenizer(path)
