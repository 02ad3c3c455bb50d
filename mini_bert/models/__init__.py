"""The published family: one file an architecture, each told as its difference from `bert.py`."""

import mini_bert as mini_bert  # so that `from models.… import …` finds the same modules: common/short_names.py
