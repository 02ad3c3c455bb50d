"""Words as vectors, layer by layer: what the tokens of a model know, gathered for the words of a treebank.

A treebank counts words, a model counts pieces. Each word is cut into pieces by itself, so which piece belongs to which
word is never in doubt, whatever the word is made of:

    words      The   zebras          ran    \\u200b    [SEP]
    pieces     the   ze ##br ##as    ran    [UNK]     [ sep ]

A word of which the tokenizer leaves nothing (control characters, say) is [UNK]: every word has a piece. A special token
that is written in the text is text. The vector of a word is the mean of the vectors of its pieces, or that of the first
or the last.

A sentence longer than the model's positions is read in windows that overlap by half. Every word is taken from one
window only: the border lies in the middle of the overlap, so that each word has words on both sides.

    words      a b c d e f g h i
    window 1   a b c d e f            taken: a b c d
    window 2         d e f g h i      taken:         e f g h i
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.batching import batches, padded
from mini_bert.common.values import check_positive
from mini_bert.finetuning.tasks.base import owners
from mini_bert.layers.base import Run
from mini_bert.models.base import Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

POOLING = ("mean", "first", "last")
TOKENS = 2048  # in a batch, padding included; what all layers keep of them is dropped before the next


def word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word by itself, at least one

    >>> from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "ze", "##bra"])
    >>> word_pieces(tokenizer, ["The", "zebra", "\\x00", "[SEP]"])
    [[5], [6, 7], [1], [1, 1, 1]]
    """
    return [row or [tokenizer.unk_id] for row in tokenizer.ids(words, special=False)]


class Window(NamedTuple):
    """Words first to last (not included) are read together; the vectors of begin to end are taken"""

    first: int
    last: int
    begin: int
    end: int


def word_windows(sizes: Sequence[int], room: int) -> list[Window]:
    """Where to read a sentence whose words have so many pieces, when `room` pieces fit; each word is taken once

    >>> word_windows([1, 1, 1], 3)
    [Window(first=0, last=3, begin=0, end=3)]
    >>> word_windows([1] * 9, 6)
    [Window(first=0, last=6, begin=0, end=4), Window(first=3, last=9, begin=4, end=9)]
    """
    if not sizes:
        return []
    ends = [0, *accumulate(sizes)]  # the pieces before each word, and all of them
    count, spans, first = len(sizes), [], 0
    if max(sizes) > room:
        raise ValueError(f"a word has {max(sizes)} pieces, but {room} fit; cut it first")
    while first < count:
        last = next((end for end in range(first, count) if ends[end + 1] - ends[first] > room), count)
        if last == count:  # the last window begins as early as it can
            first = next(start for start in range(first + 1) if ends[count] - ends[start] <= room)
        spans.append((first, last))
        if last == count:
            break
        first = next(
            start
            for start in range(first + 1, last + 1)
            if ends[last] - ends[start] <= room // 2 and ends[last + 1] - ends[start] <= room
        )
    return [Window(*span, *taken) for span, taken in zip(spans, owners(spans), strict=True)]


class _Row(NamedTuple):
    """A window as the model reads it"""

    ids: list[int]  # [CLS] pieces [SEP]
    starts: list[int]  # for each word taken, its first token
    sizes: list[int]  # and how many it has
    words: range  # the numbers of these words, counted through all sentences


def _rows(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], limit: int) -> Iterator[_Row]:
    """limit: the model's positions. A word too long for them is read as far as they go."""
    count, room = 0, limit - 2
    for sentence in sentences:
        pieces = [row[:room] for row in word_pieces(tokenizer, sentence)]
        for first, last, begin, end in word_windows([len(row) for row in pieces], room):
            ends = [1, *accumulate((len(row) for row in pieces[first:last]), initial=1)][1:]
            ids = [tokenizer.cls_id, *(i for row in pieces[first:last] for i in row), tokenizer.sep_id]
            sizes = [len(row) for row in pieces[begin:end]]
            yield _Row(ids, ends[begin - first : end - first], sizes, range(count + begin, count + end))
        count += len(sentence)


def layer_count(model: Model) -> int:
    """L: layer 0 are the embeddings, layer L is what leaves the model"""
    return len(model.encoder.blocks)


def word_vectors(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    layers: Sequence[int] | None = None,
    pooling: str = "mean",
    threads: int = 1,
    after_each: Callable[[int], None] | None = None,
) -> dict[int, np.ndarray]:
    """-> for each layer (0 to L, or those asked for) an array (N,H): the words of all sentences, in their order

    Windows of like length are computed together, `threads` batches at a time, each with one BLAS thread. `after_each`
    is told how many words are done.
    """
    L = layer_count(model)
    layers = range(L + 1) if layers is None else layers
    wrong = [layer for layer in layers if not 0 <= layer <= L]
    if wrong:
        raise ValueError(f"there is no layer {wrong[0]}; this model has 0 (embeddings) to {L}")
    if pooling not in POOLING:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLING)}")
    check_positive("threads", threads)
    rows = sorted(_rows(tokenizer, sentences, model.max_length), key=lambda row: len(row.ids))
    shape = (sum(map(len, sentences)), model.width)
    vectors = {layer: np.empty(shape, model.dtype) for layer in layers}

    def work(batch: list[_Row]) -> int:
        ids, mask = padded([row.ids for row in batch], tokenizer.pad_id)
        T = ids.shape[1]
        states = model.encode(ids, mask, run=Run())[1].hidden_states()
        words = np.concatenate([np.arange(row.words.start, row.words.stop) for row in batch])
        starts = np.concatenate([number * T + np.array(row.starts, int) for number, row in enumerate(batch)])
        sizes = np.concatenate([np.array(row.sizes, int) for row in batch])
        for layer in layers:
            vectors[layer][words] = pooled(states[layer].reshape(-1, shape[1]), starts, sizes, pooling)
        return words.size

    done, some = 0, list(batches(rows, lambda row: len(row.ids), TOKENS))  # the same ones for any number of threads
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for words in map(work, some) if threads == 1 else pool.map(work, some):
            done += words
            if after_each is not None:
                after_each(done)
    return vectors


def pooled(tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, pooling: str = "mean") -> np.ndarray:
    """tokens (M,H) -> (N,H): word n has sizes[n] tokens from starts[n] on"""
    if pooling == "first":
        return tokens[starts]
    if pooling == "last":
        return tokens[starts + sizes - 1]
    several = np.flatnonzero(sizes > 1)  # few, mostly
    found = tokens[starts]
    if several.size:
        sizes = sizes[several]
        begins = np.cumsum(sizes) - sizes
        places = np.repeat(starts[several] - begins, sizes) + np.arange(sizes.sum())
        found[several] = np.add.reduceat(tokens[places], begins, axis=0) / sizes[:, None].astype(tokens.dtype)
    return found
