"""What can be read from each layer: linear probes and their controls."""

import mini_bert as mini_bert  # so that `from probing.… import …` finds the same modules: common/short_names.py
