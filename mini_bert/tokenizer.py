"""`from mini_bert.tokenizer import WordPieceTokenizer`: the tokenizer is in text/wordpiece.py."""

from mini_bert.text.wordpiece import WordPieceTokenizer

__all__ = ["WordPieceTokenizer"]
