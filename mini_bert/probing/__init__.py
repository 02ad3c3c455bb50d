"""Linear probes: what can be read from each layer of a model, with control tasks and baselines."""

import mini_bert as mini_bert  # so that `from probing.… import …` finds the same modules: common/short_names.py
