"""Activations: the bends between two matrix products, without which both would collapse into one.

    ReLU         y = max(x, 0)        dx = dy where y > 0, else 0
    GELU         y = x Φ(x)           dx = dy (Φ(x) + x φ(x))
    GELU, tanh   y = x (1 + t)/2      dx = dy ((1 + t) + x t′)/2      t = tanh(√(2/π) (x + a x³))
    tanh         y = tanh x           dx = dy (1 − y²)

Each number is bent on its own, so backward multiplies dy by the slope at that number and sums nothing.

ReLU (Mini-BERT) lets through what is positive. At 0 it has no slope; like everybody we take 0.

GELU (published BERT; Hendrycks & Gimpel 2016) lets x through with the chance Φ(x) that a standard Gaussian
falls below x, and takes the average: a ReLU with a soft knee, which dips to −0.17 near x = −0.75.

    Φ(x) = (1 + erf(x/√2))/2       φ(x) = Φ′(x) = exp(−x²/2)/√(2π)       so (x Φ)′ = Φ + x φ

Its authors also offer a tanh in place of erf: a = 0.044715 makes the two agree to 0.0005 in y. GPT-2 and
others were trained with that form and need it; configurations call it "gelu_new" or "gelu_pytorch_tanh". Its
slope is the product rule, and t′ the chain rule: 1 − t² times the slope of what stands inside the tanh,

    t′ = (1 − t²) √(2/π) (1 + 3a x²)

Every pair is `f(x) -> (y, cache)`, `f_backward(dy, cache) -> dx`; any shape, dtype kept. ReLU and tanh need
only y for it, which the next layer keeps anyway; GELU needs x too.
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
    """y = max(x, 0) -> (y, y)"""
    y = np.clip(x, 0, math.inf)  # 0.17 ns a number; np.maximum(x, 0), the same thing, takes 0.48
    return y, y


def relu_backward(dy, y, out=None):
    """dx = dy where y > 0, else 0"""
    return np.multiply(dy, y > 0, out=out)


def gelu(x):
    """y = x Φ(x) -> (y, (x, y))"""
    y = in_chunks(times_cdf32, times_cdf64, x)
    return y, (x, y)


def gelu_backward(dy, cache, out=None):
    """dx = dy (Φ(x) + x φ(x)),  Φ = y/x"""
    x, y = cache  # the next layer keeps y anyway: to keep Φ too would cost as much memory again
    dx, term = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):  # 0/0; exp of the far away
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
    """y = x (1 + t)/2, t = tanh(√(2/π) (x + a x³)) -> (y, (x, t))"""
    t = np.tanh(x * (SQRT_2_OVER_PI + (SQRT_2_OVER_PI * CUBIC) * (x * x)))
    return x * (0.5 + 0.5 * t), (x, t)


def gelu_tanh_backward(dy, cache, out=None):
    """dx = dy ((1 + t) + x t′)/2, t′ = (1 − t²) √(2/π) (1 + 3a x²)"""
    x, t = cache
    inner_slope = SQRT_2_OVER_PI + (SQRT_2_OVER_PI * 3 * CUBIC) * (x * x)
    return np.multiply(dy, 0.5 * (1 + t + x * (1 - t * t) * inner_slope), out=out)


def tanh(x):
    """y = tanh x -> (y, y)"""
    y = np.tanh(x)
    return y, y


def tanh_backward(dy, y, out=None):
    """dx = dy (1 − y²)"""
    return np.multiply(dy, 1 - y * y, out=out)


class Activation(NamedTuple):
    forward: Callable[[Any], tuple[Any, Any]]  # x -> y, cache
    backward: Callable[..., Any]  # dy, cache, out -> dx; out: memory for it, and that of dy will do


# The names are those of `hidden_act` in published config.json files.
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(relu, relu_backward),
    "gelu": Activation(gelu, gelu_backward),
    "gelu_new": Activation(gelu_tanh, gelu_tanh_backward),
    "gelu_pytorch_tanh": Activation(gelu_tanh, gelu_tanh_backward),
    "tanh": Activation(tanh, tanh_backward),
}


def activation(name: str) -> Activation:
    """The pair of functions by that name."""
    if name not in list(ACTIVATIONS):  # a list: a configuration may hold what no dictionary can look up
        raise ValueError(f"there is no activation {name!r}: choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


if __name__ == "__main__":  # see the curves, and see that the slopes are right
    shown = {name: ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_new", "tanh")}
    print("       x" + "".join(f"{name:>12}" for name in shown))
    for number in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0):
        x = np.array([number])
        print(f"{number:8}" + "".join(f"{f.forward(x)[0][0]:12.6f}" for f in shown.values()))

    x, step = np.linspace(-6, 6, 1000), 1e-5  # no x is 0, where ReLU has its corner
    print("\nlargest difference between slope and finite differences, from −6 to 6")
    for name, f in shown.items():
        slope = f.backward(np.ones_like(x), f.forward(x)[1])
        numeric = (f.forward(x + step)[0] - f.forward(x - step)[0]) / (2 * step)
        print(f"{name:>8}  {abs(slope - numeric).max():.1e}")
