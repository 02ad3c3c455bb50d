"""One vector per word and layer, for the words of a treebank.

A treebank has words, a model has pieces. Each word is tokenized on its own, so it is always clear which piece belongs
to which word:

    words      The   zebras          ran    \\u200b    [SEP]
    pieces     the   ze ##br ##as    ran    [UNK]     [ sep ]

A word that the tokenizer drops entirely (control characters, for example) becomes [UNK], so every word has a piece. The
name of a special token in the text is plain text. A word's vector is the mean of its pieces' vectors, or the first or
last of them.

A sentence that is too long for the model is read in windows that overlap by half. Each word is taken from one window
only. The border is in the middle of the overlap, so each word has context on both sides.

    words      a b c d e f g h i
    window 1   a b c d e f            taken: a b c d
    window 2         d e f g h i      taken:         e f g h i
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.batching import batches
from mini_bert.common.values import check_positive
from mini_bert.finetuning.tasks.base import owners, windows
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.text.templates import Assembled, pad

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

POOLING = ("mean", "first", "last")
TOKENS = 2048  # per batch, including padding; limits the memory for the caches of all layers


def word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word, tokenized on its own; at least one per word.

    >>> from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "ze", "##bra"])
    >>> word_pieces(tokenizer, ["The", "zebra", "\\x00", "[SEP]"])
    [[5], [6, 7], [1], [1, 1, 1]]
    """
    return [row or [tokenizer.unk_id] for row in tokenizer.split_ids(words)]


class _Row(NamedTuple):
    """A window as model input."""

    sequence: Assembled  # the pieces with special tokens around them
    starts: list[int]  # position of the first piece of each kept word
    sizes: list[int]  # number of its pieces
    words: range  # indices of the kept words among the words of all sentences


def _rows(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], limit: int) -> Iterator[_Row]:
    """Windows of at most `limit` tokens. Of a word that does not end in its window, the pieces there are taken."""
    count, room = 0, limit - tokenizer.added_count()
    for sentence in sentences:
        pieces = word_pieces(tokenizer, sentence)
        row = [piece for word in pieces for piece in word]
        firsts = [0, *accumulate(map(len, pieces))]
        spans = windows(len(row), room, max(room // 2, 1))
        for (start, stop), part in zip(spans, owners(spans), strict=True):
            own = range(*(bisect_left(firsts, place, hi=len(pieces)) for place in part))  # words that begin in it
            if own:
                sequence = tokenizer.assemble(row[start:stop])
                starts = [firsts[word] - start + sequence.starts[0] for word in own]
                sizes = [min(firsts[word + 1], stop) - firsts[word] for word in own]
                yield _Row(sequence, starts, sizes, range(count + own.start, count + own.stop))
        count += len(sentence)


def check_layers(model: Model, layers: Sequence[int] | None) -> list[int]:
    """The hidden states to read: 0 is the embeddings, L the output of the last block; None means all."""
    L = model.depth
    wrong = [layer for layer in layers or () if not 0 <= layer <= L]
    if wrong:
        raise ValueError(
            f"layers has {wrong[0]}, but this model has {L} layers: expected 0 for the embeddings, or 1 to {L} for the "
            "output of one of them"
        )
    return list(range(L + 1) if layers is None else layers)


def word_vectors(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    layers: Sequence[int] | None = None,
    pooling: str = "mean",
    threads: int = 1,
    after_each: Callable[[int], None] | None = None,
) -> dict[int, np.ndarray]:
    """Returns for each layer (default: all, 0 to L) an array (N,H) with the words of all sentences in order.

    Windows of similar length are batched; `threads` batches run at a time, each with one BLAS thread. `after_each` is
    called with the number of finished words.
    """
    layers = check_layers(model, layers)
    if pooling not in POOLING:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLING)}")
    check_positive("threads", threads)
    rows = sorted(_rows(tokenizer, sentences, model.max_length), key=lambda row: len(row.sequence.ids))
    shape = (sum(map(len, sentences)), model.width)
    vectors = {layer: np.empty(shape, model.dtype) for layer in layers}

    def work(batch: list[_Row]) -> int:
        ids, mask, types, shifts = pad([row.sequence for row in batch], tokenizer.padding)
        before = np.arange(len(batch)) * ids.shape[1] + shifts  # tokens before each row
        states = model.encode(ids, mask, types, Run())[1].hidden_states()
        words = np.concatenate([np.arange(row.words.start, row.words.stop) for row in batch])
        starts = np.concatenate([first + np.array(row.starts, int) for first, row in zip(before, batch, strict=True)])
        sizes = np.concatenate([np.array(row.sizes, int) for row in batch])
        for layer in layers:
            vectors[layer][words] = pooled(states[layer].reshape(-1, shape[1]), starts, sizes, pooling)
        return words.size

    done, parts = (
        0,
        list(batches(rows, lambda row: len(row.sequence.ids), TOKENS)),
    )  # the same for any number of threads
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for words in map(work, parts) if threads == 1 else pool.map(work, parts):
            done += words
            if after_each is not None:
                after_each(done)
    return vectors


def pooled(tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, pooling: str = "mean") -> np.ndarray:
    """One vector per word (N,H) from those of the tokens (M,H); word n has sizes[n] tokens, starting at starts[n]."""
    if pooling == "first":
        return tokens[starts]
    if pooling == "last":
        return tokens[starts + sizes - 1]
    several = np.flatnonzero(sizes > 1)  # usually few
    vectors = tokens[starts]
    if several.size:
        sizes = sizes[several]
        begins = np.cumsum(sizes) - sizes
        places = np.repeat(starts[several] - begins, sizes) + np.arange(sizes.sum())
        vectors[several] = np.add.reduceat(tokens[places], begins, axis=0) / sizes[:, None].astype(tokens.dtype)
    return vectors
