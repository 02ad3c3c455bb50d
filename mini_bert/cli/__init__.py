"""The `mini-bert` command."""

import mini_bert as mini_bert  # so that `from cli.… import …` finds the same modules: common/short_names.py
