"""The sizes of models whose blocks have norms before the sublayers: GPT-2 and ModernBERT (models/sizes.py)."""

from __future__ import annotations

from mini_bert.models.sizes import Kept, Shape, Sizes


class PreNormSizes(Sizes):
    """Blocks with norms before the sublayers (layers/pre_norm_block.py): they also keep their input, and the norm
    before attention is of all tokens, even where only some are queries."""

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        kept, H, BT = super().block_cache(shape, index, lean), self.width, shape.B * shape.T
        rows, _ = self._rows(shape, index == self.depth - 1)
        return kept._replace(floats=kept.floats + BT * H + (BT - rows) * (H + 1))


class GatedSizes(PreNormSizes):
    """ModernBERT: a gated network with dropout inside, no norm before the first attention, and one before the head."""

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        kept, H, BT = super().block_cache(shape, index, lean), self.width, shape.B * shape.T
        rows, queries = self._rows(shape, index == self.depth - 1)
        floats = kept.floats - (0 if index else BT * (2 * H + 1))  # attention reads the input itself
        masks = rows * self.intermediate if self.dropout else 0
        if self.attention_dropout:
            masks += rows * H + (0 if lean else queries * self.heads * shape.T)
        return Kept(floats, masks)

    def head_cache(self, shape: Shape) -> Kept:
        kept = super().head_cache(shape)
        return kept._replace(floats=kept.floats + shape.N)  # σ of the second norm
