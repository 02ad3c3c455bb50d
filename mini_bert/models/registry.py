"""The class for each `model_type`, and configs by name. To add an architecture, add a file and a line to each."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from mini_bert.common.json_values import read_object
from mini_bert.common.wording import did_you_mean, with_article
from mini_bert.files.model_folder import CONFIG, read_config
from mini_bert.models.base import Model

PUBLISHED_CLASS = re.compile(r"(\w+?)(For[A-Z]\w*|(LMHead|DoubleHeads|PreTrained)?Model)")  # (family)(what it is for)

MODELS = {  # model_type -> module, class
    "mini_bert": ("mini_bert.models.mini", "MiniBERT"),
    "bert": ("mini_bert.models.bert", "Bert"),
    "gpt2": ("mini_bert.models.gpt2", "GPT2"),
    "modernbert": ("mini_bert.models.modernbert", "ModernBert"),
    "roberta": ("mini_bert.models.roberta", "Roberta"),
    "distilbert": ("mini_bert.models.distilbert", "DistilBert"),
    "albert": ("mini_bert.models.albert", "Albert"),
    "electra": ("mini_bert.models.electra", "Electra"),
    "deberta": ("mini_bert.models.deberta", "Deberta"),
    "deberta-v2": ("mini_bert.models.deberta_v2", "DebertaV2"),
    "transfo-xl": ("mini_bert.models.transformer_xl", "TransformerXL"),
    "xlnet": ("mini_bert.models.xlnet", "XLNet"),
}

# The presets are small models for much text, which they cannot learn by heart, so none but "larger" uses dropout. The
# defaults of the config classes are the published ones.
PRESETS = {  # a name for `mini-bert train --model` -> module, config
    "mini": ("mini_bert.models.config", "MINI_BERT_CONFIG"),
    "larger": ("mini_bert.models.config", "LARGER_BERT_CONFIG"),
    "bert": ("mini_bert.models.bert", "PRESET"),
    "gpt2": ("mini_bert.models.gpt2", "PRESET"),
    "modernbert": ("mini_bert.models.modernbert", "PRESET"),
    "roberta": ("mini_bert.models.roberta", "PRESET"),
    "distilbert": ("mini_bert.models.distilbert", "PRESET"),
    "albert": ("mini_bert.models.albert", "PRESET"),
    "electra": ("mini_bert.models.electra", "PRESET"),
    "deberta": ("mini_bert.models.deberta", "PRESET"),
    "deberta-v2": ("mini_bert.models.deberta_v2", "PRESET"),
    "deberta-v3": ("mini_bert.models.deberta_v2", "V3_PRESET"),
    "transformer-xl": ("mini_bert.models.transformer_xl", "PRESET"),
    "xlnet": ("mini_bert.models.xlnet", "PRESET"),
}


def model_class(values: dict[str, Any]) -> type[Model]:
    """The class for the content of a config.json."""
    kind = values.get("model_type", "bert")  # missing in the first published configs
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(
            f"model_type is {kind!r:.60}, expected one of {', '.join(map(repr, MODELS))}, the architectures that "
            "Mini-BERT has"
        )
    check_class(kind, values)
    return _class(kind)


def check_class(kind: str, values: dict[str, Any]) -> None:
    """Raise an error if `architectures`, the class that wrote a file, is one of another architecture than model_type:
    a BERT reads the encoder of a RoBERTa without complaint, and computes something else."""
    names = values.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"architectures in config.json is {names!r:.60}, expected a list of names such as 'BertForMaskedLM'"
        )
    for name in names:
        match = PUBLISHED_CLASS.fullmatch(name)
        if not match or match[1] == _class(kind).family:
            continue
        written_by = next((other for other in MODELS if _class(other).family == match[1]), None)
        said = f"model_type is {kind!r}" if "model_type" in values else "model_type is missing, which means 'bert'"
        if written_by is not None:
            raise ValueError(
                f"{said}, but architectures says {name}, which is of the type {written_by!r}; set model_type to "
                f"{written_by!r}, or correct architectures"
            )
        if _class(kind).family.lower() not in match[1].lower():  # people call their own classes MyBertFor…
            raise ValueError(
                f"{said}, but architectures says {name:.60}, which is neither {with_article(_class(kind).family)} nor "
                f"another architecture that Mini-BERT has; known types: {', '.join(MODELS)}. If the model is of the "
                f"type {kind!r} all the same, leave out architectures"
            )


def _class(kind: str) -> type[Model]:
    module, name = MODELS[kind]
    return getattr(import_module(module), name)


def config_from(values: dict[str, Any]) -> Any:
    return model_class(values).config_class.from_dict(values)


def preset(name: str) -> Any:
    module, attribute = PRESETS[name]
    return getattr(import_module(module), attribute)


def preset_name(config: Any) -> str | None:
    """The name of the preset that has this config, or None."""
    return next((name for name in PRESETS if preset(name) == config), None)


def load_config(name: str | os.PathLike[str]) -> Any:
    """Load a config: the name of a preset, or the path of a `config.json` or its folder, which may be that of a run."""
    if name in PRESETS:
        return preset(str(name))
    path = Path(name)
    if path.is_dir():
        read_config(path)  # says what is missing
        path /= CONFIG
    if not path.is_file():
        raise ValueError(
            f"{os.fspath(name)!r} is neither a preset ({', '.join(PRESETS)}) nor a model folder nor the path of a "
            f"config.json{did_you_mean(os.fspath(name), PRESETS)} (models are not downloaded)"
        )
    values = read_object(path)
    if isinstance(values.get("model"), dict):  # the description of a run
        values = values["model"]
    try:
        config = config_from(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}{guessed(values)}") from error
    if guessed(values):
        _warn(f"{path} was read{guessed(values)}")
    return config


def guessed(values: dict[str, Any]) -> str:
    """What to add to a message about a config.json that does not say what it is, which the first published ones do not;
    "" about others"""
    if "model_type" in values or values.get("architectures"):
        return ""
    known = ", ".join(MODELS)
    return f"; it has no model_type, so it is taken for a BERT: for another model, add model_type with one of {known}"


@cache  # once
def _warn(text: str) -> None:
    import logging  # here, because it is slow to load

    logging.getLogger(__name__).warning(text)
