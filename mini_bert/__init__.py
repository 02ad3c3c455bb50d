"""Mini-BERT: a complete BERT in pure Python and NumPy, every gradient derived by hand.

    from mini_bert import MiniBERT
    logits, cache = MiniBERT().forward([[2, 10, 15, 3]])

Names are loaded when they are first used, so that `import mini_bert` costs little more than `import numpy`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mini_bert.common import short_names

if TYPE_CHECKING:
    from mini_bert.checks.gradients import gradient_check
    from mini_bert.data.generator import MLMDataGenerator
    from mini_bert.inference.loading import load_model, load_tokenizer
    from mini_bert.models.bert import Bert, BertConfig
    from mini_bert.models.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, MiniBertConfig
    from mini_bert.models.mini import MiniBERT, MiniTransformerLayer
    from mini_bert.objectives.masking import mask_tokens
    from mini_bert.text.wordpiece import WordPieceTokenizer
    from mini_bert.training.optim import Adam
    from mini_bert.training.settings import TrainingConfig

    __version__: str

short_names.install()

_HOMES = {
    "Adam": "mini_bert.training.optim",
    "Bert": "mini_bert.models.bert",
    "BertConfig": "mini_bert.models.bert",
    "LARGER_BERT_CONFIG": "mini_bert.models.config",
    "MINI_BERT_CONFIG": "mini_bert.models.config",
    "MiniBERT": "mini_bert.models.mini",
    "MiniBertConfig": "mini_bert.models.config",
    "MLMDataGenerator": "mini_bert.data.generator",
    "MiniTransformerLayer": "mini_bert.models.mini",
    "WordPieceTokenizer": "mini_bert.text.wordpiece",
    "TrainingConfig": "mini_bert.training.settings",
    "gradient_check": "mini_bert.checks.gradients",
    "load_model": "mini_bert.inference.loading",
    "load_tokenizer": "mini_bert.inference.loading",
    "mask_tokens": "mini_bert.objectives.masking",
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
    "TrainingConfig",
    "WordPieceTokenizer",
    "gradient_check",
    "load_model",
    "load_tokenizer",
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
