"""Fine-tune a model for a task: heads, tasks, loop, prediction."""

import mini_bert as mini_bert  # so that `from finetuning.… import …` finds the same modules: common/short_names.py
