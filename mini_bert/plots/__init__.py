"""The shared style of all pictures."""

import mini_bert as mini_bert  # so that `from plots.… import …` finds the same modules: common/short_names.py
