"""Activations: the non-linear functions between two matrix products, without which both would be equivalent to one.

    ReLU         y = max(x, 0)        dx = dy where y > 0, else 0
    GELU         y = x Φ(x)           dx = dy (Φ(x) + x φ(x))
    GELU, tanh   y = x (1 + t)/2      dx = dy ((1 + t) + x t′)/2      t = tanh(√(2/π) (x + a x³))
    tanh         y = tanh x           dx = dy (1 − y²)

They apply to each number on its own, so backward multiplies dy by the slope at that number.

ReLU (Mini-BERT) keeps positive numbers. It has no slope at 0; like everyone, we use 0.

GELU (published BERT; Hendrycks & Gimpel 2016) multiplies x by Φ(x), the probability that a standard Gaussian is below
x: a ReLU with a smooth bend, which falls to −0.17 near x = −0.75.

    Φ(x) = (1 + erf(x/√2))/2       φ(x) = Φ′(x) = exp(−x²/2)/√(2π)       so (x Φ)′ = Φ + x φ

The same paper approximates erf by tanh: with a = 0.044715, y differs by at most 0.0005. GPT-2 and others were trained
with that form and need it; configurations call it "gelu_new" or "gelu_pytorch_tanh". By the product and chain rules,

    t′ = (1 − t²) √(2/π) (1 + 3a x²)

Each is a pair of functions, `f(x)`, which returns y and a cache, and `f_backward(dy, cache)`, which returns dx, for any
shape and dtype. ReLU and tanh need only y, which the next layer stores anyway; GELU also needs x.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.erf import in_chunks, times_cdf32, times_cdf64

# Python floats, not NumPy's: float32 times np.sqrt(2) would be float64.
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
CUBIC = 0.044715


def relu(x):
    """y = max(x, 0)"""
    y = np.clip(x, 0, math.inf)  # 0.17 ns per number; the equivalent np.maximum(x, 0) takes 0.48
    return y, y


def relu_backward(dy, y, out=None):
    """dx = dy where y > 0, else 0"""
    return np.multiply(dy, y > 0, out=out)


def gelu(x):
    """y = x Φ(x)"""
    y = in_chunks(times_cdf32, times_cdf64, x)
    return y, (x, y)


def gelu_backward(dy, cache, out=None):
    """dx = dy (Φ(x) + x φ(x)),  Φ = y/x"""
    x, y = cache  # the next layer stores y anyway; storing Φ as well would need as much again
    dx, term = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):  # 0/0, underflow of exp
        np.divide(y, x, out=dx)  # Φ
        np.copyto(dx, 0.5, where=x == 0)
        np.multiply(x, x, out=term)
        term *= -0.5
        np.exp(term, out=term)
        term *= INV_SQRT_2PI  # φ
        term *= x
    dx += term
    return np.multiply(dx, dy, out=out)


def gelu_tanh(x):
    """y = x (1 + t)/2, t = tanh(√(2/π) (x + a x³))"""
    t = np.tanh(x * (SQRT_2_OVER_PI + (SQRT_2_OVER_PI * CUBIC) * (x * x)))
    return x * (0.5 + 0.5 * t), (x, t)


def gelu_tanh_backward(dy, cache, out=None):
    """dx = dy ((1 + t) + x t′)/2, t′ = (1 − t²) √(2/π) (1 + 3a x²)"""
    x, t = cache
    inner_slope = SQRT_2_OVER_PI + (SQRT_2_OVER_PI * 3 * CUBIC) * (x * x)
    return np.multiply(dy, 0.5 * (1 + t + x * (1 - t * t) * inner_slope), out=out)


def tanh(x):
    """y = tanh x"""
    y = np.tanh(x)
    return y, y


def tanh_backward(dy, y, out=None):
    """dx = dy (1 − y²)"""
    return np.multiply(dy, 1 - y * y, out=out)


class Activation(NamedTuple):
    forward: Callable[[Any], tuple[Any, Any]]  # x -> y, cache
    backward: Callable[..., Any]  # dy, cache, out -> dx; out: memory for dx, may be dy


# The names are those of `hidden_act` in published config.json files.
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(relu, relu_backward),
    "gelu": Activation(gelu, gelu_backward),
    "gelu_new": Activation(gelu_tanh, gelu_tanh_backward),
    "gelu_pytorch_tanh": Activation(gelu_tanh, gelu_tanh_backward),
    "tanh": Activation(tanh, tanh_backward),
}


def activation(name: str) -> Activation:
    """Returns the pair of functions with this name."""
    if name not in list(ACTIVATIONS):  # a list, because the name in a configuration may be unhashable
        raise ValueError(f"unknown activation {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


if __name__ == "__main__":  # show the values, and check the slopes
    shown = {name: ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_new", "tanh")}
    print("       x" + "".join(f"{name:>12}" for name in shown))
    for number in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0):
        x = np.array([number])
        print(f"{number:8}" + "".join(f"{f.forward(x)[0][0]:12.6f}" for f in shown.values()))

    x, step = np.linspace(-6, 6, 1000), 1e-5  # no x is 0, where ReLU has no slope
    print("\nlargest difference between slope and finite differences, from −6 to 6")
    for name, f in shown.items():
        slope = f.backward(np.ones_like(x), f.forward(x)[1])
        numeric = (f.forward(x + step)[0] - f.forward(x - step)[0]) / (2 * step)
        print(f"{name:>8}  {abs(slope - numeric).max():.1e}")
