"""Gradient-disentangled embeddings: two models share a table, but the gradient of one does not change it.

    y = stop(G)[ids] + Δ[ids]          G, Δ (V,H);  Δ starts at 0        dΔ[ids] += dy,   dG = 0

ELECTRA's generator and discriminator share their token table. That helps, because the generator trains every row, but
they pull it apart: predicting words moves words of like meaning together, and telling replaced words from real ones
moves them apart. So the discriminator reads the generator's table G, adds a table Δ of its own, and trains only Δ.
(He et al. 2023, "DeBERTaV3", section 3.3. `stop` is the identity whose gradient is defined as 0.)

Backward is that of embedding.py for Δ. It is not the gradient of y with respect to G, on purpose; G is trained by the
model it belongs to.
"""

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.initialisers import zeros
from mini_bert.layers.matrices import add_rows, rows
from mini_bert.layers.operation import operation


class DisentangledEmbedding(Layer):
    """y = stop(G)[ids] + Δ[ids]        dΔ[ids] += dy"""

    def __init__(self, shared: Param):
        self.shared = shared  # G
        self.difference = Param(shared.shape, zeros)  # Δ

    def children(self):
        return {"difference": self.difference}  # G belongs to another layer

    @operation
    def forward(self, ids, run):  # ids (B,T)
        return self.shared.data[ids] + self.difference.data[ids], ids  # y (B,T,H)

    def backward(self, dy, ids, run):  # dy (B,T,H)
        self.difference.zero_if_unset()
        add_rows(self.difference.grad, ids.ravel(), rows(dy))
        return None  # ids are integers and have no gradient

    def sum(self) -> np.ndarray:
        """The table of a model of its own: G + Δ"""
        return np.asarray(self.shared.data) + np.asarray(self.difference.data)


if __name__ == "__main__":
    generator = Embedding(5, 3)
    bind(generator, seed=0)
    discriminator = DisentangledEmbedding(generator.table)
    bind(discriminator, seed=0)
    ids = np.array([[1, 4, 1]])
    y, cache = discriminator.forward(ids, Run())
    discriminator.backward(np.ones_like(y), cache, Run())
    print("both read the same rows at first:", np.array_equal(y, generator.forward(ids, Run())[0]))
    print("gradient of the shared table:", np.abs(generator.table.grad).sum(), " of the difference:")
    print(discriminator.difference.grad)
