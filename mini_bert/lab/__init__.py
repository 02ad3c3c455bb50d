"""The lab: a local web page in which a model can be watched at work."""

import mini_bert as mini_bert  # so that `from lab.… import …` finds the same modules: common/short_names.py
