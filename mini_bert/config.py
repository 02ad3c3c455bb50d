"""`from mini_bert.config import MiniBertConfig`; `python config.py` explains every number (models/config.py)."""

from mini_bert.models.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.registry import load_config
from mini_bert.training.settings import TrainingConfig

__all__ = ["LARGER_BERT_CONFIG", "MINI_BERT_CONFIG", "MiniBertConfig", "TrainingConfig", "load_config"]

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("config")
