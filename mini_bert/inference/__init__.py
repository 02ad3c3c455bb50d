"""Use a model: load it, fill gaps, make vectors."""

import mini_bert as mini_bert  # so that `from inference.… import …` finds the same modules: common/short_names.py
