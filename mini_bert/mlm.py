"""`from mini_bert.mlm import mask_tokens`: masking is in objectives/masking.py."""

from mini_bert.objectives.masking import Masked, Masking, mask_tokens

__all__ = ["Masked", "Masking", "mask_tokens"]
