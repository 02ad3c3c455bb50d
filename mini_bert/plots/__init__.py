"""How all pictures look."""

import mini_bert as mini_bert  # so that `from plots.… import …` finds the same modules: common/short_names.py
