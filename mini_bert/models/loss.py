"""A model's loss: the cross-entropies of its output heads at some tokens.

    loss = Σ_terms weight · 1/N Σ_rows −log p(target)

    loss, cache = model.loss_of(inputs, [Term("masked_words", rows, targets)])
    dx = model.loss_backward(cache)                                            adds to every gradient

Only the rows of the terms enter the loss, so the heads and most of the last block run on these rows only.

Letters: B batch, T tokens, H hidden width, N rows of a term, C classes of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.layers.chosen import choose_rows_backward
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.matrices import add_rows, rows
from mini_bert.models.cache import EncodeCache, Inputs
from mini_bert.models.memory import InMemory


class Term(NamedTuple):
    """A part of the loss: the cross-entropy of an output head's scores at some rows."""

    head: str
    rows: np.ndarray | None  # (N,) row b·T + t is token t of sequence b; None: all rows, in order
    targets: np.ndarray  # (N,) the correct class of each row
    divisor: int | None = None  # of the sum over the rows; default: their number
    weight: float = 1.0  # of this part in the sum of all


class ScoreCache(NamedTuple):
    below: Any  # of the head that this one reads, or None
    own: Any
    binary: bool  # whether the head has one logit per row
    chosen: np.ndarray | None  # the rows that were asked for, of a head that reads whole sequences; None: all
    shape: tuple[int, ...]  # of what the head returned


class TermCache(NamedTuple):
    term: Term
    scores: ScoreCache | None  # None: the head has a loss of its own
    loss: float  # of this term, before its weight
    entropy: Any  # a CrossEntropyCache, or another with `targets`, `correct` and `pieces`


class LossCache(NamedTuple):
    encoded: EncodeCache
    terms: list[TermCache]  # backward empties this: the scores of a head are the largest of all caches

    def parts(self) -> dict[str, tuple[float, CrossEntropyCache]]:
        """The terms of the loss with their cross-entropies, by the name of the head. Read them before backward."""
        return {cache.term.head: (cache.loss, cache.entropy) for cache in self.terms}

    @property
    def cross_entropy(self) -> CrossEntropyCache:
        """Of the first term"""
        return self.terms[0].entropy


class WithLoss(InMemory):
    """The part of a `Model` that concerns the loss."""

    head_inputs: ClassVar[Mapping[str, str]] = {}  # a head that reads another one's output, such as the pooler's
    sequence_heads: ClassVar[frozenset[str]] = frozenset()  # for a row, they read other rows of its sequence, too
    encoder: Encoder
    output_head: Callable[..., Any]
    encode_inputs: Callable[..., tuple[np.ndarray, EncodeCache]]
    encode_backward: Callable[..., np.ndarray]

    def loss_of(self, inputs: Inputs, terms: Sequence[Term], run: Run | None = None):
        """The sum of the terms, for inputs that are already checked. Returns the loss and the cache for
        `loss_backward`."""
        run = self._new_run() if run is None else run
        for term in terms:
            self.output_head(term.head)
        every = any(term.rows is None or term.head in self.sequence_heads for term in terms)
        chosen = None if every else _concatenated([term.rows for term in terms])
        hidden, encoded = self.encode_inputs(inputs, run, chosen)  # (N,H) the rows of all terms, or (B,T,H)
        x, start, loss, caches = rows(hidden), 0, 0.0, []
        for term in terms:
            if term.head in self.sequence_heads:
                cache = self.term_loss(term, hidden, run)
            elif every:
                cache = self.term_loss(term, x if term.rows is None else x[term.rows], run)
            else:
                cache = self.term_loss(term, x[start : start + term.targets.size], run)
                start += term.targets.size
            loss += cache.loss if term.weight == 1 else term.weight * cache.loss
            caches.append(cache)
        return loss, LossCache(encoded, caches)

    def loss_backward(self, cache: LossCache, dloss: float = 1.0, run: Run | None = None):
        """Returns dx (B,T,H) at the sum of the embeddings; adds to every gradient."""
        run = run or self.run
        if not isinstance(cache, LossCache):
            raise TypeError(f"loss_backward takes the cache of loss, not a {type(cache).__name__}; see also backward")
        self.encoder.check(cache.encoded.blocks)
        gradients = []
        while cache.terms:
            part = cache.terms.pop(0)
            dx = self.term_loss_backward(dloss * part.term.weight, part, run)  # (N,H)
            gradients.append((None if part.term.head in self.sequence_heads else part.term.rows, dx))
            del part  # the blocks reuse its memory
        dhidden = _joined(gradients, cache.encoded.hidden.shape)
        del gradients
        return self.encode_backward(dhidden, cache.encoded, run)

    def term_loss(self, term: Term, x, run: Run) -> TermCache:
        """The cross-entropy of a term for its rows x (N,H), or all rows (B,T,H) for a head that reads sequences.

        A head may have a `loss` of its own that computes only some of the scores (adaptive_softmax.py).
        """
        head: Any = self.output_head(term.head)
        if hasattr(head, "loss"):
            return TermCache(term, None, *head.loss(x, term.targets, term.divisor, run))
        chosen = term.rows if term.head in self.sequence_heads else None
        scores, cache = self.score(term.head, x, run, chosen)  # (N,C)
        return TermCache(term, cache, *cross_entropy(scores, term.targets, term.divisor, out=scores))

    def term_loss_backward(self, dloss: float, cache: TermCache, run: Run):
        """Returns dx (N,H); adds to the gradients of the head."""
        head: Any = self.output_head(cache.term.head)
        if cache.scores is None:
            return head.loss_backward(dloss, cache.entropy, run)
        dscores = cross_entropy_backward(dloss, cache.entropy, out=cache.entropy.exp)
        return self.score_backward(cache.term.head, dscores, cache.scores, run)

    def score(self, name: str, x, run: Run, chosen=None) -> tuple[np.ndarray, ScoreCache]:
        """The scores of an output head for rows x (N,H): (N,C), and the cache for `score_backward`.

        A head that reads whole sequences needs all rows, x (B,T,H), and its scores are those of the chosen ones.

        One logit z per row answers a yes-or-no question: its scores are [0, z], and their softmax is [1 − σ(z), σ(z)].
        """
        below = None
        if name in self.sequence_heads and x.ndim != 3:
            raise ValueError(f"the head {name!r} reads whole sequences, so x needs the shape (B,T,H), got {x.shape}")
        if name in self.head_inputs:
            x, below = self.output_head(self.head_inputs[name]).forward(x[:, None], run)
        scores, own = self.output_head(name).forward(x, run)
        cache = ScoreCache(below, own, scores.shape[-1] == 1, chosen, scores.shape)
        scores = rows(scores) if chosen is None else rows(scores)[chosen]
        return np.pad(scores, ((0, 0), (1, 0))) if cache.binary else scores, cache

    def score_backward(self, name: str, dscores, cache: ScoreCache, run: Run):
        """Returns dx (N,H), of all rows for a head that reads whole sequences; adds to the gradients of the head."""
        dscores = dscores[:, 1:] if cache.binary else dscores
        if cache.chosen is not None:
            dscores = choose_rows_backward(dscores, (cache.shape, cache.chosen))
        dx = self.output_head(name).backward(dscores.reshape(cache.shape), cache.own, run)
        if name in self.head_inputs:
            dx = self.output_head(self.head_inputs[name]).backward(dx, cache.below, run)[:, 0]
        return rows(dx)


def _concatenated(arrays):
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(gradients, shape):
    """The gradient at the hidden states, from those at the rows of each term; rows None: all.

    shape (N,H): the hidden states are the rows of all terms, one after the other. shape (B,T,H): they are all rows.
    """
    if len(shape) == 2 or (gradients[0][0] is None and len(gradients) == 1):
        return _concatenated([dx for _, dx in gradients]).reshape(shape)
    dhidden = np.zeros(shape, gradients[0][1].dtype)
    for chosen, dx in gradients:
        if chosen is None:
            dhidden += dx.reshape(shape)
        else:
            add_rows(rows(dhidden), chosen, dx)
    return dhidden
