"""The models, one file per architecture; each file begins with how it differs from the others."""

import mini_bert as mini_bert  # so that `from models.… import …` finds the same modules: common/short_names.py
