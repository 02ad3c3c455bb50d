"""Finite differences, the table of gradient checks, model info, the tour."""

import mini_bert as mini_bert  # so that `from checks.… import …` finds the same modules: common/short_names.py
