"""Pretraining: the loop, optimiser, threads, checkpoints, run folder, display, doctor, memory planner."""

import mini_bert as mini_bert  # so that `from training.… import …` finds the same modules: common/short_names.py
