"""Random numbers by address: not "the next one", but "the one for sequence 71 of epoch 3, token 5".

An ordinary generator must be asked in order, so who draws when decides what comes out: two threads, or a resumed
run, would see other numbers. Here a number is a hash of where it is used. The same address always gives the same
number, whoever asks, in whatever order, and a whole batch is drawn in a few array operations.

    key  = address(seed, epoch, sequence)        64 bits for every sequence
    draw = mix(key + (t + 1) · GOLDEN)           64 bits for every token t

The second line is the generator SplitMix64 (Steele, Lea and Flood, 2014) started at `key` and asked for output t;
`mix` is its finaliser, a bijection of the 64-bit numbers in which each input bit flips each output bit with
probability 1/2. All arithmetic is modulo 2⁶⁴, which is what NumPy's uint64 arrays do.

`shuffled` puts n things in random order by the same means. NumPy's own generators may give other numbers in its next
release; these are the same for ever, so a run that is resumed years later still goes on as if never stopped.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, odd: its multiples fill the range evenly
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x):
    """Scramble 64-bit numbers, one to one."""
    x = x ^ (x >> np.uint64(30))  # an array of our own from here on: changed in place, which takes less time
    x *= FIRST
    x ^= x >> np.uint64(27)
    x *= SECOND
    x ^= x >> np.uint64(31)
    return x


def address(*parts, after=None):
    """Whole numbers, or arrays of them that broadcast -> one 64-bit key for each combination; order matters.

    after: the key of the parts that come before, so that address(a, b, c) = address(c, after=address(a, b))
    """
    key = np.zeros(1, np.uint64) if after is None else after
    for part in parts:
        if isinstance(part, int):
            part %= 2**64  # negative and huge seeds are welcome
        key = mix(mix(key + GOLDEN) + np.array(part, np.uint64, ndmin=1))
    return key


def draws(keys, stream: int, places):
    """64 random bits for each key and place. `stream` separates numbers that are used for different things."""
    keys = mix(keys + np.array([stream + 1], np.uint64) * SECOND)
    return mix(keys + (np.array(places, np.uint64, ndmin=1) + np.uint64(1)) * GOLDEN)


def uniform(bits):
    """Random bits -> floats, 0 ≤ u < 1"""
    return (bits >> np.uint64(11)) * 2.0**-53


def below(bits, n):
    """Random bits -> whole numbers from 0 to n − 1, each as likely to within n/2³² (n < 2³²; one, or an array)"""
    return (((bits >> np.uint64(32)) * np.asarray(n).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def shuffled(n: int, key):
    """0 … n − 1 in the random order that `key` names: sorted by their draws, which are all different."""
    bits = np.empty(n, np.uint64)
    for low in range(0, n, 1 << 16):  # some at a time: 8 times as fast, and no temporary array is large
        bits[low : low + (1 << 16)] = draws(key, 0, np.arange(low, min(low + (1 << 16), n)))
    order = np.argsort(bits)
    return order.astype(np.uint32) if n <= 2**32 else order  # half the memory: 4 bytes a sequence
