"""A backward pass that is watched: the gradient at every operation, and the loss for a weight that is changed.

    passed = backward_pass(bench, reading, hidden)
    passed.found["scores", 0]          (A,T,T) the gradient of the loss at the scores of block 0
    passed.params["head.w"].grad       that of a weight
    passed.loss_with("head.w", (3, 77), 1e-5)

The model computes its backward as always. We only listen: in a copy of the model, the `backward` of each layer is
wrapped by a function that also keeps what went in, the gradient at the layer's output, and what came out, that at its
input.

The copy is in float64, because finite differences need the digits: with h = 1e-5, a float32 loss would have none left.
There is one copy for each bench, and one lock, since a finite difference changes a weight for a moment.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from mini_bert.lab.bench import Bench, Reading
from mini_bert.lab.fields import Unable
from mini_bert.lab.mask import NOTHING_BEFORE, no_guesses, way_of
from mini_bert.layers.attention import attend_backward
from mini_bert.layers.base import Param, Run
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.relative_block import RelativeBlock
from mini_bert.models.base import MASKED_WORDS, Inputs, Model

MOST_WEIGHTS = 30_000_000  # a copy in float64 with gradients takes 16 bytes for each
KEPT = 3  # passes: more than there are workers, so that no pass in use is overwritten
Place = tuple[str, int | None]  # step and layer, as in operations.py


class Pass(NamedTuple):
    """One backward pass. Its arrays belong to all requests."""

    loss: float
    gaps: list[int]  # the positions of the hidden words
    targets: list[int]  # their ids
    probabilities: list[float]
    found: dict[Place, np.ndarray]  # the gradient at every operation, without the axis of the batch
    params: dict[str, Param]
    loss_with: Callable[[str, tuple[int, ...], float], tuple[float, float]]  # at w + h and at w − h


class Twin:
    """The float64 copy of a bench's model, and its last passes."""

    def __init__(self, bench: Bench):
        model = bench.model
        count = model.flat.data.size
        if count > MOST_WEIGHTS:
            raise Unable(
                f"this model has {count:,} weights; the backward room needs a copy in float64, and takes models with "
                f"at most {MOST_WEIGHTS:,}"
            )
        way = way_of(bench)
        if way is None:
            raise Unable(f"{no_guesses(bench)} So there is no loss from which a gradient could flow.")
        self.way = way  # the output head
        self.lock = threading.Lock()
        self.model: Model = type(model)(model.config, model.output_heads, None, np.float64)
        self.model.flat.data[...] = model.flat.data
        self.passes: OrderedDict[tuple[Reading, tuple[int, ...]], tuple[Model, Pass]] = OrderedDict()


_twins: WeakKeyDictionary[Bench, Twin] = WeakKeyDictionary()
_making = threading.Lock()


def backward_pass(bench: Bench, reading: Reading, gaps: list[int]) -> Pass:
    """Hide the words at `gaps`, compute the mean of their losses, and go back. The last passes are kept.

    A model that reads forward predicts them from the words before, so nothing is hidden.
    """
    with _making:
        if bench not in _twins:
            _twins[bench] = Twin(bench)
        twin = _twins[bench]
    key = (reading, tuple(gaps))
    with twin.lock:
        if key in twin.passes:
            twin.passes.move_to_end(key)
        else:  # the oldest replica is used again: new memory for all gradients would take longer than the pass
            old = twin.passes.popitem(last=False)[1][0] if len(twin.passes) >= KEPT else twin.model.replica()
            twin.passes[key] = (old, _pass(twin, old, bench, reading, gaps))
        return twin.passes[key][1]


def _pass(twin: Twin, model: Any, bench: Bench, reading: Reading, gaps: list[int]) -> Pass:
    ids, types = np.array([reading.ids]), np.array([reading.types])
    inputs, rows_at = model.check_inputs(ids, None, types), gaps
    if twin.way == MASKED_WORDS:
        inputs = model.hide(inputs, gaps, bench.tokenizer.mask_id)
    elif 0 in gaps:
        raise Unable(NOTHING_BEFORE)
    else:
        rows_at = [gap - 1 for gap in gaps]
    run, params = Run(), model.named_params()
    for param in params.values():
        param.grad_is_unset = True
    found: dict[Place, np.ndarray] = {}
    listen(model, found)
    hidden, cache = model.encode_inputs(inputs, run)
    rows = hidden[0, rows_at]  # (N,H)
    head = model.output_head(twin.way)
    logits, scored = head.forward(rows, run)
    targets = targets_of(bench, reading, gaps, logits)
    loss, entropy = cross_entropy(logits, np.array(targets))
    probabilities = [float(entropy.probs[n, target]) for n, target in enumerate(targets)]
    dlogits = cross_entropy_backward(1.0, entropy)
    found["logits", None] = dlogits  # (N,V)
    dhidden = np.zeros_like(hidden)
    dhidden[0, rows_at] = head.backward(dlogits, scored, run)
    found["final_norm" if model.final_norm is not None else "hidden", None] = dhidden[0].copy()
    found["embeddings", None] = model.encode_backward(dhidden, cache, run)[0].copy()
    for param in params.values():
        param.zero_if_unset()

    def loss_with(name: str, index: tuple[int, ...], h: float) -> tuple[float, float]:
        """The loss if this weight were larger, and smaller, by h."""
        weight = twin.model.named_params()[name].data
        before = float(weight[index])
        with twin.lock:
            try:
                losses = []
                for step in (h, -h):
                    weight[index] = before + step
                    losses.append(loss_at(twin.model, inputs, rows_at, targets, twin.way))
            finally:
                weight[index] = before
        return losses[0], losses[1]

    return Pass(float(loss), list(gaps), targets, probabilities, found, params, loss_with)


def targets_of(bench: Bench, reading: Reading, gaps: list[int], logits: np.ndarray) -> list[int]:
    """The words of the text; for a mask in the text itself, the model's own best guess."""
    offered = logits[:, : bench.tokenizer.vocab_size].copy()
    offered[:, list(bench.tokenizer.special_ids)] = -math.inf
    best = offered.argmax(-1)
    return [int(best[n]) if reading.roles[gap] == "mask" else reading.ids[gap] for n, gap in enumerate(gaps)]


def loss_at(model: Any, inputs: Inputs, places: list[int], targets: list[int], head: str = MASKED_WORDS) -> float:
    """A forward pass and its loss."""
    rows, _ = model.encode_inputs(inputs, Run(), np.array(places))  # (N,H)
    return float(cross_entropy(model.output_head(head).forward(rows, Run())[0], np.array(targets))[0])


# ---------------------------------------------------------------------- listening to backward


def listen(model: Any, found: dict[Place, np.ndarray]) -> None:
    """From now on, every backward of this model writes its gradients to `found`.

    Blocks with norms after the sums are followed inside, their attention only if it is BERT's; others as a whole.
    """
    for layer, block in enumerate(model.encoder.blocks):
        if not isinstance(block, TransformerBlock) and type(block) is not RelativeBlock:
            _wrap(block, found, ("output_norm", layer), None)
            continue
        _wrap(block.output_norm, found, ("output_norm", layer), ("output_sum", layer))
        _wrap(block.feed_forward.contract, found, ("contract", layer), ("activation", layer))
        _wrap(block.feed_forward.expand, found, ("expand", layer), ("feed_forward_input", layer))
        _wrap(block.attention_norm, found, ("attention_norm", layer), ("attention_sum", layer))
        _wrap(block.attention.output, found, ("output", layer), ("context", layer))
        if type(block.attention) is EfficientAttention:
            _wrap(block.attention.qkv, found, None, ("attention_input", layer))
            _wrap_scores(block.attention, found, layer)
        else:
            _wrap(block.attention, found, None, ("attention_input", layer))


def _wrap(layer: Any, found: dict[Place, np.ndarray], output: Place | None, source: Place | None) -> None:
    """Keep a copy of dy and dx of a layer: blocks add to these arrays later."""
    backward = type(layer).backward.__get__(layer)

    def listening(dy: np.ndarray, cache: Any, run: Run) -> np.ndarray:
        if output is not None:
            found[output] = _stream(dy)
        dx = backward(dy, cache, run)
        if source is not None:  # DeBERTa's attention also returns the gradient of its table of distances
            found[source] = (dx[0] if isinstance(dx, tuple) else dx)[0].copy()
        return dx

    layer.backward = listening


def _stream(dy: Any) -> np.ndarray:
    """(T,H) the gradient at the output of a block; of two streams (XLNet), that of the queries if there is one"""
    if isinstance(dy, tuple):
        dy = next(one for one in reversed(dy) if one is not None)
    return (dy if dy.ndim == 2 else dy[0]).copy()


def _wrap_scores(attention: Any, found: dict[Place, np.ndarray], layer: int) -> None:
    """The inside of attention, which is not made of layers"""
    backward = type(attention).dot_product_attention_backward.__get__(attention)

    def listening(dcontext: np.ndarray, cache: Any, run: Run) -> Any:
        found["attention", layer] = (dcontext @ cache.attended.v.swapaxes(-1, -2))[0]  # dP = dC vᵀ
        found["scores", layer] = attend_backward(dcontext, cache.attended)[0][0]
        dq, dk, dv = backward(dcontext, cache, run)
        for step, gradient in (("query", dq), ("key", dk), ("value", dv)):
            found[step, layer] = gradient[0].copy()
        return dq, dk, dv

    attention.dot_product_attention_backward = listening
