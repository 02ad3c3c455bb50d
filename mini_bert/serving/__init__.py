"""Serve models over HTTP: the interfaces that existing clients speak, with requests of many clients in one batch."""

import mini_bert as mini_bert  # so that `from serving.… import …` finds the same modules: common/short_names.py
