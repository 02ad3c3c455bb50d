"""Counter-based random numbers: they follow SplitMix64, are uniform, and do not correlate with their addresses."""

import itertools
import math

import numpy as np
import pytest

from mini_bert.common.draws import GOLDEN, address, below, draws, mix, shuffled, uniform


def chi_square(counts, expected):
    """By how many standard deviations the chi-square statistic of these counts exceeds its mean"""
    freedom = np.size(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def test_the_numbers_are_those_of_splitmix64():
    """Started at 0, the generator gives the same sequence as the authors' implementation."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    np.testing.assert_array_equal(mix(np.arange(1, 5, dtype=np.uint64) * GOLDEN), np.array(published, np.uint64))


def test_mixing_can_be_undone():
    """`mix` is invertible: big-integer arithmetic recovers every input."""

    def unshift(x, k):
        y = x
        while (x := x >> k) != 0:
            y ^= x
        return y

    first, second = (pow(n, -1, 2**64) for n in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    inputs = np.random.default_rng(0).integers(2**64, size=100, dtype=np.uint64)
    for before, after in zip(inputs.tolist(), mix(inputs).tolist(), strict=True):
        assert unshift(unshift(unshift(after, 31) * second % 2**64, 27) * first % 2**64, 30) == before


def test_addresses_are_the_same_for_ever():
    """Draws for numbers and arrays, including negative and huge ones, never change, because resumed runs rely on the
    values."""
    assert address(0, 0, 0).tolist() == [14399257910185382036]
    assert address(-1) == address(2**64 - 1)
    np.testing.assert_array_equal(address(7, 3, np.arange(5)), [address(7, 3, i)[0] for i in range(5)])
    np.testing.assert_array_equal(
        address(7, np.array([1, 2]), np.array([3, 4])), [address(7, 1, 3)[0], address(7, 2, 4)[0]]
    )
    assert address(1, 2) != address(2, 1) and address(1) != address(1, 0)
    assert address(9, after=address(7, 3)) == address(7, 3, 9)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_every_bit_of_an_address_matters(part):
    """Changing one bit of seed, epoch or sequence flips each of the 64 bits of a draw half of the time."""
    random = np.random.default_rng(part)
    parts = [random.integers(2**40, size=4000).astype(np.uint64) for _ in range(3)]
    before = draws(address(*parts), 0, 5)
    parts[part] = parts[part] ^ (np.uint64(1) << random.integers(40, size=4000).astype(np.uint64))
    flipped = before ^ draws(address(*parts), 0, 5)
    rates = [((flipped >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(64)]
    assert max(abs(rate - 0.5) for rate in rates) < 5 * 0.5 / math.sqrt(4000)


def test_draws_are_uniform_and_independent_of_their_neighbours():
    """Over tokens, sequences, epochs and streams, histograms are flat and neighbouring draws are uncorrelated."""
    keys = address(3, np.arange(8)[:, None], np.arange(64)[None])  # (epoch, sequence)
    numbers = np.stack([uniform(draws(keys[..., None], stream, np.arange(128))) for stream in range(2)])
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(chi_square(np.histogram(numbers, 256, (0, 1))[0], numbers.size / 256)) < 5
    for axis in range(4):
        one, two = (
            np.take(numbers, range(*ends), axis) for ends in ((0, numbers.shape[axis] - 1), (1, numbers.shape[axis]))
        )
        assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 5 / math.sqrt(one.size)
        cells = np.histogram2d(one.ravel(), two.ravel(), 16, ((0, 1), (0, 1)))[0]
        assert abs(chi_square(cells, one.size / 256)) < 5


@pytest.mark.parametrize("n", [1, 2, 7, 8187])
def test_whole_numbers_are_equally_likely(n):
    """`below` gives 0 to n − 1 with equal probability; with an array of limits, it uses one limit per draw."""
    numbers = below(draws(address(5), 0, np.arange(20 * n + 1000)), n)
    assert numbers.min() == 0 and numbers.max() == n - 1
    if n > 1:
        assert abs(chi_square(np.bincount(numbers, minlength=n), len(numbers) / n)) < 5
    bits = draws(address(5), 0, np.arange(50))
    limits = np.arange(1, 51)
    np.testing.assert_array_equal(below(bits, limits), [below(b, int(n)) for b, n in zip(bits, limits, strict=True)])


def test_shuffling_gives_every_order_as_often():
    """All 24 orders of four items are equally likely; the result is a permutation and depends only on the key."""
    orders = [tuple(shuffled(4, address(seed)).tolist()) for seed in range(4800)]
    counts = np.array([orders.count(order) for order in itertools.permutations(range(4))])
    assert counts.sum() == 4800 and abs(chi_square(counts, 200)) < 5
    order = shuffled(1009, address(1))
    np.testing.assert_array_equal(np.sort(order), np.arange(1009))
    np.testing.assert_array_equal(order, shuffled(1009, address(1)))
    assert (order != shuffled(1009, address(2))).mean() > 0.98


def test_shuffling_more_than_one_block():
    """Beyond 65,536 items, numbers are drawn in blocks: the result is still a reproducible permutation, and each block
    has its own draws."""
    n = 2**16 + 1009
    order = shuffled(n, address(1))
    assert order.dtype == np.uint32
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(order, np.argsort(draws(address(1), 0, np.arange(n))))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    late = place[2**16 :]  # where those of the second block come: anywhere, and not beside their namesakes of the first
    assert abs(late.mean() - n / 2) < 5 * n / math.sqrt(12 * 1009)
    assert (np.abs(late - place[:1009]) > 1).mean() > 0.99
    assert order[:5].tolist() == [18103, 50989, 51696, 24195, 44633]  # for ever
