"""What a model is trained to do: from rows of ids to a batch, a loss and its gradients."""

import mini_bert as mini_bert  # so that `from objectives.… import …` finds the same modules: common/short_names.py
