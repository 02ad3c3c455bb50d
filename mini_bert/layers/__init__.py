"""The layers of BERT, one file each: formula, forward and backward side by side. No layer depends on a model."""

import mini_bert as mini_bert  # so that `from layers.… import …` finds the same modules: common/short_names.py
