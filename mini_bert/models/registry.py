"""The class for each `model_type`. To add an architecture, add a file and a line here."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from mini_bert.common.json_values import read_object
from mini_bert.models.base import Model
from mini_bert.models.config import PRESETS

MODELS = {
    "mini_bert": ("mini_bert.models.mini", "MiniBERT"),
    "bert": ("mini_bert.models.bert", "Bert"),
}


def model_class(values: dict[str, Any]) -> type[Model]:
    """The class for the content of a config.json."""
    kind = values.get("model_type", "bert")  # missing in the first published configs
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"model_type is {kind!r}, expected one of {', '.join(map(repr, MODELS))}")
    module, name = MODELS[kind]
    return getattr(import_module(module), name)


def config_from(values: dict[str, Any]) -> Any:
    return model_class(values).config_class.from_dict(values)


def load_config(name: str | os.PathLike[str]) -> Any:
    """Load a config: the name of a preset, or the path of a `config.json` or its folder."""
    if name in PRESETS:
        return PRESETS[str(name)]
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise ValueError(
            f"{os.fspath(name)!r} is neither a preset ({', '.join(PRESETS)}) nor a model folder nor the path of a "
            "config.json"
        )
    values = read_object(path)
    try:
        return config_from(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
