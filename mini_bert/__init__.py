"""Mini-BERT: a complete BERT in pure Python and NumPy, every gradient derived by hand.

    from mini_bert import MiniBERT
    logits, cache = MiniBERT().forward([[2, 10, 15, 3]])

Names are loaded when they are first used, so that `import mini_bert` costs little more than `import numpy`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mini_bert.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, MiniBertConfig
    from mini_bert.data import MLMDataGenerator
    from mini_bert.gradients import gradient_check
    from mini_bert.mlm import mask_tokens
    from mini_bert.model import MiniBERT, MiniTransformerLayer
    from mini_bert.models.bert import Bert, BertConfig
    from mini_bert.optim import Adam
    from mini_bert.tokenizer import WordPieceTokenizer

    __version__: str

_HOMES = {
    "Adam": "mini_bert.optim",
    "Bert": "mini_bert.models.bert",
    "BertConfig": "mini_bert.models.bert",
    "LARGER_BERT_CONFIG": "mini_bert.config",
    "MINI_BERT_CONFIG": "mini_bert.config",
    "MiniBERT": "mini_bert.model",
    "MiniBertConfig": "mini_bert.config",
    "MLMDataGenerator": "mini_bert.data",
    "MiniTransformerLayer": "mini_bert.model",
    "WordPieceTokenizer": "mini_bert.tokenizer",
    "gradient_check": "mini_bert.gradients",
    "mask_tokens": "mini_bert.mlm",
}

__all__ = [
    "LARGER_BERT_CONFIG",
    "MINI_BERT_CONFIG",
    "Adam",
    "Bert",
    "BertConfig",
    "MLMDataGenerator",
    "MiniBERT",
    "MiniBertConfig",
    "MiniTransformerLayer",
    "WordPieceTokenizer",
    "gradient_check",
    "mask_tokens",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mini-bert")
    if name not in _HOMES:
        raise AttributeError(f"module 'mini_bert' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
