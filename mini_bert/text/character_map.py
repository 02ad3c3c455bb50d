"""The character map of a SentencePiece model: which strings are replaced by which.

    ½ → 1⁄2        ﬁ → fi        e + ´ → é        no-break space → space        NFKC of Unicode, with a few additions

It is stored in spiece.model (precompiled_charsmap) and in the `Precompiled` normalizer of a tokenizer.json:

    4 bytes      the size of the trie in bytes, lowest byte first, like all numbers here
    the trie     units of 4 bytes; its keys are the strings that are replaced, as UTF-8
    the rest     the replacements, as UTF-8, each ended by a zero byte; the value of a key says where its own begins

The trie is a **double array** (Aoe 1989, in the variant of the Darts-clone library). All nodes are in one array. A node
is a unit with the byte that led to it, its label, and an offset. The child of node i for the byte b is at

    child = i ⊕ offset(i) ⊕ b          if the unit there has the label b; otherwise there is no such child

so a step takes one lookup, and the children of different nodes are interleaved to fill the gaps. A bit of the unit says
that a key ends at the node; its value is then in the unit at i ⊕ offset(i), where the child for the byte 0 would be.

    bits of a unit        31: it is a value, in bits 0 to 30       10-30: offset       9: the offset is times 256
                          8: a key ends here                       0-7: label

Equal branches are stored once, so that 225,000 keys of NFKC (most are Korean syllables) take 44,000 units. A trie in
which a unit points outside the array, or a value outside the replacements, is refused.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

HAS_LEAF, LABEL, IS_VALUE, VALUE = 1 << 8, 0x800000FF, 1 << 31, 0x7FFFFFFF
STEPS_KEPT = 1 << 16  # until the cache is cleared; about 10 MB
ROWS = 1 << 11  # nodes whose 255 possible children are looked up at once
ROOT, NOWHERE = 0, -1


class CharacterMap:
    """Strings and their replacements.  blob: the map as it is stored in files; an empty one replaces nothing."""

    def __init__(self, blob: bytes = b"", where: str = "precompiled_charsmap"):
        """where: the file and the field, for errors."""
        self.blob = blob
        self._units = np.zeros(256, np.uint32)  # a root without children
        self._replacements = b"\0"
        if blob:
            self._read(where)
        self._offsets = (self._units >> 10) << ((self._units >> 6) & 8)  # bit 9: times 256
        if blob:
            self._check(where)
        self._list, self._ways = self._units.tolist(), self._offsets.tolist()  # faster for single steps
        self._steps: dict[tuple[int, str], tuple[int, str | None]] = {}
        firsts = [chr(code) for code in range(128) if self._begins_ascii_key(chr(code))]
        self._ascii = re.compile(f"[{re.escape(''.join(firsts))}]" if firsts else "(?!)")

    def _read(self, where: str) -> None:
        size = int.from_bytes(self.blob[:4], "little")
        if size < 1024 or size % 1024 or size >= len(self.blob) - 4:
            _refuse(
                where,
                f"it has {len(self.blob):,} bytes, but its trie is said to have {size:,}, expected a multiple of 1,024 "
                "that leaves room for the replacements",
            )
        self._units = np.frombuffer(self.blob, "<u4", size // 4, 4).astype(np.uint32)
        self._replacements = self.blob[4 + size :]
        if self._replacements[-1]:
            _refuse(where, "its last replacement has no end")
        try:
            self._replacements.decode()
        except UnicodeDecodeError as error:
            _refuse(where, f"its replacements are not UTF-8 ({error})")

    def _check(self, where: str) -> None:
        units, places = self._units, np.arange(len(self._units))
        is_value = units >= IS_VALUE
        if is_value[ROOT]:
            _refuse(where, "unit 0 of its trie, the root, is a value")
        outside = ~is_value & (((places ^ self._offsets) | 255) >= len(units))
        if outside.any():
            place = int(np.argmax(outside))
            _refuse(
                where,
                f"unit {place:,} of its trie points to unit {place ^ int(self._offsets[place]):,} or beside it, "
                f"but there are {len(units):,}",
            )
        texts = np.frombuffer(self._replacements, np.uint8)
        ends = np.flatnonzero(~is_value & (units & HAS_LEAF > 0))  # nodes at which a key ends
        values = units[ends ^ self._offsets[ends]] & VALUE
        beyond = values >= len(texts)
        if beyond.any():
            place = int(np.argmax(beyond))
            _refuse(
                where,
                f"the key that ends at unit {int(ends[place]):,} of its trie has the value {int(values[place]):,}, but "
                f"there are {len(texts):,} bytes of replacements",
            )
        inside = texts[values] >> 6 == 2
        if inside.any():
            _refuse(
                where, f"the value of the key that ends at unit {int(ends[np.argmax(inside)]):,} is inside a character"
            )

    # ---- replacing

    def match(self, text: str, place: int) -> tuple[str, int] | None:
        """The replacement for the longest key at a position and the length of the key, or None."""
        best = None
        node = ROOT
        for end in range(place, len(text)):
            node, replacement = self._steps.get((node, text[end])) or self._step(node, text[end])
            if replacement is not None:
                best = replacement, end + 1 - place
            if node == NOWHERE:
                break
        return best

    def shortest(self, text: str) -> str | None:
        """The replacement for the shortest key with which a text begins, or None."""
        node = ROOT
        for character in text:
            node, replacement = self._steps.get((node, character)) or self._step(node, character)
            if replacement is not None or node == NOWHERE:
                return replacement
        return None

    def _step(self, node: int, character: str) -> tuple[int, str | None]:
        """From a node by the bytes of a character: to which node, and the replacement if a key ends there."""
        key = node, character
        replacement = None
        for byte in character.encode("utf-8", "surrogatepass"):
            node ^= self._ways[node] ^ byte
            if self._list[node] & LABEL != byte:
                node = NOWHERE
                break
        else:
            if self._list[node] & HAS_LEAF:
                start = self._list[node ^ self._ways[node]] & VALUE
                replacement = self._replacements[start : self._replacements.index(0, start)].decode()
        if len(self._steps) >= STEPS_KEPT:
            self._steps.clear()
        self._steps[key] = node, replacement
        return node, replacement

    # ---- properties that allow shortcuts

    def leaves(self, text: str) -> bool:
        """Whether a text is ASCII and stays as it is."""
        return text.isascii() and not self._ascii.search(text)

    def _begins_ascii_key(self, character: str) -> bool:
        node, replacement = self._step(ROOT, character)
        labels = np.arange(1, 128)
        return replacement is not None or (
            node != NOWHERE and bool((self._units[(node ^ self._ways[node]) ^ labels] & LABEL == labels).any())
        )

    def keeps_chunks_apart(self) -> bool:
        """Whether text can be cut at spaces before replacing: no key has a space, and no replacement has two in a row
        or a ▁."""
        if b"  " in self._replacements or "▁".encode() in self._replacements:
            return False
        labels = np.arange(1, 256)
        seen = np.zeros(len(self._units), bool)
        nodes = np.zeros(1, np.int64)
        while len(nodes):
            seen[nodes] = True
            below = []
            for first in range(0, len(nodes), ROWS):
                some = nodes[first : first + ROWS]
                children = (some ^ self._offsets[some])[:, None] ^ labels  # (nodes, 255)
                reached = (self._units[children] & LABEL) == labels
                if reached[:, ord(" ") - 1].any():
                    return False
                below.append(np.unique(children[reached]))
            nodes = np.unique(np.concatenate(below))
            nodes = nodes[~seen[nodes]]
        return True


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where}: {what}. The file is damaged; download it again")
