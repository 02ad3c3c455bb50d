"""Weights and model folders on disk."""

import mini_bert as mini_bert  # so that `from files.… import …` finds the same modules: common/short_names.py
