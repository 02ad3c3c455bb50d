"""Use a model: load it, predict masked words, embed sentences."""

import mini_bert as mini_bert  # so that `from inference.… import …` finds the same modules: common/short_names.py
