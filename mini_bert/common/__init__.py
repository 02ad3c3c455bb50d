"""Utilities that know nothing about BERT."""

import mini_bert as mini_bert  # so that `from common.… import …` finds the same modules: common/short_names.py
