"""Activations: the non-linear functions between two matrix products, without which both would be equivalent to one.

    ReLU         y = max(x, 0)        dx = dy where y > 0, else 0
    GELU         y = x Φ(x)           dx = dy (Φ(x) + x φ(x))
    GELU, tanh   y = x c              dx = dy (c + x c′)        c = (1 + tanh u)/2,   u = √(2/π) (x + a x³)
    SiLU         y = x c              dx = dy (c + x c′)        c = 1/(1 + exp(−x)) = (1 + tanh(x/2))/2
    tanh         y = tanh x           dx = dy (1 − y²)

They apply to each number on its own, so backward multiplies dy by the slope at that number.

ReLU (Mini-BERT) keeps positive numbers. It has no slope at 0; like everyone, we use 0.

GELU (published BERT; Hendrycks & Gimpel 2016) multiplies x by Φ(x), the probability that a standard Gaussian is below
x: a ReLU with a smooth bend, which falls to −0.17 near x = −0.75.

    Φ(x) = (1 + erf(x/√2))/2       φ(x) = Φ′(x) = exp(−x²/2)/√(2π)       so (x Φ)′ = Φ + x φ

The same paper approximates erf by tanh: with a = 0.044715, y differs by at most 0.0005. GPT-2 and others were trained
with that form and need it; configurations call it "gelu_new" or "gelu_pytorch_tanh". SiLU, also called swish, has the
same shape with a wider bend. For both, tanh′ = 1 − tanh² = 4 c (1 − c), and the chain rule gives

    c′ = 2 c (1 − c) u′        u′ = √(2/π) (1 + 3a x²);  for SiLU, ½

Each is a pair of functions, `f(x)`, which returns y and a cache, and `f_backward(dy, cache)`, which returns dx, for any
shape and dtype. ReLU and tanh need only y, which the next layer stores anyway; the others also need x. Then Φ and c are
y/x, so they need not be stored.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.erf import in_chunks, times_cdf32, times_cdf64
from mini_bert.layers.operation import operation

# Python floats, not NumPy's: float32 times np.sqrt(2) would be float64.
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
CUBIC = 0.044715


@operation
def relu(x):
    """y = max(x, 0)"""
    y = np.clip(x, 0, math.inf)  # 0.17 ns per number; the equivalent np.maximum(x, 0) takes 0.48
    return y, y


def relu_backward(dy, y, out=None):
    """dx = dy where y > 0, else 0"""
    return np.multiply(dy, y > 0, out=out)


@operation
def gelu(x):
    """y = x Φ(x)"""
    y = in_chunks(times_cdf32, times_cdf64, x)
    return y, (x, y)


def gelu_backward(dy, cache, out=None):
    """dx = dy (Φ(x) + x φ(x)),  Φ = y/x"""
    x, y = cache
    dx, term = _share(x, y), np.empty(x.shape, x.dtype)  # Φ
    with np.errstate(all="ignore"):  # underflow of exp
        np.multiply(x, x, out=term)
        term *= -0.5
        np.exp(term, out=term)
        term *= INV_SQRT_2PI  # φ
        term *= x
    dx += term
    return np.multiply(dx, dy, out=out)


@operation
def gelu_tanh(x):
    """y = x c, c = (1 + tanh u)/2, u = √(2/π) (x + a x³)"""
    y = _odd_cubic(x, CUBIC)  # u
    np.tanh(y, out=y)
    y += 1
    y *= 0.5
    y *= x
    return y, (x, y)


def gelu_tanh_backward(dy, cache, out=None):
    """dx = dy (c + 2 c (1 − c) x u′), x u′ = √(2/π) (x + 3a x³), c = y/x"""
    x, y = cache
    return _share_backward(dy, x, y, _odd_cubic(x, 3 * CUBIC), out)


@operation
def silu(x):
    """y = x c, c = 1/(1 + exp(−x))"""
    y = np.negative(x, out=np.empty(x.shape, x.dtype))
    with np.errstate(over="ignore"):  # x/∞ = 0
        np.exp(y, out=y)
    y += 1
    np.divide(x, y, out=y)
    return y, (x, y)


def silu_backward(dy, cache, out=None):
    """dx = dy (c + c (1 − c) x), c = y/x"""
    x, y = cache
    return _share_backward(dy, x, y, np.multiply(x, 0.5, out=np.empty(x.shape, x.dtype)), out)


def _odd_cubic(x, cubic: float):
    """√(2/π) (x + cubic x³)"""
    y = np.multiply(x, x, out=np.empty(x.shape, x.dtype))
    y *= SQRT_2_OVER_PI * cubic
    y += SQRT_2_OVER_PI
    y *= x
    return y


def _share(x, y):
    """y/x, the share of x that passes; ½ at 0"""
    share = np.empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):  # 0/0
        np.divide(y, x, out=share)
    np.copyto(share, 0.5, where=x == 0)
    return share


def _share_backward(dy, x, y, slope, out):
    """dx = dy (c + 2 c (1 − c) slope), slope = x u′; overwrites `slope`"""
    share = _share(x, y)
    slope *= share
    slope *= 2
    slope -= share * slope
    slope += share
    return np.multiply(dy, slope, out=out)


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
    "silu": Activation(silu, silu_backward),
}
OTHER_NAMES = {"gelu_python": "gelu", "gelu_fast": "gelu_new", "swish": "silu"}  # published, too


def activation(name: str, field: str = "activation") -> Activation:
    """Returns the pair of functions with this name. field: of the config that has the name, for the error"""
    known = [*ACTIVATIONS, *OTHER_NAMES]
    if name not in known:  # in a list, because the name in a configuration may be unhashable
        raise ValueError(f"{field} is {name!r:.60}, expected one of the activations {', '.join(known)}")
    return ACTIVATIONS[OTHER_NAMES.get(name, name)]


if __name__ == "__main__":  # show the values, and check the slopes
    shown = {name: ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_new", "silu", "tanh")}
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
