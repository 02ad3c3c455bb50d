"""From text to batches: shards on disk, sequences, batches by number; labelled and synthetic examples.

`from mini_bert.data import MLMDataGenerator`: the generator is in data/generator.py.
"""

from typing import Any

import mini_bert as mini_bert  # so that `from data.shards import …` finds the same modules: common/short_names.py

__all__ = ["Batch", "MLMDataGenerator"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mini_bert.data' has no attribute {name!r}; it offers {', '.join(__all__)}")
    from mini_bert.data import generator

    return getattr(generator, name)
