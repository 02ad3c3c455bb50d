"""Masking: the specified rates, never a special token, uniform, and the same for the same key."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mini_bert.objectives.masking
from mini_bert.common.draws import address
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masking import LONGEST_SPAN, MASK_PROB, SPAN_P, Masking, mask_tokens

V, B, T = 8192, 2003, 67
SPECIAL = range(5)


def text(shape=(B, T), vocab_size=V, seed=0):
    """Random words between [CLS] and [SEP], with special tokens among them and padding after some"""
    random = np.random.default_rng(seed)
    ids = random.integers(5, vocab_size, shape)
    ids[random.random(shape) < 0.02] = 3
    ids[:, 0], ids[:, -1] = 2, 3
    lengths = random.integers(shape[1] // 2, shape[1] + 1, shape[0])
    ids[np.arange(shape[1]) >= lengths[:, None]] = 0
    return ids


IDS = text()
CONTINUES = np.arange(V) % 4 == 1  # a quarter of the pieces continue a word


def words_of(row):
    """The words of a row, each a list of positions, by a naive loop"""
    words = []
    for place, token in enumerate(row):
        if token in SPECIAL:
            continue
        if CONTINUES[token] and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def within(count, trials, probability):
    """Whether this many hits in so many trials fit the probability, within five standard deviations"""
    return abs(count - trials * probability) < 5 * math.sqrt(trials * probability * (1 - probability))


# ------------------------------------------------------------------ as the guide calls it


def test_as_a_reader_calls_it():
    """The call in the specification gives three results that print well and can be passed to `loss` directly."""
    ids = np.array([[2, 31, 41, 59, 26, 53, 3]])
    masked_ids, target_ids, mask_positions = mask_tokens(ids, mask_token_id=4, vocab_size=61, mask_prob=0.15)
    assert masked_ids.shape == ids.shape and target_ids.shape == mask_positions.shape == (1,)
    assert ids[0, mask_positions[0]] == target_ids[0]
    tiny = MiniBertConfig(
        vocab_size=61, hidden_size=6, num_layers=1, num_heads=2, intermediate_size=7, max_seq_length=11
    )
    loss, _ = MiniBERT(tiny).loss(masked_ids, mask_positions, target_ids)
    assert 2 < loss < 7


def test_from_inside_the_package_folder():
    """As on the guide's tenth day: `from mlm import mask_tokens`, a sentence, and its masked form."""
    code = """
from mlm import mask_tokens
from tokenizer import WordPieceTokenizer
import numpy as np
tokenizer = WordPieceTokenizer.load('tokenizer_8k.json')
input_ids = tokenizer.encode('The cat sat on the mat')
masked_ids, target_ids, mask_positions = mask_tokens(
    np.array([input_ids]), mask_token_id=4, vocab_size=8192, mask_prob=0.15)
print(tokenizer.decode(input_ids), '|', tokenizer.decode(masked_ids[0]), '|', len(target_ids), len(mask_positions))
"""
    folder = Path(mini_bert.__file__).parent
    shown = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
    before, after, counts = shown.strip().split(" | ")
    assert before == "[CLS] the cat sat on the mat [SEP]" and counts == "1 1" and after.startswith("[CLS] ")


@pytest.mark.parametrize("options", [{}, {"whole_word": True}, {"span": True}, {"ngram": True}])
def test_what_comes_back(options):
    """Targets are the original ids at the positions; other ids and the input are unchanged; positions are
    increasing."""
    before = IDS.copy()
    before.flags.writeable = False
    masked, targets, positions = mask_tokens(before, seed=1, continues=CONTINUES, **options)
    np.testing.assert_array_equal(before, IDS)
    np.testing.assert_array_equal(IDS.ravel()[positions], targets)
    mended = masked.copy()
    mended.ravel()[positions] = targets
    np.testing.assert_array_equal(mended, IDS)
    assert (np.diff(positions) > 0).all() and not np.shares_memory(masked, before)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.uint64, list])
def test_any_kind_of_whole_number_will_do(dtype):
    """Ids of any integer type, or nested lists; a random word that would not fit the type is still correct."""
    ids = text((7, 11), 100)
    given = ids.tolist() if dtype is list else ids.astype(dtype)
    for one, two in zip(mask_tokens(given, seed=3), mask_tokens(ids, seed=3), strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == np.int64


def test_seeds():
    """The same number gives the same masks, a generator continues, and without either, every call is different."""
    same = mask_tokens(IDS, seed=5).mask_positions
    np.testing.assert_array_equal(mask_tokens(IDS, seed=5).mask_positions, same)
    generator = np.random.default_rng(5)
    several = [
        same,
        mask_tokens(IDS, seed=6).mask_positions,
        mask_tokens(IDS).mask_positions,
        mask_tokens(IDS).mask_positions,
    ]
    several += [mask_tokens(IDS, seed=generator).mask_positions for _ in range(2)]
    for i, one in enumerate(several):
        for two in several[:i]:
            assert len(np.intersect1d(one, two)) < 0.2 * len(one)  # 15 % by chance


# ------------------------------------------------------------------ how many, and which


@pytest.mark.parametrize("options", [{}, {"whole_word": True}, {"span": True}, {"span": True, "mask_prob": 0.4}])
def test_the_share_of_chosen_words(options):
    """Exactly 15 % of the words on average; never a special token."""
    share = options.get("mask_prob", MASK_PROB)
    masked, targets, positions = mask_tokens(IDS, seed=2, continues=CONTINUES, **options)
    assert targets.min() >= 5
    np.testing.assert_array_equal(masked[IDS < 5], IDS[IDS < 5])
    words = (IDS >= 5).sum(1)
    chosen = np.bincount(positions // T, minlength=B)
    error = chosen - share * words
    assert chosen.min() >= 1 and np.abs(error).max() < 1 if not options else np.abs(error).max() < 12
    assert abs(error.sum()) < 5 * math.sqrt((error**2).sum())


@pytest.mark.parametrize("options", [{}, {"whole_word": True}, {"span": True}, {"ngram": True}])
@pytest.mark.parametrize("words", [0, 1, 2, 3, 5, 8])
def test_at_least_one_target(words, options):
    """However short, a sequence with a word has a target; one without a word has none."""
    ids = np.full((1009, 13), 0)
    ids[:, 0], ids[:, words + 1] = 2, 3
    ids[:, 1 : words + 1] = np.random.default_rng(0).integers(5, V, (1009, words))
    _, _, positions = mask_tokens(ids, seed=1, continues=CONTINUES, **options)
    chosen = np.bincount(positions // 13, minlength=1009)
    assert (chosen >= 1).all() if words else not chosen.any()
    if words and not options:
        assert chosen.max() <= max(1, math.ceil(MASK_PROB * words))


def test_every_word_is_as_likely_and_independent_of_its_neighbour():
    """Every position is chosen equally often, and neighbours are chosen together as often as by chance."""
    ids = np.random.default_rng(0).integers(5, V, (20011, 62))
    chosen = np.zeros(ids.shape, bool)
    chosen.ravel()[mask_tokens(ids, seed=4).mask_positions] = True
    counts, n = chosen.sum(0), 62
    assert all(within(count, len(ids), MASK_PROB) for count in counts)
    k = chosen.sum(1)
    together = (chosen[:, 1:] & chosen[:, :-1]).sum()
    assert within(together, len(ids) * (n - 1), (k * (k - 1)).mean() / (n * (n - 1)))


def test_epochs_and_sequences_do_not_resemble_each_other():
    """Masks of different epochs and of neighbouring sequences are independent."""
    ids = np.random.default_rng(0).integers(5, V, (4001, 62))
    masking = Masking(V, 4, SPECIAL)
    chosen = np.zeros((2, *ids.shape), bool)
    for epoch in range(2):
        chosen[epoch].ravel()[masking(ids, address(9, epoch, np.arange(len(ids)))).mask_positions] = True
    share = chosen.mean()
    assert within((chosen[0] & chosen[1]).sum(), ids.size, share**2)
    assert within((chosen[0, 1:] & chosen[0, :-1]).sum(), ids.size - 62, share**2)


# ------------------------------------------------------------------ what becomes of them


def test_mask_random_same():
    """80 % [MASK], 10 % a random word, 10 % unchanged (a random word is the original once in 8,187 times)."""
    ids = np.random.default_rng(0).integers(5, V, (16001, 62))
    masked, targets, positions = mask_tokens(ids, seed=7)
    now, n = masked.ravel()[positions], len(positions)
    assert within((now == 4).sum(), n, 0.8)
    assert within((now == targets).sum(), n, 0.1 + 0.1 / (V - 5))
    random = now[(now != 4) & (now != targets)]
    assert within(len(random), n, 0.1 - 0.1 / (V - 5))
    assert random.min() >= 5


def test_random_words_are_uniform():
    """Every non-special word is equally likely: chi-square over all of them, with special tokens in the middle."""
    special, vocab_size = [0, 1, 50, 51, 52, 53], 211
    ids = np.full((30011, 31), 60)
    masked, _, _ = mask_tokens(ids, 53, vocab_size, seed=3, special_ids=special, mask_prob=0.5)
    counts = np.bincount(masked[(masked != 53) & (masked != 60)], minlength=vocab_size)
    assert not counts[special].any()
    words = np.delete(counts, [*special, 60])
    deviation = ((words - words.mean()) ** 2 / words.mean()).sum() - (len(words) - 1)
    assert words.sum() > 40_000 and abs(deviation) < 5 * math.sqrt(2 * len(words))


# ------------------------------------------------------------------ whole words, spans


def test_whole_words_are_chosen_whole():
    """All pieces of a word or none, compared with a naive search for words; long words as often as short ones. The
    80/10/10 rule then applies to each piece, as in BERT."""
    masked, _, positions = mask_tokens(IDS, seed=2, continues=CONTINUES, whole_word=True)
    chosen = np.zeros(IDS.shape, bool)
    chosen.ravel()[positions] = True
    by_size: dict[int, list[bool]] = {}
    for row, marks in zip(IDS, chosen, strict=True):
        for word in words_of(row):
            assert len(set(marks[word])) == 1
            by_size.setdefault(len(word), []).append(bool(marks[word[0]]))
    for size in (1, 2, 3):
        assert abs(np.mean(by_size[size]) - MASK_PROB) < 0.01
    pieces = masked.ravel()[positions]
    assert within((pieces == 4).sum(), len(pieces), 0.8)
    two = chosen[:, 1:] & chosen[:, :-1] & CONTINUES[IDS[:, 1:]]  # a piece, and the one before it, of one word
    both = (masked[:, 1:] == 4) & (masked[:, :-1] == 4)
    assert two.sum() > 3000 and abs(both[two].mean() - 0.64) < 5 * math.sqrt(0.64 * 0.36 / two.sum() * 1.5)


def test_spans_have_geometric_lengths():
    """Runs of 1 to 10 words with P(l) ∝ 0.2 · 0.8^(l−1): chi-square, and the published mean of 3.8."""
    masking = Masking(V, 4, SPECIAL, span=True)
    ids = np.full((307, 1000), 60)  # 100 spans of at most 10 always fit, so none that we count is cut short
    _, group = masking._units(ids, masking.is_word[ids], address(0, np.arange(307)))
    lengths = np.concatenate([np.diff(np.unique(row)[:101]) for row in group])
    shares = SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN)
    shares /= shares.sum()
    counts = np.bincount(lengths, minlength=LONGEST_SPAN + 1)[1:]
    deviation = ((counts - len(lengths) * shares) ** 2 / (len(lengths) * shares)).sum() - (LONGEST_SPAN - 1)
    assert len(counts) == LONGEST_SPAN and abs(deviation) < 5 * math.sqrt(2 * LONGEST_SPAN)
    assert round(float(shares @ np.arange(1, 11)), 1) == 3.8 and abs(lengths.mean() - 3.797) < 0.1


def test_ngrams_have_the_lengths_of_albert():
    """Runs of 1, 2 and 3 words with P(n) ∝ 1/n: 6/11, 3/11 and 2/11."""
    masking = Masking(V, 4, SPECIAL, ngram=True)
    ids = np.full((307, 500), 60)  # 100 runs of at most 3 always fit
    _, group = masking._units(ids, masking.is_word[ids], address(0, np.arange(307)))
    lengths = np.concatenate([np.diff(np.unique(row)[:101]) for row in group])
    expected = len(lengths) * np.array([0, 6, 3, 2]) / 11
    counts = np.bincount(lengths)
    assert len(lengths) == 30_700 and len(counts) == 4
    assert counts[0] == 0 and (abs(counts - expected)[1:] < 5 * np.sqrt(expected[1:])).all()


def test_ngrams_are_whole_words_and_each_piece_has_its_own_fate():
    """Never part of a word, and of two chosen neighbours both are masked with probability 0.8², as for whole words."""
    masked, _, positions = mask_tokens(IDS, seed=2, continues=CONTINUES, ngram=True)
    chosen = np.zeros(IDS.shape, bool)
    chosen.ravel()[positions] = True
    for row, marks in zip(IDS, chosen, strict=True):
        for word in words_of(row):
            assert len(set(marks[word])) == 1
    two = chosen[:, 1:] & chosen[:, :-1]
    both = (masked[:, 1:] == 4) & (masked[:, :-1] == 4)
    assert two.sum() > 3000 and abs(both[two].mean() - 0.64) < 0.03
    with pytest.raises(ValueError, match="span and ngram are both True"):
        mask_tokens(IDS, seed=2, span=True, ngram=True)


def test_spans_are_runs_of_whole_words_with_one_fate():
    """A few long runs; never part of a word; never across a special token; a span is masked as a whole or not
    at all."""
    masked, _, positions = mask_tokens(IDS, seed=2, continues=CONTINUES, span=True)
    chosen = np.zeros(IDS.shape, bool)
    chosen.ravel()[positions] = True
    for row, marks in zip(IDS[:300], chosen, strict=False):
        assert all(len(set(marks[word])) == 1 for word in words_of(row))
    runs = (chosen[:, 1:] & ~chosen[:, :-1]).sum()
    single = np.zeros(IDS.shape, bool)
    single.ravel()[mask_tokens(IDS, seed=2).mask_positions] = True
    assert runs < 0.45 * (single[:, 1:] & ~single[:, :-1]).sum()
    neighbours = chosen[:, 1:] & chosen[:, :-1]
    alike = ((masked[:, 1:] == 4) == (masked[:, :-1] == 4))[neighbours]
    assert alike.mean() > 0.9  # 0.68 if each had its own fate; spans side by side may differ
    hidden = (masked.ravel()[positions] == 4).mean()
    assert abs(hidden - 0.8) < 5 * math.sqrt(0.8 * 0.2 / runs)  # a run has one fate, or few


def test_spans_stop_at_special_tokens():
    """Tokens on the two sides of a special token never share a span: each side has its own, which is masked
    independently."""
    ids = np.full((1009, 20), 60)
    ids[:, 7] = ids[:, 12] = 3
    masking = Masking(V, 4, SPECIAL, span=True)
    _, group = masking._units(ids, masking.is_word[ids], address(0, np.arange(len(ids))))
    for first, last in ((0, 7), (8, 12), (13, 20)):
        assert (group[:, first] == first).all() and (group[:, first:last] >= first).all()
    masked, _, _ = mask_tokens(ids, seed=1, span=True, mask_prob=1.0)  # all are chosen: fates side by side
    hidden = masked == 4
    assert within((hidden[:, 6] & hidden[:, 8]).sum(), len(ids), 0.64)  # 0.8 if they had one fate


def test_spans_without_words_are_runs_of_pieces():
    """Without `continues` a span counts pieces."""
    _, _, positions = mask_tokens(IDS, seed=2, span=True)
    assert (np.diff(positions) == 1).mean() > 0.6


# ------------------------------------------------------------------ the same key, the same masks


@pytest.mark.parametrize("options", [{}, {"whole_word": True}, {"span": True}, {"ngram": True}])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_masks_depend_on_the_key_alone(options, data):
    """Masks do not depend on other sequences, their order, or the padding."""
    masking = Masking(V, 4, SPECIAL, continues=CONTINUES, **options)
    keys = address(1, 2, np.arange(B))
    rows = np.array(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=9)))
    padding = data.draw(st.integers(0, 17))
    ids = np.pad(IDS[rows], ((0, 0), (0, padding)))
    masked, _, positions = masking(ids, keys[rows])
    for i, row in enumerate(rows):
        alone, _, alone_positions = masking(IDS[row : row + 1], keys[row : row + 1])
        np.testing.assert_array_equal(masked[i, :T], alone[0])
        here = positions // (T + padding) == i
        np.testing.assert_array_equal(positions[here] % (T + padding), alone_positions)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mask_prob": 0}, ValueError, "mask_prob is 0, expected more than 0"),
        ({"mask_prob": 1.5}, ValueError, "mask_prob is 1.5"),
        ({"mask_token_id": 103}, ValueError, "mask_token_id is 103.*pass special_ids=tokenizer.special_ids"),
        ({"vocab_size": 50}, ValueError, r"ids\[0, 1\] is 60, expected 0 to 49"),
        ({"vocab_size": 5}, ValueError, "all 5 ids of the vocabulary are special"),
        ({"vocab_size": 3}, ValueError, "special id 4 is not in a vocabulary of 3"),
        ({"special_ids": [-1]}, ValueError, "special id -1 is not in a vocabulary"),
        ({"whole_word": True}, ValueError, "pass continues=tokenizer.continues"),
        ({"whole_word": True, "continues": [True]}, ValueError, r"continues has shape \(1,\), expected \(8192,\)"),
        ({"ids": [2, 60, 3]}, ValueError, r"ids must have shape \(batch, tokens\)"),
        ({"ids": [[]]}, ValueError, r"at least one token, got \(1, 0\)"),
        ({"ids": [[2, 60, 3], [2, 60, 61, 3]]}, ValueError, r"of different lengths; pad them .*padding=True"),
        ({"ids": 7}, ValueError, r"got \(\)"),
        ({"ids": [[2.0, 60.0, 3.0]]}, TypeError, "ids must be integers"),
    ],
)
def test_errors_name_the_value(arguments, error, message):
    """The error says why an input cannot be masked."""
    with pytest.raises(error, match=message):
        mask_tokens(**{"ids": [[2, 60, 3]], **arguments})
