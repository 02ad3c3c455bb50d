"""Tokenizers, and learning their vocabularies."""

import mini_bert as mini_bert  # so that `from text.… import …` finds the same modules: common/short_names.py
