"""What all models share: their weights as one vector, counting, saving, loading."""

from __future__ import annotations

import os
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, Self

import numpy as np

from mini_bert.common.sixteen_bit import check_kind, narrow, stored, widen
from mini_bert.files.model_folder import WEIGHT_FILES, assign, read_folder, read_tensors
from mini_bert.layers.base import Flat, Layer, Pool, Run, bind

PART = 1 << 20  # weights that are rounded at a time


class Model(Layer):
    """A layer that owns its memory: `flat.data` is all weights, `flat.grad` all gradients, as one vector each.

    `run` serves calls that bring none of their own: `set_training` turns its dropout on and off.
    """

    flat: Flat
    run: Run
    task: Any = None  # the layer on top of a fine-tuned model (finetuning/model.py, finetuning/heads.py)
    _passes = 0

    def _own_memory(self, seed: int | None, dtype: Any) -> None:
        """Call at the end of a constructor, when all Params are declared. No seed: all weights are 0, to be read."""
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is {np.dtype(dtype)}, expected float32 (for use) or float64 (for checking)")
        self.flat = bind(self, dtype=dtype, seed=seed)
        self.run = Run(seed=seed or 0, pool=Pool())

    def replica(self) -> Self:
        """The same model on the same weights, with gradients and scratch memory of its own: for a second thread."""
        twin = self._unbound()
        twin.flat = bind(twin, self.flat.data)
        return twin

    def __deepcopy__(self, memo: Any) -> Self:
        twin = self._unbound()
        twin.flat = bind(twin, self.flat.data.copy(), self.flat.grad.copy())
        return twin

    def _unbound(self) -> Self:
        """The same parts around weights that have no memory yet."""
        twin = copy(self)
        vars(twin).update(deepcopy({name: part for name, part in vars(self).items() if name not in ("flat", "run")}))
        twin.run = Run(self.run.seed, self.run.train, Pool())
        return twin

    def keep_weights(self, kind: str) -> Self:
        """Keep the weights in "float32", "bfloat16" or "float16" (common/sixteen_bit.py); products and gradients stay
        float32."""
        self.check_weights(kind)
        exact = self.flat.data if self.flat.data.itemsize == 4 else widen(self.flat.data)
        data = exact if kind == "float32" else stored(exact.size, kind)
        if data is not exact:
            for start in range(0, exact.size, PART):  # rounding has a copy in passing: of a part, not of all
                narrow(exact[start : start + PART], data[start : start + PART])
        self.flat = bind(self, data, self.flat.grad)
        return self

    def check_weights(self, kind: str) -> None:
        """Whether `keep_weights` can be done"""
        check_kind("kind", kind)
        if self.dtype != np.float32:
            raise ValueError(f"this model computes in {self.dtype}; weights in 16 bits go with float32")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.flat.grad.dtype

    def set_training(self, training: bool) -> Self:
        """True: dropout is on. False (as a model starts): every answer is the same each time."""
        self.run.train = bool(training)
        return self

    def _new_run(self) -> Run:
        """For one forward pass of a caller who brought no `run`: in training, every pass draws other numbers."""
        self._passes += 1
        return self.run.fork(self._passes)

    def zero_grad(self) -> None:
        self.flat.grad[...] = 0
        for param in self.named_params().values():
            param.grad_is_unset = False

    def get_parameter_count(self, by_component: bool = False) -> Any:
        """The number of parameters, or a dictionary {component: number} that sums to it."""
        if not by_component:
            return self.flat.data.size
        counts: dict[str, int] = {}
        for name, param in self.named_params().items():
            component = self._component(name)
            counts[component] = counts.get(component, 0) + param.size
        return counts

    @staticmethod
    def _component(name: str) -> str:
        """`encoder.blocks.0.attention.qkv.w` belongs to `encoder.blocks.0`, `head.b` to `head`."""
        parts = name.split(".")
        return ".".join(parts[:3]) if parts[0] == "encoder" else parts[0]

    def load_checkpoint(self, path: str | os.PathLike[str]) -> Self:
        """Replace the weights by saved ones, in this library's own names: of a file (`model.safetensors`), or a folder

        A folder is one that `locate` knows: of a model, of a checkpoint (`RUN/checkpoints/step-00000500`), or of a run,
        which stands for its best model, or its newest checkpoint where there is none yet.
        """
        is_file = Path(path).suffix in WEIGHT_FILES and not Path(path).is_dir()
        tensors = read_tensors(path) if is_file else read_folder(path)[1]
        assign(self.named_params(), tensors, str(path))
        return self
