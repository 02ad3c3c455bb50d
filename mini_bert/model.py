"""`from mini_bert.model import MiniBERT`: the model is in models/mini_bert.py."""

from mini_bert.models.mini_bert import MiniBERT, MiniTransformerLayer

__all__ = ["MiniBERT", "MiniTransformerLayer"]
