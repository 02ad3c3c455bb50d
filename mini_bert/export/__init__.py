"""Model folders to share, ONNX graphs, and the engine that runs them."""

import mini_bert as mini_bert  # so that `from export.… import …` finds the same modules: common/short_names.py
