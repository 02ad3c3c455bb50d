"""Our own operations as ONNX operators: one table for all architectures.

The layers mark functions as an `operation` where ONNX has one operator for their NumPy lines, or where these depend
on the numbers (layers/operation.py). Each entry here takes the same arguments and returns the same results as the
function, with Traced arrays. A new layer needs an entry only if its NumPy lines cannot be traced.

Masks: a score is lowered to the lowest float by adding it, which is the same for scores of any sensible size, and the
sum of mask and scores is what ONNX Runtime is fast at. The addend is computed once for all blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_bert.common.eight_bit import Int8
from mini_bert.export.numpy_operators import arange, concatenate, split, where
from mini_bert.export.operators import OPERATIONS, operator_for
from mini_bert.export.sizes import Size, symbol
from mini_bert.export.traced import Traced, lifted, onnx_type, take
from mini_bert.layers import matrices
from mini_bert.layers.attention import AttendCache
from mini_bert.layers.base import Run
from mini_bert.layers.initialisers import frequencies
from mini_bert.layers.layer_norm import LayerNormCache
from mini_bert.layers.operation import UNANSWERED
from mini_bert.layers.relative_positions import Distances, distances
from mini_bert.layers.rotary import waves

# ---------------------------------------------------------------------- products, norms, activations


@operator_for(OPERATIONS, "matrices.times")
def times(x, w):
    if not isinstance(x, Traced):
        return UNANSWERED
    if isinstance(w, Int8) and len(w.scales) == 1:
        return _times_int8(x, w)
    return x @ np.asarray(w)


def _times_int8(x, w):
    """A product of integers. In this order ONNX Runtime computes all of it in one step, with a bias that is added.

    MatMulInteger subtracts the zero point of x; that of w is 0.
    """
    graph = x.graph
    a, scale, zero = graph.node("DynamicQuantizeLinear", [x.name], outputs=3)
    total = graph.node("MatMulInteger", [a, graph.constant(w.integers), zero])
    scales = graph.node("Mul", [scale, graph.constant(w.scales.reshape(w.shape[1]))])
    name = graph.node("Mul", [graph.node("Cast", [total], to=onnx_type(np.float32)), scales])
    return Traced(graph, name, matrices.times(x.value, w), [*x.shape[:-1], w.shape[1]])


@operator_for(OPERATIONS, "layer_norm.LayerNorm.forward")
def layer_norm(layer, x, run):
    weights = [layer.gamma.data] + ([] if layer.beta is None else [layer.beta.data])
    inputs = [x, *(lifted(x.graph, weight) for weight in weights)]
    y, _ = layer.forward(x.value, Run())
    return x.new("LayerNormalization", *inputs, value=y, axis=-1, epsilon=layer.eps), LayerNormCache(None, None)  # type: ignore[arg-type]


@operator_for(OPERATIONS, "softmax.softmax")
def softmax(x):
    shifted = np.exp(x.value - x.value.max(-1, keepdims=True))
    p = x.new("Softmax", x, value=shifted / shifted.sum(-1, keepdims=True), axis=-1)
    return p, p


def log_softmax(x):
    shifted = x.value - x.value.max(-1, keepdims=True)
    value = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return x.new("LogSoftmax", x, value=value, axis=-1)


@operator_for(OPERATIONS, "activations.relu")
def relu(x):
    y = x.new("Relu", x, value=np.maximum(x.value, 0))
    return y, y


@operator_for(OPERATIONS, "activations.gelu")
def gelu(x):
    """x (1 + erf(x/√2)) / 2, in the order in which ONNX Runtime recognises it and computes it in one step"""
    from mini_bert.layers.erf import erf

    scaled = x / math.sqrt(2)
    y = x * (scaled.new("Erf", scaled, value=erf(scaled.value)) + 1.0) * 0.5
    return y, (x, y)


@operator_for(OPERATIONS, "activations.gelu_tanh")
def gelu_tanh(x):
    """Likewise"""
    inner = (x + 0.044715 * x**3.0) * math.sqrt(2 / math.pi)
    y = 0.5 * x * (1.0 + np.tanh(inner))
    return y, (x, y)


@operator_for(OPERATIONS, "activations.silu")
def silu(x):
    sigmoid = x.new("Sigmoid", x, value=1 / (1 + np.exp(-x.value.clip(-80, 80))))
    return x * sigmoid, (x, sigmoid)


# ---------------------------------------------------------------------- embeddings


@operator_for(OPERATIONS, "embedding.Embedding.forward")
def embedding(layer, ids, run):
    return _rows_of(layer.table.data, ids), ids


@operator_for(OPERATIONS, "disentangled_embedding.DisentangledEmbedding.forward")
def disentangled_embedding(layer, ids, run):
    return _rows_of(layer.shared.data, ids) + _rows_of(layer.difference.data, ids), ids


@operator_for(OPERATIONS, "embedding.PositionEmbedding.forward")
def position_embedding(layer, x, run, positions=None):
    if positions is not None:
        return x + take(layer.table.data, positions, 0), positions
    return x + lifted(x.graph, layer.table.data)[: x.shape[1]], None


def _rows_of(table, ids):
    """table[ids]; if all ids are the same, one row for all tokens"""
    if ids.filled is not None:
        return table[ids.filled]
    if isinstance(table, Int8):
        scales = take(table.scales.reshape(len(table)), ids, 0)
        return take(table.integers, ids, 0).astype(np.float32) * scales[..., None]
    return take(np.asarray(table), ids, 0)


@operator_for(OPERATIONS, "adaptive_embedding.AdaptiveEmbedding.forward")
def adaptive_embedding(layer, ids, run):
    """Every cluster looks up all tokens, and those that belong to it count."""
    y = None
    for start, stop, table, projection in layer._clusters():
        inside = (ids >= start) & (ids < stop)
        e = _rows_of(table.table.data, np.clip(ids - start, 0, stop - start - 1))
        e = e if projection is None else projection.forward(e, run)[0]
        y = e if y is None else where(inside[..., None], e, y)
    return y * layer.scale, None


@operator_for(OPERATIONS, "adaptive_softmax.AdaptiveSoftmax.forward")
def adaptive_softmax(layer, x, run):
    first: Any = None
    parts = []
    for c in range(len(layer.edges) - 1):
        part = layer._part(c)
        inner = x if part.projection is None else times(x, part.projection.data.T)
        z = times(inner, part.table.data.T) + np.asarray(part.bias.data)
        if c == 0 and layer.clusters is not None:
            z = concatenate([z, times(inner, layer.clusters.data.T) + layer.cluster_bias.data], -1)
        z = log_softmax(z)
        if c == 0:
            first = z
            parts.append(z[..., : layer.edges[1]])
        else:
            column = layer._column(c)
            parts.append(z + first[..., column : column + 1])
    return concatenate(parts, -1) if len(parts) > 1 else parts[0], x


# ---------------------------------------------------------------------- attention


@operator_for(OPERATIONS, "attention.attend")
def attend(scores, v, run, mask=None, p=0.0, at=None):
    """Where a query sees no key, its context is 0. That is computed only if the mask differs between queries: otherwise
    it would be a text that is all padding, whose vectors mean nothing."""
    if mask is not None:
        scores = scores + where(mask, np.float32(0), np.finfo(np.float32).min)
    probs, _ = softmax(scores)
    context = probs @ v
    if mask is not None and not _is_one(mask.shape[-2]):
        context = context * mask.any(-1, keepdims=True).astype(np.float32)
    return context, AttendCache(probs, None, v)


def _is_one(size):
    return not isinstance(size, Size) and size == 1


@operator_for(OPERATIONS, "lean_attention.lean_attend")
def lean_attend(q, k, v, scale, run, mask=None, p=0.0, tile=0, at=None):
    """In one piece: a graph has no loop over tiles"""
    return attend(q @ k.swapaxes(-1, -2) * scale, v, run, mask)


@operator_for(OPERATIONS, "attention.MultiHeadAttention.split_heads", "relative_attention.RelativeAttention._split")
def split_heads(layer, x, parts):
    """The parts first, then the heads of each: what is copied is smaller"""
    each = [x] if parts == 1 else _parts(x, parts)
    return [one.reshape(*x.shape[:2], layer.heads, layer.head_size).transpose(0, 2, 1, 3) for one in each]


def _parts(x, parts):
    """x = y W + b, split by columns, as parts × y W_i + b_i. One product and a `Split`, copying, takes 1.06 times as
    long as three products for 32 texts of 64 tokens (MiniLM), and 1.01 times for single texts."""
    graph, bias = x.graph, None
    node = graph.producer.get(x.name)
    if node is not None and node.op == "Add":
        bias = graph.initialisers.get(node.inputs[1])
        node = graph.producer.get(node.inputs[0]) if bias is not None else None
    weight = graph.initialisers.get(node.inputs[1]) if node is not None and node.op == "MatMul" else None
    if node is None or weight is None:
        return split(x, parts, -1)
    names = [graph.node("MatMul", [node.inputs[0], graph.constant(one)]) for one in np.split(weight, parts, -1)]
    if bias is not None:
        biases = map(graph.constant, np.split(bias, parts))
        names = [graph.node("Add", [name, one]) for name, one in zip(names, biases, strict=True)]
    shape = [*x.shape[:-1], x.shape[-1] // parts]
    values = np.split(x.value, parts, -1)
    return [Traced(graph, name, value, shape) for name, value in zip(names, values, strict=True)]


@operator_for(OPERATIONS, "rotary.RotaryAttention.before_scores")
def rotary(layer, q, k, v, tokens=None):
    T, d = k.shape[2], k.shape[3]
    cos, sin = (lifted(k.graph, table)[:T] for table in waves(layer.theta, d, k.graph.longest, np.dtype(np.float32)))

    def rotated(x):
        a, b = split(x, 2, -1)
        return concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return rotated(q), rotated(k), v


# ---------------------------------------------------------------------- masks and distances


@operator_for(OPERATIONS, "masks.causal")
def causal(queries, keys=None, window=None):
    K = queries if keys is None else keys
    places = arange(K - queries, K, like=queries)[:, None]  # of the queries among the keys
    keys_ = arange(K, like=queries)
    mask = keys_ <= places
    return mask if window is None else mask & (keys_ > places - window)


@operator_for(OPERATIONS, "masks.local")
def local(tokens, reach):
    places = arange(tokens, like=tokens)
    return abs(places[:, None] - places) <= reach


@operator_for(OPERATIONS, "masks.unless_empty")
def unless_empty(mask):
    return mask


@operator_for(OPERATIONS, "relative_attention.distance_waves")
def distance_waves(T, K, width, later, clamp=0, sign=1, dtype=np.float32):
    distance = arange(K, -T if later else -1, -1, like=T)
    if clamp > 0:
        distance = np.clip(distance, -clamp, clamp)
    angle = distance[:, None] * (sign * frequencies(width))  # in float64, as the layer does
    return concatenate([np.sin(angle), np.cos(angle)], -1).astype(dtype)


@operator_for(OPERATIONS, "relative_attention.relative_shift")
def relative_shift(x, K, tokens=None, T=None):
    """y[i,j] = x[i, j + T − i]: in memory, number T + i (J−1) + j"""
    *outer, T, J = x.shape
    return _skewed(x.reshape(*outer, T * J), T, T, J - 1, K)


def _skewed(flat, start, rows, step, columns):
    """y[i,j] = flat[start + i·step + j]"""
    *outer, _ = flat.shape
    kept = flat[..., start : start + rows * step].reshape(*outer, rows, step)
    return kept[..., :columns]


class AnyDistances(Distances):  # of Traced arrays
    """Distances of a text of any length: several may share a row."""

    @property
    def shared(self):
        return True


@operator_for(OPERATIONS, "relative_positions.distances")
def all_distances(T, span, buckets=0, largest=0):
    """The rows in use are neighbours in the table: from that of the distance −(T−1) to that of T−1."""
    graph, longest = T.graph, T.graph.longest
    known = distances(longest, span, buckets, largest)
    rows = lifted(graph, known.rows[known.row_of])[longest - T : longest + T - 1]  # (2T−1,)
    first, stop = rows[:1], rows[-1:] + 1  # vectors of length 1
    wanted = np.arange(int(first.value[0]), int(stop.value[0]))
    name = graph.node("Range", [first.reshape(()).name, stop.reshape(()).name, graph.scalar(1)])
    in_use = symbol("rows of distances in use", len(wanted), graph)  # known only when the graph runs
    table_rows: Any = Traced(graph, name, wanted, [in_use], range_of=(first.name, stop.name))
    return AnyDistances(table_rows, rows - first)


@operator_for(OPERATIONS, "disentangled_attention.DisentangledAttention.add_position_scores")
def add_position_scores(layer, scores, q, k, positions, layout):
    if positions is None:
        return
    falling, rising = layer.of_distances(positions)
    total = scores.copy()
    if falling is not None:
        total = total + _distance_scores(q, falling)
    if rising is not None:
        total = total + _distance_scores(k, rising).swapaxes(-1, -2)
    scores.become(total)


def _distance_scores(x, r):
    """S_tc = x_t · r_{T−1−t+c}. With one more row in r, a text of one token needs no other case."""
    T = x.shape[2]
    scores = x @ concatenate([r, r[:, :1]], 1).swapaxes(-1, -2)  # (B,A,T,2T)
    *outer, _, J = scores.shape
    return _skewed(scores.reshape(*outer, T * J), T - 1, T, J - 1, T)


# ---------------------------------------------------------------------- convolution and pooling


@operator_for(OPERATIONS, "convolution.Convolution.forward")
def convolution(layer, x, run):
    size, groups, part, _ = layer.w.data.shape
    kernel = np.asarray(layer.w.data).transpose(1, 3, 2, 0).reshape(groups * part, part, size)
    by_feature = x.transpose(0, 2, 1)
    y, _ = layer.forward(x.value, run)
    convolved = by_feature.new(
        "Conv", by_feature, lifted(x.graph, kernel), lifted(x.graph, layer.b.data), value=y.transpose(0, 2, 1),
        group=groups, pads=(size // 2, size // 2), kernel_shape=(size,),
    )  # fmt: skip
    return convolved.transpose(0, 2, 1).copy(), x


@operator_for(OPERATIONS, "pooling.summary")
def summary(x, used=None, at=0):
    if not isinstance(at, Traced):
        return x[:, at], None
    places = at.reshape(at.shape[0], 1)  # (B,1)
    value = x.value[np.arange(len(x)), at.value]
    return x.new("GatherND", x, places, value=value, shape=(x.shape[0], x.shape[2]), batch_dims=1), None


@operator_for(OPERATIONS, "pooling.maximum")
def maximum(x, used, at=0):
    return where(used[:, :, None], x, np.finfo(np.float32).min).max(1), None
