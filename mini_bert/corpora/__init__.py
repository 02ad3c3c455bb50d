"""Text sources: files, folders, archives, the built-in corpus, downloads."""

import mini_bert as mini_bert  # so that `from corpora.… import …` finds the same modules: common/short_names.py
