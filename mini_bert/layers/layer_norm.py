"""Layer normalisation: give every token's vector mean 0 and spread 1, then let the model rescale it.

    x̂ = (x − μ) / σ          μ, σ: mean and standard deviation over the H numbers of one token
    y = γ ⊙ x̂ + β            γ, β (H,): one scale and one shift per feature, learnt

Why: every block adds its findings to the residual stream, which therefore grows; normalised, each block
sees numbers of the same size, however deep it lies. (Ba, Kiros & Hinton 2016, eq. 3-4. ε keeps σ above 0.)

Backward. γ and β serve every token, so their gradients sum over tokens. For x, write g = γ ⊙ dy, the
gradient that arrives at x̂. A number x_i reaches the loss along three paths: through x̂_i itself, through μ
and through σ; the last two touch all H outputs, hence the two averages (docs/derivations.md, step by step):

    dβ += Σ dy      dγ += Σ dy ⊙ x̂      dx = (g − mean(g) − x̂ ⊙ mean(g ⊙ x̂)) / σ

Read the averages as projections: dx has no component along 1, because shifting x changes nothing, and (up to
ε) none along x̂, because neither does scaling it. The tests check exactly that.
"""

from typing import NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.initialisers import ones, zeros
from mini_bert.layers.matrices import dot, mean, rows, sum_rows


class LayerNormCache(NamedTuple):
    x_hat: np.ndarray  # (...,H)
    sigma: np.ndarray  # (...,1)


class LayerNorm(Layer):
    """y = γ ⊙ (x − μ)/σ + β        dx = (g − mean(g) − x̂ ⊙ mean(g ⊙ x̂))/σ   with g = γ ⊙ dy"""

    def __init__(self, width: int, eps: float = 1e-5):
        self.gamma = Param((width,), ones, decay=False)
        self.beta = Param((width,), zeros, decay=False)
        self.eps = eps

    def forward(self, x, run):  # x (...,H)
        x_hat = x - mean(x)
        sigma = np.sqrt(dot(x_hat, x_hat) / x.shape[-1] + self.eps)  # (...,1)
        x_hat *= 1 / sigma
        y = self.gamma.data * x_hat
        y += self.beta.data
        return y, LayerNormCache(x_hat, sigma)

    def backward(self, dy, cache, run):  # dy (...,H)
        x_hat, sigma = cache
        self.beta.add(sum_rows(dy))
        self.gamma.add(np.einsum("nh,nh->h", rows(dy), rows(x_hat)))
        g = self.gamma.data * dy
        along = x_hat * (dot(g, x_hat) / dy.shape[-1])  # what of g lies along x̂
        g -= mean(g)
        g -= along
        g *= 1 / sigma
        return g


if __name__ == "__main__":
    layer, run = LayerNorm(6), Run()
    bind(layer, dtype=np.float64, seed=0)
    x = np.array([[[3.0, 1.0, 4.0, 1.0, 5.0, 9.0]]])
    y, cache = layer.forward(x, run)
    dx = layer.backward(np.array([[[1.0, 0, 0, 0, 0, 0]]]), cache, run)
    print("one token in: ", x[0, 0])
    print("one token out:", y[0, 0].round(3), f" mean {y.mean():+.0e}  spread {y.std():.4f}")
    print("gradient of the first output:", dx[0, 0].round(3), f" its sum: {dx.sum():+.0e}")
