"""The tasks that a model can be fine-tuned for, one file each; base.py has what they share."""
