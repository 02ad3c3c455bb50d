"""The spelling of a word by merges: the fast way is the rule."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.text.merging import Speller
from mini_bert.text.merging_together import Merger


def literally(word, merges):
    """Lists of pieces, one merge at a time: the earliest in the list, at its first place."""
    pieces = list(word)
    while True:
        found = [(merges.index(pair), place) for place, pair in enumerate(pairwise(pieces)) if pair in merges]
        if not found:
            return pieces
        _, place = min(found)
        pieces[place : place + 2] = ["".join(pieces[place : place + 2])]


def trained(words, count):
    """Merges as training finds them: the most frequent pair, again and again."""
    spelt, merges = [list(word) for word in words], []
    for _ in range(count):
        pairs = Counter(pair for word in spelt for pair in pairwise(word))
        if not pairs:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        spelt = [literally("".join(word), merges) for word in words]
    return merges


def spelt(speller, word, how):
    texts = {symbol: text for text, symbol in speller.symbols.items()}
    return [texts[symbol] for symbol in how(word)]


WORDS = st.text("ab", max_size=14)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=8), st.integers(0, 14), st.lists(WORDS))
def test_merges_that_were_learnt(words, count, others):
    """Learnt merges are regular, and longest pieces that are final give the same spelling as merging."""
    merges = trained(words, count)
    speller = Speller(merges)
    assert speller.regular
    for word in (*words, *others):
        expected = literally(word, merges)
        assert spelt(speller, word, speller.merge) == spelt(speller, word, speller.spell) == expected
    assert Merger(speller).merge([*words, *others]) == [speller.merge(word) for word in (*words, *others)]


PARTS = st.text("ab", min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PARTS, PARTS), max_size=8, unique=True), st.lists(WORDS, max_size=8))
def test_any_list_of_merges(merges, words):
    """Lists that no training gives, in any order, with pieces made in two ways or never, are followed literally."""
    speller = Speller(merges)
    for word in words:
        assert spelt(speller, word, speller.spell) == literally(word, merges)
    together = Merger(speller).merge(words)
    assert together == [speller.merge(word) for word in words]


def test_the_worked_example():
    """The example at the top of the module; and that border where an earlier merge makes a difference."""
    speller = Speller([("t", "h"), ("th", "e"), ("i", "n")])
    assert spelt(speller, "thinthe", speller.spell) == ["th", "in", "the"]
    stolen = Speller([("e", "n"), ("t", "h"), ("th", "e")])
    assert spelt(stolen, "then", stolen.spell) == ["th", "en"] and spelt(stolen, "the", stolen.spell) == ["the"]


def test_long_words_take_linear_time():
    """Ten times as long a word takes about ten times as many checks, not a hundred times as in `merge`."""

    class Counting(Speller):
        checks = 0

        def final(self, *border):
            self.checks += 1
            return super().final(*border)

    speller = Counting([("a", "b"), ("a", "a"), ("aa", "ab"), ("b", "ab")])
    assert speller.regular
    checks = []
    for length in (300, 3000):
        speller.checks = 0
        speller.spell("aabab" * length)
        checks.append(speller.checks)
    assert checks[0] > 300 and checks[1] < 11 * checks[0]
