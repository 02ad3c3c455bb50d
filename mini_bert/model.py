"""`from mini_bert.model import MiniBERT`; `python model.py` shows it in action (models/mini.py)."""

from mini_bert.models.mini import MiniBERT, MiniTransformerLayer

__all__ = ["MiniBERT", "MiniTransformerLayer"]

if __name__ == "__main__":
    from mini_bert.models.mini import main

    main()
