"""Kinds of questions that a model is fine-tuned for, one file each; base.py: what they share."""
