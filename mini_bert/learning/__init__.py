"""The course in `learn/`: its exercises, what checks them, and its notebooks."""

import mini_bert as mini_bert  # so that `from learning.… import …` finds the same modules: common/short_names.py
