"""Reading and writing spiece.model, the file of a SentencePiece tokenizer.

    model = SentencePieceModel.read(Path("spiece.model"))
    model.pieces[14]                            Piece(text='▁the', score=-3.07, kind=NORMAL)
    model.normalizer.blob(CHARACTER_MAP)        the character map, which text/character_map.py reads

The file is a message of Protocol Buffers. Of that format, only this is needed: a message is a list of fields, and a
field is a key followed by a value.

    varint        a whole number in groups of 7 bits, the lowest first; the top bit of a byte says that more follow
    key           a varint: 8 · (number of the field) + (type of the value)
    value         type 0: a varint             type 1: 8 bytes        type 5: 4 bytes, here a float
                  type 2: a varint n, then n bytes: a text, any bytes, or a message

    message            field    content
    ModelProto         1        pieces, once for each        2  trainer_spec        3  normalizer_spec
    a piece            1        its text                     2  score, a float      3  kind, 1 to 6
    normalizer_spec    2        character map                3, 4, 5  rules for spaces
    trainer_spec       many; those that affect ids are named below

Fields that are not interpreted are kept, so that a file that is read and written again stays the same. A file that is
cut off, or in which a value has another type than its field, is refused: the error names the field and the position.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mini_bert.common.atomic import write_atomic

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # types of values
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM = 1  # of the model types

PIECES, TRAINER, NORMALIZER, DENORMALIZER = 1, 2, 3, 5  # fields of ModelProto
MESSAGES = {PIECES: "pieces", TRAINER: "trainer_spec", NORMALIZER: "normalizer_spec", DENORMALIZER: "denormalizer_spec"}
TRAINER_FIELDS = {
    "model_type": 3, "vocab_size": 4, "treat_whitespace_as_suffix": 24, "byte_fallback": 35, "unk_id": 40, "bos_id": 41,
    "eos_id": 42, "pad_id": 43,
}  # fmt: skip
CHARACTER_MAP = "precompiled_charsmap"
NORMALIZER_FIELDS = {
    "name": 1, CHARACTER_MAP: 2, "add_dummy_prefix": 3, "remove_extra_whitespaces": 4, "escape_whitespaces": 5,
}  # fmt: skip
_PIECE = {1: ("text", BYTES), 2: ("score", FOUR_BYTES), 3: ("kind", VARINT)}  # fields of a piece

LARGEST_FILE = 1 << 28  # bytes; published models have less than 5 MB
MOST_PIECES = 1_000_000
LONGEST_PIECE = 8000  # bytes, as in the `sentencepiece` library
_KINDS = ("normal", "unknown", "control", "user-defined", "unused", "byte")
_TYPES = {VARINT: "a varint", EIGHT_BYTES: "8 bytes", BYTES: "a length and bytes", FOUR_BYTES: "4 bytes"}


class Piece(NamedTuple):
    """An entry of the vocabulary."""

    text: str
    score: float  # the logarithm of its probability
    kind: int = NORMAL
    more: bytes = b""  # fields that are not interpreted


class Field(NamedTuple):
    number: int
    type: int
    value: int | bytes


@dataclass(frozen=True)
class Spec:
    """A message of settings: its fields in the order of the file."""

    numbers: Mapping[str, int]  # of the fields that are used, by name
    fields: tuple[Field, ...] = ()
    where: str = "spec"  # for errors: the file and the message

    def number(self, name: str, default: int) -> int:
        value = self._last(name, VARINT)
        if value is None:
            return default
        assert isinstance(value, int)
        return value - (1 << 64) if value >> 63 == 1 else value  # negative numbers are written as 2⁶⁴ + n

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.number(name, default))

    def blob(self, name: str) -> bytes:
        value = self._last(name, BYTES)
        assert not isinstance(value, int)
        return value or b""

    def _last(self, name: str, type: int) -> int | bytes | None:
        """The value of a field, of which the last one counts, or None."""
        found = None
        for one in self.fields:
            if one.number == self.numbers[name]:
                if one.type != type:
                    _refuse(self.where, f"{name} is {_TYPES[one.type]}, expected {_TYPES[type]}")
                found = one.value
        return found

    def with_fields(self, **values: int | bytes) -> Spec:
        """A copy in which these fields have these values."""
        new = [Field(self.numbers[name], VARINT if isinstance(v, int) else BYTES, v) for name, v in values.items()]
        changed = {one.number for one in new}
        return replace(self, fields=(*(one for one in self.fields if one.number not in changed), *new))


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of a spiece.model."""

    pieces: tuple[Piece, ...]
    trainer: Spec = field(default_factory=lambda: Spec(TRAINER_FIELDS))
    normalizer: Spec = field(default_factory=lambda: Spec(NORMALIZER_FIELDS))
    more: tuple[Field, ...] = ()  # fields of the file that are not interpreted

    @classmethod
    def read(cls, path: Path) -> SentencePieceModel:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise ValueError(f"{path} has more than {LARGEST_FILE:,} bytes, too much for a SentencePiece model")
        return cls.from_bytes(data, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "spiece.model") -> SentencePieceModel:
        """where: the name of the file, for errors."""
        pieces: list[Piece] = []
        messages: dict[int, tuple[Field, ...]] = {TRAINER: (), NORMALIZER: ()}
        more: list[Field] = []
        for one in fields_of(data, where):
            if one.number not in MESSAGES:
                more.append(one)
                continue
            name = MESSAGES[one.number]
            if isinstance(one.value, int) or one.type != BYTES:
                _refuse(where, f"{name} is {_TYPES[one.type]}, expected {_TYPES[BYTES]}")
            if one.number == PIECES:
                if len(pieces) == MOST_PIECES:
                    _refuse(where, f"it has more than {MOST_PIECES:,} pieces")
                pieces.append(_piece(one.value, f"{where}: pieces[{len(pieces)}]"))
            elif one.number in messages:
                messages[one.number] += tuple(fields_of(one.value, f"{where}: {name}"))
            else:
                more.append(one)
        if not pieces:
            _refuse(where, "it has no pieces")
        model = cls(
            tuple(pieces),
            Spec(TRAINER_FIELDS, messages[TRAINER], f"{where}: trainer_spec"),
            Spec(NORMALIZER_FIELDS, messages[NORMALIZER], f"{where}: normalizer_spec"),
            tuple(more),
        )
        model._check(where)
        return model

    def _check(self, where: str) -> None:
        kind = self.trainer.number("model_type", UNIGRAM)
        if kind != UNIGRAM:
            name = {2: "BPE", 3: "WORD", 4: "CHAR"}.get(kind, str(kind))
            raise ValueError(
                f"{where}: trainer_spec.model_type is {name}, expected UNIGRAM. Mini-BERT reads Unigram models from a "
                "spiece.model; if there is a tokenizer.json of this tokenizer, load that"
            )
        unknown = [i for i, piece in enumerate(self.pieces) if piece.kind == UNKNOWN]
        if len(unknown) != 1:
            _refuse(where, f"it has {len(unknown)} pieces of the kind 'unknown', expected one")
        fallback = self.trainer.flag("byte_fallback", False)
        present = {piece.text for piece in self.pieces if piece.kind == BYTE}
        expected = {byte_piece(byte) for byte in range(256)} if fallback else set()
        if present != expected:
            odd = min(present ^ expected)
            _refuse(
                where,
                f"trainer_spec.byte_fallback is {str(fallback).lower()}, so it should have "
                f"{len(expected)} pieces of the kind 'byte'; {'unexpected' if odd in present else 'missing'}: {odd}",
            )
        for one in self.more:
            if one.number == DENORMALIZER and isinstance(one.value, bytes):
                spec = Spec(NORMALIZER_FIELDS, tuple(fields_of(one.value, f"{where}: denormalizer_spec")), where)
                if spec.blob(CHARACTER_MAP):
                    raise ValueError(
                        f"{where}: denormalizer_spec.precompiled_charsmap is not empty, so decoding would change the "
                        "text in a way that Mini-BERT does not know; use a model without it"
                    )

    def to_bytes(self) -> bytes:
        fields = [Field(PIECES, BYTES, _piece_bytes(piece)) for piece in self.pieces]
        for number, spec in ((TRAINER, self.trainer), (NORMALIZER, self.normalizer)):
            fields.append(Field(number, BYTES, bytes_of(spec.fields)))
        return bytes_of((*fields, *self.more))

    def write(self, path: Path) -> None:
        write_atomic(path, self.to_bytes())


def byte_piece(byte: int) -> str:
    """The text of the piece for a byte, such as "<0x0A>"."""
    return f"<0x{byte:02X}>"


# ---- pieces


def _piece(data: bytes, where: str) -> Piece:
    values: list[Any] = [None, b"", bytes(4), NORMAL]
    more: list[Field] = []
    for one in fields_of(data, where):
        number, type, value = one
        if number > 3:
            more.append(one)
        elif type != _PIECE[number][1]:
            _refuse(where, f"its {_PIECE[number][0]} is {_TYPES[type]}, expected {_TYPES[_PIECE[number][1]]}")
        else:
            values[number] = value
    _, raw, packed, kind = values
    (score,) = struct.unpack("<f", packed)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(where, f"its text {raw!r:.60} is not UTF-8 ({error.reason})")
    if len(raw) >= LONGEST_PIECE:
        _refuse(where, f"its text has {len(raw):,} bytes, expected less than {LONGEST_PIECE:,}")
    if not text or "\0" in text:
        _refuse(where, f"its text is {text!r}, expected at least one character and no NUL")
    if not math.isfinite(score):
        _refuse(where, f"the score of {text!r} is {score}, expected a finite number")
    if not NORMAL <= kind <= BYTE:
        _refuse(where, f"the kind of {text!r} is {kind}, expected {NORMAL} to {BYTE} ({', '.join(_KINDS)})")
    return Piece(text, score, kind, bytes_of(more))


def _piece_bytes(piece: Piece) -> bytes:
    fields = [Field(1, BYTES, piece.text.encode()), Field(2, FOUR_BYTES, struct.pack("<f", piece.score))]
    if piece.kind != NORMAL:
        fields.append(Field(3, VARINT, piece.kind))
    return bytes_of(fields) + piece.more


# ---- the wire format


def fields_of(data: bytes, where: str) -> list[Field]:
    """The fields of a message."""
    fields: list[Field] = []
    place, size = 0, len(data)
    while place < size:
        begin = place
        key, place = _varint(data, place, where)
        number, type = key >> 3, key & 7
        value: int | bytes
        if type == VARINT:
            value, place = _varint(data, place, where)
        else:
            if type == BYTES:
                length, place = _varint(data, place, where)
            elif type in (EIGHT_BYTES, FOUR_BYTES):
                length = 8 if type == EIGHT_BYTES else 4
            else:
                _refuse(where, f"the field at byte {begin:,} has the type {type}, expected 0, 1, 2 or 5")
            if length > size - place:
                _refuse(
                    where,
                    f"field {number} at byte {begin:,} needs {length:,} bytes, but only {size - place:,} are left",
                )
            value = data[place : place + length]
            place += length
        if number == 0:
            _refuse(where, f"the field at byte {begin:,} has the number 0, expected at least 1")
        fields.append(Field(number, type, value))
    return fields


def _varint(data: bytes, place: int, where: str) -> tuple[int, int]:
    """Returns a number and the position after it."""
    value = shift = 0
    begin = place
    while True:
        if place == len(data):
            _refuse(where, f"the number at byte {begin:,} has no end")
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), place
        shift += 7
        if shift == 70:
            _refuse(where, f"the number at byte {begin:,} has more than 10 bytes")


def bytes_of(fields: tuple[Field, ...] | list[Field]) -> bytes:
    """A message with these fields."""
    parts: list[bytes] = []
    for number, type, value in fields:
        parts.append(_varint_bytes(8 * number + type))
        if isinstance(value, int):
            parts.append(_varint_bytes(value % (1 << 64)))
        else:
            if type == BYTES:
                parts.append(_varint_bytes(len(value)))
            parts.append(value)
    return b"".join(parts)


def _varint_bytes(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(
        f"{where}: {what}. This is not a whole SentencePiece model; download it again, or check that it is the right "
        "file"
    )


if __name__ == "__main__":
    small = SentencePieceModel((Piece("<unk>", 0.0, UNKNOWN), Piece("▁a", -1.5)))
    data = small.to_bytes()
    print(data.hex(" "))
    print(*SentencePieceModel.from_bytes(data).pieces, sep="\n")
