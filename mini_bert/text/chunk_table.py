"""A table from short strings of bytes to numbers, looked up for whole arrays of strings at once.

A string of at most 15 bytes is two numbers of 64 bits: its bytes, zeros, and in the last byte its length.

    "the cat"  ->  74 68 65 20 63 61 74 00 | 00 00 00 00 00 00 00 07

Both together, multiplied by odd constants, give the slot at which a string is entered, or the next slot that is free.
A `dict` finds one string after the other, and waits for memory each time; here the processor fetches many at once.
"""

from __future__ import annotations

import numpy as np

LONGEST = 15  # bytes
PADDING = bytes(16)  # must follow the strings, because 16 bytes are read for each

_LEAD = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)  # masks for the first bytes of a number
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)


def keys_of(data: bytes, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two numbers of each string. data: ends with PADDING. Those of longer strings are cut."""
    numbers = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))  # eight bytes from every place on
    kept = np.minimum(lengths, LONGEST)
    low = numbers[starts] & _LEAD[np.minimum(kept, 8)]
    high = numbers[starts + 8] & _LEAD[np.maximum(kept, 8) - 8]
    return low, high | kept.astype(np.uint64) << np.uint64(56)


class ChunkTable:
    """slots: their number, a power of two, at least twice the number of strings"""

    def __init__(self, slots: int):
        self._shift = np.uint64(64 - (slots.bit_length() - 1))
        self._slots = np.full(slots, -1, np.int32)  # rows of the columns below
        self._low = self._high = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int64)

    def find(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The numbers of strings, given as by `keys_of`; -1 for those that are not in the table."""
        if not len(self._numbers):
            return np.full(len(low), -1)
        slots = self._first_slots(low, high)
        rows = self._slots[slots]
        others = np.flatnonzero((self._low[rows] != low) | (self._high[rows] != high))
        while len(others := others[rows[others] >= 0]):
            slots[others] = (slots[others] + 1) & (len(self._slots) - 1)
            rows[others] = self._slots[slots[others]]
            found = rows[others]
            others = others[(self._low[found] != low[others]) | (self._high[found] != high[others])]
        return np.where(rows >= 0, self._numbers[rows], -1)

    def enter(self, low: np.ndarray, high: np.ndarray, numbers: np.ndarray) -> None:
        """New strings, all different."""
        rows = np.arange(len(low), dtype=np.int32) + len(self._numbers)
        self._low, self._high = np.append(self._low, low), np.append(self._high, high)
        self._numbers = np.append(self._numbers, numbers)
        slots = self._first_slots(low, high)
        while len(rows):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = rows[free]  # of several for one slot, the last is entered
            others = self._slots[slots] != rows
            rows, slots = rows[others], (slots[others] + 1) & (len(self._slots) - 1)

    def _first_slots(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        mixed = (low * _ODD[0] ^ high) * _ODD[1]
        return (mixed >> self._shift).astype(np.int64)
