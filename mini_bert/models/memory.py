"""A model's weights in memory: two flat vectors, shared with the models inside it and with replicas for threads.

model.flat.data, model.flat.grad        all weights, all gradients (layers/base.py, `bind`)
model.replica()                         the same weights, its own gradients
deepcopy(model), pickle.dumps(model)    its own weights
model.keep_weights("bfloat16")          16 bits per weight
model.keep_weights("int8")              8 bits, for use without training
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self

import numpy as np

from mini_bert.common.eight_bit import quantise
from mini_bert.common.sixteen_bit import KINDS, kind_of, narrow, stored, widen
from mini_bert.layers.base import Flat, Layer, Pool, Run, bind

INT8 = "int8"
PART = 1 << 20  # weights that are rounded at a time
OUTER = -1  # a key in the memo of a deepcopy, where ids are keys: a model is being copied as a part of another one


class InMemory(Layer):
    """The part of a `Model` that concerns its weights in memory.

    `run` is the default for calls without a `run` argument: `set_training` turns its dropout on and off.
    """

    flat: Flat
    run: Run
    _passes = 0

    def _own_memory(self, seed: int | None, dtype: Any) -> None:
        """Call at the end of a constructor, when all Params are declared. Without a seed all weights are 0; without a
        dtype there are none: a model to count the parameters of, however large."""
        if dtype is None:
            return
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is {np.dtype(dtype)}, expected float32 (for use) or float64 (for checking)")
        try:
            flat = bind(self, dtype=dtype, seed=seed)
        except MemoryError:
            raise MemoryError(self._needs_memory(np.dtype(dtype).itemsize)) from None
        self._use(flat, Run(seed=seed or 0, pool=Pool()))

    def _use(self, flat: Flat, run: Run) -> None:
        """Set the memory and the default run, also for models inside this one."""
        self.flat, self.run = flat, run
        for inner in self.inner_models():
            inner._use(flat, run)

    def inner_models(self) -> list[Any]:
        """Models inside this one, which share its memory: the generator of an ELECTRA."""
        return [part for part in vars(self).values() if isinstance(part, InMemory)]

    def _needs_memory(self, width: int) -> str:
        parameters = sum(param.size for param in self.named_params().values())
        use, training = (f"{count * width * parameters / 1e9:,.1f} GB" for count in (2, 4))
        return (
            f"not enough memory for this model of {parameters:,} parameters: it needs {use} for weights and "
            f"gradients, and at least {training} to train; `mini-bert plan` shows how to use less"
        )

    def replica(self) -> Self:
        """The same model on the same weights, with its own gradients and scratch memory: for a second thread."""
        twin = self._unbound({})
        twin._use(bind(twin, self.flat.data), self._own_run())
        return twin

    def __deepcopy__(self, memo: Any) -> Self:
        twin = self._unbound(memo)
        if OUTER not in memo:
            data, grad = (np.concatenate([flat[place] for place in self._places()]) for flat in self.flat[:2])
            twin._use(bind(twin, data, grad), self._own_run())
        return twin

    def __reduce__(self):
        """A pickle contains the weights, but not the gradients, which are 0 afterwards."""
        return _unpickled, (
            type(self),
            self._parts(),
            self.flat.data,
            self.flat.grad.dtype,
            self.run.seed,
            self.run.train,
        )

    def __copy__(self) -> Self:
        return self.replica()

    def _parts(self) -> dict[str, Any]:
        """All attributes but those that concern memory."""
        return {name: part for name, part in vars(self).items() if name not in ("flat", "run")}

    def _unbound(self, memo: dict[Any, Any]) -> Self:
        """A copy of all layers whose weights have no memory yet. memo: as for `__deepcopy__`"""
        twin = object.__new__(type(self))
        vars(twin).update(deepcopy(self._parts(), {**memo, OUTER: True} if OUTER not in memo else memo))
        return twin

    def _places(self) -> list[slice]:
        """Our parts of the flat arrays, in the order of `bind`: all of them, unless this model is inside another."""
        params = [param for param in self.named_params().values() if param.frozen is None]
        if self.flat.data.size == sum(param.size for param in params):
            return [slice(None)]
        return [param.place for param in sorted(params, key=lambda param: not param.decay)]

    def _own_run(self) -> Run:
        """A Run with its own scratch memory"""
        return Run(self.run.seed, self.run.train, Pool())

    def keep_weights(self, kind: str) -> Self:
        """Store the weights as "float32", "bfloat16" or "float16"; products and gradients stay float32.

        "int8" stores those of linear layers and embeddings in 8 bits, all but the task's own layers, which are small
        and the last to be computed. Such a model cannot be trained. Its linear layers round what they multiply to 8
        bits, too, on a scale for the whole array, so the result of a text depends a little on the rest of the batch.
        """
        self.check_weights(kind)
        if kind == INT8 or self.in_eight_bits:
            self._freeze(self.eight_bit_params() if kind == INT8 else {})
        exact = self.flat.data if self.flat.data.itemsize == 4 else widen(self.flat.data)
        data = exact if kind in ("float32", INT8) else stored(exact.size, kind)
        if data is not exact:
            for start in range(0, exact.size, PART):  # rounding copies: one part at a time
                narrow(exact[start : start + PART], data[start : start + PART])
        self._use(bind(self, data, self.flat.grad), self.run)
        return self

    def _freeze(self, axes: Mapping[str, int]) -> None:
        """Store these weights in 8 bits, and all others in float32."""
        params = self.named_params()
        exact = {name: np.asarray(param.data) for name, param in params.items()}
        for name, param in params.items():
            wanted = name in axes and not name.startswith("task.")
            param.frozen = quantise(exact[name], axes[name]) if wanted else None
        self._use(bind(self), self.run)
        for name, param in params.items():
            if param.frozen is None:
                param.data[...] = exact[name]

    def widened(self) -> Self:
        """This model, with float32 in place of weights in 8 bits: for what needs gradients."""
        return self.keep_weights("float32") if self.in_eight_bits else self

    @property
    def in_eight_bits(self) -> bool:
        """Whether some weights are stored in 8 bits"""
        return any(param.frozen is not None for param in self.named_params().values())

    @property
    def weights_kind(self) -> str:
        """How the weights are stored, as the argument of `keep_weights`; "float64" for checking"""
        return INT8 if self.in_eight_bits else kind_of(self.flat.data)

    def check_weights(self, kind: str) -> None:
        """Raise the error that `keep_weights` would raise."""
        if kind not in (*KINDS, INT8):
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}, {INT8}")
        if self.dtype != np.float32:
            raise ValueError(f"this model computes in {self.dtype}; {kind} weights need float32")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.flat.grad.dtype

    def set_training(self, training: bool) -> Self:
        """True: dropout is on. False, as at the start: the same input gives the same output every time."""
        self.run.train = bool(training)
        return self

    def _new_run(self) -> Run:
        """A Run for one forward pass without a `run` argument: in training, every pass draws different numbers."""
        self._passes += 1
        return self.run.fork(self._passes)

    def zero_grad(self) -> None:
        self.flat.grad[...] = 0
        for param in self.named_params().values():
            param.grad_is_unset = False

    def get_parameter_count(self, by_component: bool = False) -> Any:
        """The number of parameters, or a dictionary {component: number} that sums to it."""
        if not by_component:
            return sum(param.size for param in self.named_params().values())
        counts: dict[str, int] = {}
        for name, param in self.named_params().items():
            parts = name.split(".")  # encoder.blocks.0.attention.qkv.w belongs to encoder.blocks.0, head.b to head
            inside = 0 if parts[0] != "encoder" else 2 if parts[1] == "blocks" else 1
            component = ".".join(parts[: 1 + inside])
            counts[component] = counts.get(component, 0) + param.size
        return counts


def _unpickled(
    kind: type[InMemory], parts: dict[str, Any], data: np.ndarray, dtype: Any, seed: Any, train: bool
) -> InMemory:
    model = object.__new__(kind)
    vars(model).update(parts)
    own = sum(param.size for param in model.named_params().values() if param.frozen is None)
    if data.size == own:  # else it is inside another model, which is unpickled next
        model._use(bind(model, data, np.zeros(data.size, dtype)), Run(seed, train, Pool()))
    return model
