"""Random numbers by address: "the number for epoch 3, sequence 71, token 5" instead of "the next number".

    key  = address(seed, epoch, sequence)        64 bits for every sequence
    draw = mix(key + (t + 1) · GOLDEN)           64 bits for every token t

With an ordinary generator, the result depends on the order of the draws, so that two threads, or a resumed run, get
different numbers. Here each number is a hash of where it is used. The same address always has the same number, in any
order of computation, and a whole batch is drawn in a few array operations.

The second line is the generator SplitMix64 (Steele, Lea and Flood, 2014), started at `key`, at its output number t.
`mix` is its finaliser, a bijection of the 64-bit numbers in which each input bit flips each output bit with probability
1/2. All arithmetic is modulo 2⁶⁴, as it is for NumPy's uint64 arrays.

`shuffled` permutes n items in the same way. NumPy's generators may change between releases; these never do, so a run
resumed years later continues as if it had not been interrupted.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, odd: its multiples are spread evenly
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x):
    """Scramble 64-bit numbers, one to one."""
    x = x ^ (x >> np.uint64(30))  # a new array, which the next lines change in place: faster
    x *= FIRST
    x ^= x >> np.uint64(27)
    x *= SECOND
    x ^= x >> np.uint64(31)
    return x


def address(*parts, after=None):
    """Returns a 64-bit key for integers, or for each combination of integer arrays that broadcast. Order matters.

    after: the key of preceding parts, so that address(a, b, c) = address(c, after=address(a, b))
    """
    key = np.zeros(1, np.uint64) if after is None else after
    for part in parts:
        if isinstance(part, int):
            part %= 2**64  # allow negative and huge seeds
        key = mix(mix(key + GOLDEN) + np.array(part, np.uint64, ndmin=1))
    return key


def draws(keys, stream: int, places):
    """64 random bits for each key and place. Different streams, for different purposes, are independent."""
    keys = mix(keys + np.array([stream + 1], np.uint64) * SECOND)
    return mix(keys + (np.array(places, np.uint64, ndmin=1) + np.uint64(1)) * GOLDEN)


def uniform(bits):
    """Turns random bits into floats, 0 ≤ u < 1."""
    return (bits >> np.uint64(11)) * 2.0**-53


def below(bits, n):
    """Turns random bits into integers from 0 to n − 1, uniform to within n/2³². n < 2³² is a number or an array."""
    return (((bits >> np.uint64(32)) * np.asarray(n).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def shuffled(n: int, key):
    """0 … n − 1 in a random order determined by `key`: sorted by their draws, which are all different."""
    bits = np.empty(n, np.uint64)
    for low in range(0, n, 1 << 16):  # in parts: 8 times as fast, with small temporary arrays
        bits[low : low + (1 << 16)] = draws(key, 0, np.arange(low, min(low + (1 << 16), n)))
    order = np.argsort(bits)
    return order.astype(np.uint32) if n <= 2**32 else order  # half the memory
