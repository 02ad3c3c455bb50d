"""Look inside a model: attention, saliency, activations."""

import mini_bert as mini_bert  # so that `from inside.… import …` finds the same modules: common/short_names.py
