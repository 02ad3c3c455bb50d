"""The engine `onnx`: the same model, whose encoder is computed by ONNX Runtime.

    model = on_onnx(load_model("mini-bert"))
    embed(model, tokenizer, texts)              as before

The graph is traced from the model that was loaded (recording.py). Only the encoder runs in ONNX Runtime; output heads
and task heads stay in NumPy, because they need a few rows only. So everything that uses a model for inference works.

What the graph has no input for is computed in NumPy as before: training, a memory of earlier tokens (`generate`), and
XLNet's order of prediction (its `fill-mask`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.extras import extra
from mini_bert.export.names import HIDDEN, INPUT_IDS, MASK, TYPES
from mini_bert.layers.base import Run
from mini_bert.layers.matrices import rows
from mini_bert.models.base import Inputs, Model
from mini_bert.models.cache import EncodeCache

ENGINES = ("numpy", "onnx")
NEEDS = "the engine onnx needs the packages onnx and onnxruntime (the extra `onnx`)"


def with_engine(model: Model, engine: str, threads: int | None = None) -> Model:
    """The model, computed by this engine. threads: of ONNX Runtime; None: one for each core

    With onnx, NumPy has one BLAS thread from now on, in the whole process: threads of OpenBLAS that wait for the next
    product keep the cores from those of ONNX Runtime, and a batch takes longer. `on_onnx`, for programs that choose
    this themselves, does not change it.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, expected one of {', '.join(ENGINES)}")
    if engine == "numpy":
        return model
    threadpool_limits(1, "blas")
    return on_onnx(model, threads=threads)


def on_onnx(model: Model, graph: bytes | str | os.PathLike[str] | None = None, threads: int | None = None) -> Model:
    """Returns the model itself, with an encoder that runs in ONNX Runtime. Its weights are those of now.

    graph: an ONNX file, or its content, with the output last_hidden_state; None: traced from the model
    """
    if graph is None:
        extra("onnx", NEEDS)
        from mini_bert.export.recording import record  # not needed by the engine numpy

        graph = record(model).to_onnx().SerializeToString()
    vars(model)["encode_inputs"] = Engine(model, session_of(graph, threads)).encode_inputs
    return model


def session_of(graph: bytes | str | os.PathLike[str], threads: int | None = None) -> Any:
    """An onnxruntime.InferenceSession on the processor

    From 1.29 on, ONNX Runtime keeps an identifier of the user in ~/.cache, and reports what it runs to its makers. That
    is off here, unless the environment says ORT_DISABLE_TELEMETRY=0 or another module has imported it before.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the package is imported
    runtime = extra("onnxruntime", NEEDS)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: one for each core
    options.log_severity_level = 3  # errors only
    source = graph if isinstance(graph, bytes) else os.fspath(graph)
    return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Engine:
    """`encode_inputs` of a model, computed by a session of ONNX Runtime"""

    def __init__(self, model: Model, session: Any):
        self.session, self.in_numpy = session, model.encode_inputs
        self.names = {one.name for one in session.get_inputs()}
        outputs = [one.name for one in session.get_outputs()]
        if HIDDEN not in outputs:
            raise ValueError(
                f"this graph gives {', '.join(outputs)}, but the engine needs {HIDDEN}; export it with --encoder"
            )

    def encode_inputs(self, inputs: Inputs, run: Run, chosen: Any = None) -> tuple[np.ndarray, EncodeCache]:
        """As Model.encode_inputs. The cache holds no intermediate results."""
        if run.train or inputs.memory is not None or inputs.order is not None or inputs.positions is not None:
            return self.in_numpy(inputs, run, chosen)
        shape = inputs.ids.shape
        mask = np.ones(shape, np.int64) if inputs.mask is None else inputs.mask[:, 0, 0]
        types = np.zeros(shape, np.int64) if inputs.types is None else inputs.types
        given = {INPUT_IDS: inputs.ids, MASK: mask, TYPES: types}
        feed = {name: np.ascontiguousarray(given[name], np.int64) for name in self.names}
        (hidden,) = self.session.run([HIDDEN], feed)
        selected = hidden if chosen is None else rows(hidden)[chosen]
        return selected, EncodeCache(inputs, hidden, None, [], None, selected)

    def __deepcopy__(self, memo: Any) -> Engine:
        raise ValueError("a model on the engine onnx cannot be copied or trained; load it again, or copy it before")
