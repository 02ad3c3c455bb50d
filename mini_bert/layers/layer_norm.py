"""Layer normalisation: scale every token's vector to mean 0 and variance 1, then apply a learnt scale and shift.

    x̂ = (x − μ) / σ          μ, σ: mean and standard deviation of the H numbers of one token
    y = γ ⊙ x̂ + β            γ, β (H,): one scale and one shift per feature

Every block adds to the residual stream, which therefore grows. Normalisation gives each block inputs of the same size,
at any depth. (Ba, Kiros & Hinton 2016, eq. 3-4. A small ε keeps σ above 0. ModernBERT leaves out β.)

Backward. γ and β are used by every token, so their gradients sum over tokens. For x, let g = γ ⊙ dy, the gradient with
respect to x̂. Each x_i affects the loss along three paths: through x̂_i itself, through μ and through σ. The last two
affect all H outputs, hence the two means (step by step in docs/derivations/norms_and_activations.md):

    dβ += Σ dy      dγ += Σ dy ⊙ x̂      dx = (g − mean(g) − x̂ ⊙ mean(g ⊙ x̂)) / σ

The two means are projections: shifting or scaling x does not change y, so dx has no component along 1, and (up to ε)
none along x̂. The tests check this.
"""

from typing import NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.initialisers import ones, zeros
from mini_bert.layers.matrices import dot, mean, rows, sum_rows
from mini_bert.layers.operation import operation


class LayerNormCache(NamedTuple):
    x_hat: np.ndarray  # (...,H)
    sigma: np.ndarray  # (...,1)


class LayerNorm(Layer):
    """y = γ ⊙ (x − μ)/σ + β        dx = (g − mean(g) − x̂ ⊙ mean(g ⊙ x̂))/σ   with g = γ ⊙ dy"""

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True):
        self.gamma = Param((width,), ones, decay=False)
        self.beta = Param((width,), zeros, decay=False) if bias else None
        self.eps = eps

    @operation
    def forward(self, x, run):  # x (...,H)
        x_hat = x - mean(x)
        sigma = np.sqrt(dot(x_hat, x_hat) / x.shape[-1] + self.eps)  # (...,1)
        x_hat *= 1 / sigma
        return self.rescale(x_hat), LayerNormCache(x_hat, sigma)

    def backward(self, dy, cache, run):  # dy (...,H)
        x_hat, sigma = cache
        if self.beta is not None:
            self.beta.add(sum_rows(dy))  # dβ += Σ dy
        self.gamma.add(np.einsum("nh,nh->h", rows(dy), rows(x_hat)))  # dγ += Σ dy ⊙ x̂
        g = self.gamma.data * dy
        along = x_hat * (dot(g, x_hat) / dy.shape[-1])  # the component of g along x̂
        g -= mean(g)
        g -= along
        g *= 1 / sigma
        return g

    def rescale(self, x_hat):
        """y from x̂, in forward and wherever backward needs y again"""
        y = self.gamma.data * x_hat
        if self.beta is not None:
            y += self.beta.data
        return y


if __name__ == "__main__":
    layer, run = LayerNorm(6), Run()
    bind(layer, dtype=np.float64, seed=0)
    x = np.array([[[3.0, 1.0, 4.0, 1.0, 5.0, 9.0]]])
    y, cache = layer.forward(x, run)
    dx = layer.backward(np.array([[[1.0, 0, 0, 0, 0, 0]]]), cache, run)
    print("one token in: ", x[0, 0])
    print("one token out:", y[0, 0].round(3), f" mean {y.mean():+.0e}  spread {y.std():.4f}")
    print("gradient of the first output:", dx[0, 0].round(3), f" its sum: {dx.sum():+.0e}")
