"""Muon: every matrix inside the blocks moves in all of its directions by the same amount.

    m = μ m + (1−μ) g                       a running mean of the gradient (r,c)
    d = μ m + (1−μ) g                       "Nesterov": the newest gradient counts a little more
    w = w − lr (0.2 √max(r,c) · U Vᵀ + λ w)       where d = U Σ Vᵀ: all singular values become 1 (orthogonal.py)

(Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; scale and decay: Liu et al. 2025, "Muon
is scalable for LLM training".) Most of the length of a gradient is in a few directions; the many others, which matter
for rarer inputs, have little. Here all count the same. The rows or columns of U Vᵀ have length 1, so the root mean
square of its numbers is 1/√max(r,c). With the factor, a step changes a number by about 0.2 lr; so do Adam's steps in
practice, and so Adam's learning rates and weight decay suit it.

This makes sense for matrices that map vectors to vectors. Embeddings, output heads, biases and norms are left to Adam.
Queries, keys and values are three matrices in one array: each is made orthogonal on its own (`Param.matrices`).

A step of Mini-BERT with 32 × 64 tokens makes 18 matrices orthogonal. On one core that takes 25 ms of processor time,
half of what five steps of the published iteration take; it is shared among the threads of a run. It does not depend on
the batch: the larger the batch, the less it matters.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.values import check_positive_number, check_share
from mini_bert.layers.base import Param
from mini_bert.models.base import Model
from mini_bert.training.optim import Adam, Map, check_lr, keep, one_by_one, stored_moments, unscaled, wide
from mini_bert.training.orthogonal import orthogonalised

RMS = 0.2  # Adam's updates are about 0.2 lr: successive gradients agree only in part


class Matrix(NamedTuple):
    """One matrix (r,c): some columns of a Param."""

    place: slice  # of the Param in the flat arrays
    own: slice  # of the Param in m
    shape: tuple[int, int]  # of the Param
    columns: slice

    def of(self, array: np.ndarray, place: slice) -> np.ndarray:
        """Its numbers in a flat array that has the Param at this place"""
        return array[place].reshape(self.shape)[:, self.columns]


class Muon:
    """Updates a model's weights: the matrices in its blocks with Muon, everything else with Adam.

    lr          of Adam, at its peak; matrix_lr: of the matrices (default: the same). `step(lr)` scales both alike
    adam        further arguments of Adam: beta1, beta2, eps
    """

    def __init__(
        self,
        model: Model,
        lr: float = 1e-3,
        matrix_lr: float | None = None,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        moments: str = "float32",
        **adam: Any,
    ):
        if not isinstance(model, Model):
            raise TypeError(f"Muon works on the matrices of a model: pass the model, not a {type(model).__name__}")
        check_share("momentum", momentum, "a number")
        if matrix_lr is not None:
            check_positive_number("matrix_lr", matrix_lr)
            check_positive_number("lr", lr)  # which the other is relative to
        self.flat, self.momentum, self.weight_decay = model.flat, momentum, weight_decay
        params = sorted(block_matrices(model), key=lambda param: param.place.start)
        self.matrices = sorted(
            _matrices(params), key=_cost, reverse=True
        )  # the longest first: threads end at about the same time
        rest = _gaps([param.place for param in params], self.flat.data.size)
        self.adam = Adam(self.flat, lr, weight_decay=weight_decay, moments=moments, places=rest, **adam)
        self.m = stored_moments(self.flat, sum(param.size for param in params), moments)
        self.relative_lr = 1.0 if matrix_lr is None else matrix_lr / lr
        self._scale = 1.0  # of the gradients in the last step
        self._last: tuple[Any, np.ndarray] | None = None  # the update of a tensor that is being inspected in parts

    @property
    def t(self) -> int:
        return self.adam.t

    @t.setter
    def t(self, value: int) -> None:
        self.adam.t = value

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"momentum": self.m, **self.adam.arrays}

    def step(self, lr: float | None = None, scale: float = 1.0, map: Map = one_by_one) -> None:
        """One update from the gradients times `scale`; the gradients are not changed.

        Every matrix and every chunk of the rest is independent of the others; `map` spreads them over threads.
        """
        lr = self.adam.lr if lr is None else lr
        check_lr(lr)
        self.t, self._scale = self.t + 1, scale
        jobs = [partial(self._update, matrix, lr * self.relative_lr, scale) for matrix in self.matrices]
        jobs += [partial(self.adam.update, chunk, lr, scale) for chunk in self.adam.chunks]
        map(lambda number: jobs[number](), range(len(jobs)))

    def _update(self, matrix: Matrix, lr: float, scale: float) -> None:
        weights, moments = matrix.of(self.flat.data, matrix.place), matrix.of(self.m, matrix.own)
        w, m = wide(weights), unscaled(moments)
        m *= self.momentum
        m += matrix.of(self.flat.grad, matrix.place) * ((1 - self.momentum) * scale)
        update = self._direction(matrix, m, scale)
        update *= lr
        w *= 1 - lr * self.weight_decay
        w -= update
        keep((self.t, matrix.place.start, matrix.columns.start), w, weights, (m, moments))

    def _direction(self, matrix: Matrix, m: np.ndarray, scale: float) -> np.ndarray:
        """0.2 √max(r,c) · U Vᵀ        d = μ m + (1−μ) g = U Σ Vᵀ"""
        d = matrix.of(self.flat.grad, matrix.place) * ((1 - self.momentum) * scale)
        d += self.momentum * m
        update = orthogonalised(d)
        update *= RMS * math.sqrt(max(d.shape))
        return update

    def last_update(self, part: slice, lr: float) -> np.ndarray:
        """What the last step subtracted from a part of one tensor, without decay; recomputed, for inspection."""
        own = [one for one in self.matrices if one.place.start <= part.start < one.place.stop]
        if not own:
            return self.adam.last_update(part, lr)
        place, key = own[0].place, (self.t, own[0].place.start, lr)
        if self._last is None or self._last[0] != key:
            whole = np.empty(own[0].shape, self.flat.grad.dtype)
            for matrix in own:
                m = unscaled(matrix.of(self.m, matrix.own))
                whole[:, matrix.columns] = self._direction(matrix, m, self._scale)
            whole *= lr * self.relative_lr
            self._last = key, whole
        update = self._last[1].ravel()[part.start - place.start : part.stop - place.start]
        if part.stop == place.stop:  # its last part
            self._last = None
        return update


def block_matrices(model: Model) -> list[Param]:
    """The Params in the blocks of a model, and of models inside it, that are matrices. Shared ones count once."""
    blocks = [block for part in (model, *model.inner_models()) for block in part.encoder.blocks]
    found = {id(param): param for block in blocks for param in block.named_params().values() if param.matrices}
    return list(found.values())


def _matrices(params: list[Param]) -> list[Matrix]:
    found, first = [], 0
    for param in params:
        rows, columns = param.shape
        width, own = columns // param.matrices, slice(first, first + param.size)
        first = own.stop
        for left in range(0, columns, width):
            found.append(Matrix(param.place, own, (rows, columns), slice(left, left + width)))
    return found


def _cost(matrix: Matrix) -> int:
    """Roughly proportional to the time it takes"""
    low, high = sorted((matrix.shape[0], matrix.columns.stop - matrix.columns.start))
    return low * low * high


def _gaps(places: list[slice], size: int) -> list[slice]:
    """What these places, in ascending order, leave of 0 … size"""
    edges = [0, *(edge for place in places for edge in (place.start, place.stop)), size]
    return [slice(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
