"""General utilities that do not depend on BERT."""

import mini_bert as mini_bert  # so that `from common.… import …` finds the same modules: common/short_names.py
