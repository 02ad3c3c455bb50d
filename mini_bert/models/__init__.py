"""The published family: one file an architecture, each told as its difference from `bert.py`."""
