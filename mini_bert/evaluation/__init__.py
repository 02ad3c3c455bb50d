"""Measure a model: metrics, held-out loss, pseudo-perplexity, embedding quality."""

import mini_bert as mini_bert  # so that `from evaluation.… import …` finds the same modules: common/short_names.py
