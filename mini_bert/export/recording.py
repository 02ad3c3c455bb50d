"""From a model to an ONNX graph: run its own forward pass on Traced arrays, and keep what they record.

    recording = record(model)                   the vectors of the tokens: last_hidden_state
    recording = record(model, words)            the scores of the head for words: logits
    recording = record(model, words, past=True) the same for one token after another: keys and values in and out
    recording.to_onnx()                         an onnx.ModelProto

Inputs are those that optimum and transformers.js expect: input_ids, attention_mask and, if the model tells texts apart,
token_type_ids, int64 (batch_size, sequence_length).

**Right for all batches.** The forward pass runs twice, with examples of different shapes, and must record the same
graph both times. A constant that is made from the length of the text, or a branch on it, differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.export import operations as operations  # fills the tables that Traced arrays read
from mini_bert.export.graph import Graph, differences
from mini_bert.export.names import (
    BATCH,
    HIDDEN,
    INPUT_IDS,
    LENGTH,
    LOGITS,
    MASK,
    PAST,
    PAST_LENGTH,
    POSITIONS,
    PRESENT,
    TYPES,
)
from mini_bert.export.sizes import Size, symbol
from mini_bert.export.traced import NotTraceable, Traced
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Inputs, Model

EXAMPLES = ((2, 5, 3), (4, 7, 2))  # texts, tokens, earlier tokens. Even: some models read half of a batch backwards

Outputs = dict[str, Traced]
Head = Callable[[Model, Traced, "Given"], Outputs]


class Given(NamedTuple):
    """The inputs of a graph; types are None if the model has none."""

    ids: Traced  # (B,T)
    mask: Traced  # (B,T) booleans
    types: Traced | None  # (B,T)


class Recording(NamedTuple):
    graph: Graph
    outputs: Outputs
    description: str

    @property
    def input_names(self) -> list[str]:
        return list(self.graph.inputs)

    def to_onnx(self) -> Any:
        """An onnx.ModelProto"""
        outputs = {name: (one.name, one.dtype, one.shape) for name, one in self.outputs.items()}
        return self.graph.to_onnx(outputs, self.description)


def record(model: Model, head: Head | None = None, past: bool = False) -> Recording:
    """The graph of a model with a head; without one, of the vectors of its tokens

    past: it also takes the keys and values of earlier tokens, and returns those of all tokens so far. The mask is then
    for all of them, and positions are an input.
    """
    if past and not model.keeps_keys:
        raise ValueError(
            f"this {type(model).__name__} keeps no keys and values of earlier tokens; export it without --past"
        )
    if model.dtype != np.float32:
        raise ValueError(f"the weights are {model.dtype}, expected float32: load the model with dtype=np.float32")
    if model.flat.data.itemsize == 2:
        model = deepcopy(model).keep_weights("float32")
    with threadpool_limits(1, "blas"):  # the examples are small
        first, second = (_recorded(model, head or vectors, past, *sizes) for sizes in EXAMPLES)
    outputs = ([one.name for one in recording.outputs.values()] for recording in (first, second))
    differing = differences(first.graph, second.graph, *outputs)
    if differing:
        raise NotTraceable(
            f"two recordings of this {type(model).__name__}, with batches of different shapes, differ: "
            f"{'; '.join(differing[:3])}. A constant or a branch depends on the shape of the batch"
        )
    return first


def _recorded(model: Model, head: Head, past: bool, B: int, T: int, P: int) -> Recording:
    graph = Graph(_arrays(model), model.max_length)
    batch, length, before = (symbol(name, size, graph) for name, size in ((BATCH, B), (LENGTH, T), (PAST_LENGTH, P)))
    rng = np.random.default_rng(0)

    def given(name: str, example: np.ndarray, *shape: Any) -> Traced:
        axes = tuple(size.formula if isinstance(size, Size) else size for size in shape)
        return Traced(graph, graph.input(name, example.dtype, axes), example, shape)

    def integers(name: str, example: Any, length: Any = length) -> Traced:
        return given(name, np.broadcast_to(example, (B, int(length))).astype(np.int64), batch, length)

    def keys(name: str) -> Traced:
        example = rng.normal(size=(B, model.heads, P, model.width // model.heads)).astype(np.float32)
        return given(name, example, batch, model.heads, before, model.width // model.heads)

    ids = integers(INPUT_IDS, rng.integers(0, model.vocab_size, (B, T)))
    seen = before + length if past else length
    mask = integers(MASK, np.arange(int(seen)) < int(seen) - np.arange(B)[:, None], seen).astype(bool)
    types = integers(TYPES, np.arange(T) > T // 2) if model.tells_texts_apart else None
    places = memory = None
    if past:
        places = integers(POSITIONS, P + np.arange(T))
        memory = [(keys(f"{PAST}.{block}.key"), keys(f"{PAST}.{block}.value")) for block in range(model.depth)]
    inputs: Any = Inputs(ids, mask[:, None, None, :], types, places, memory)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):  # the example is no text: it may have no words to pool
        hidden, cache = model.encode_inputs(inputs, Run())
        outputs = head(model, hidden, Given(ids, mask, types))
    for block, both in enumerate(cache.memory if past else ()):
        outputs |= {f"{PRESENT}.{block}.{part}": one for part, one in zip(("key", "value"), both, strict=True)}
    return Recording(graph, outputs, f"{type(model).__name__}, traced by Mini-BERT")


def _arrays(model: Model) -> dict[str, np.ndarray]:
    """The weights by name; of those in 8 bits, integers and scales, under the names that ONNX Runtime's tools give"""
    arrays = {}
    for name, param in model.named_params().items():
        if param.frozen is None:
            arrays[name] = param.data
        else:
            arrays |= {f"{name}_quantized": param.frozen.integers, f"{name}_scale": param.frozen.scales.reshape(-1)}
    return arrays


# ---------------------------------------------------------------------- heads


def vectors(model: Model, hidden: Traced, given: Given) -> Outputs:
    """The vectors of the tokens (B,T,H)"""
    return {HIDDEN: hidden}


def words(model: Model, hidden: Traced, given: Given) -> Outputs:
    """The scores of the words of the vocabulary (B,T,V)"""
    name = MASKED_WORDS if MASKED_WORDS in model.output_heads else NEXT_WORD
    return {LOGITS: model.output_head(name).forward(hidden, Run())[0]}


def replaced(model: Model, hidden: Traced, given: Given) -> Outputs:
    """One score for each token: was it replaced? (B,T)"""
    return {LOGITS: model.output_head(REPLACED).forward(hidden, Run())[0][..., 0]}


HEADS: Mapping[str, Head] = {MASKED_WORDS: words, NEXT_WORD: words, REPLACED: replaced}


def own_head(model: Model) -> Head:
    """What a pretrained model predicts; vectors if it predicts nothing"""
    return next((head for name, head in HEADS.items() if name in model.output_heads), vectors)
