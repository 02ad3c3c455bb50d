"""Load a model and its tokenizer, by name or by path.

    model = load_model("mini-bert")                 the bundled model
    model = load_model("runs/first")                the best model of a training run
    tokenizer = load_tokenizer("all-MiniLM-L6-v2/")     the folder of a published model
    model, tokenizer = load("runs/first")           both

`model_type` in config.json determines the class of the model.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.wording import with_article
from mini_bert.files.model_folder import CONFIG, locate, read_config, tensor_names
from mini_bert.models.base import REPLACED, Model
from mini_bert.models.pairs import GENERATOR, PairConfig
from mini_bert.models.registry import guessed, load_config, model_class
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import FILES, has_tokenizer
from mini_bert.text.loading import load_tokenizer as read_tokenizer
from mini_bert.text.special_tokens import ADDED_ROLES
from mini_bert.text.templates import LAYOUTS

DEFAULT_MODEL = "mini-bert"
UNUSED_IDS = 0.03  # the share of a model's ids that its tokenizer may leave unused without a warning
logger = logging.getLogger(__name__)


def load_model(name_or_folder: str | os.PathLike[str] = DEFAULT_MODEL, dtype: Any = np.float32) -> Model:
    """Load the model in a folder (of a model, a run or a checkpoint), or a bundled one by its name."""
    return _load_model(locate(name_or_folder), dtype)


def load_tokenizer(name_or_folder: str | os.PathLike[str] = DEFAULT_MODEL) -> Tokenizer:
    """Load the tokenizer of a model, which is named as for `load_model`; or a tokenizer folder, or a bundled tokenizer
    ("8k")."""
    try:
        folder = locate(name_or_folder)
        read_config(folder)
    except FileNotFoundError:
        return read_tokenizer(name_or_folder)
    return tokenizer_of(folder, load_config(folder))


def load(name_or_folder: str | os.PathLike[str] = DEFAULT_MODEL) -> tuple[Model, Tokenizer]:
    """Load a model and its tokenizer. Warnings about the folder are logged, without a line number in our code."""
    folder = locate(name_or_folder)
    model = model_of(folder)
    return model, tokenizer_of(folder, model.config)


def load_for_gradients(name_or_folder: str | os.PathLike[str]) -> tuple[Model, Tokenizer]:
    """`load`, with float32 in place of weights in 8 bits"""
    model, tokenizer = load(name_or_folder)
    return model.widened(), tokenizer


def model_of(folder: Path) -> Model:
    """The model in a folder. Warnings about the folder are logged."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        model = _load_model(folder, np.float32)
    for note in notes:
        logger.warning("%s", note.message)
    return model


def with_generator(model: Any, name_or_folder: str | os.PathLike[str]) -> Model:
    """A discriminator as a pair with the generator in its folder, if there is one; other models as they are."""
    folder = locate(name_or_folder)
    generator = generator_in(folder)
    if REPLACED not in model.output_heads or generator is None:
        return model
    return type(model).pair(model, model_of(generator), folder)


def for_masked_words(model: Any, name_or_folder: str | os.PathLike[str]) -> Any:
    """The model that predicts masked words: of a pair the generator, otherwise the model itself."""
    return getattr(with_generator(model, name_or_folder), GENERATOR, None) or model


def generator_in(folder: Path) -> Path | None:
    """The folder of the generator in that of a discriminator (models/pairs.py)"""
    return folder / GENERATOR if (folder / GENERATOR / CONFIG).is_file() else None


def pair_config_in(folder: Path) -> Any:
    """The config in a folder; for a discriminator with its generator, that of the pair."""
    config, generator = load_config(folder), generator_in(folder)
    if not isinstance(config, PairConfig) or config.generator is not None or generator is None:
        return config
    return config.with_generator_like(load_config(generator), folder)


def _load_model(folder: Path, dtype: Any) -> Model:
    values = read_config(folder)
    try:
        kind = model_class(values)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    try:
        return kind.from_pretrained(folder, dtype)
    except ValueError as error:
        raise ValueError(f"{error}{guessed(values)}") from error


def heads_in(folder: Path) -> list[str]:
    """The output heads that the file in a model folder holds. The weights are not read."""
    values = read_config(folder)
    kind = model_class(values)
    return kind.heads_in(values, dict.fromkeys(map(kind.canonical, tensor_names(folder))))


def tokenizer_of(folder: Path, config: Any) -> Tokenizer:
    """The tokenizer in the folder, or else the bundled one that fits the model."""
    remedy = "copy the one that it was trained with into the folder"
    tokenizer = read_tokenizer(folder if has_tokenizer(folder) else bundled_replacement(folder, config, remedy))
    check_tokenizer(tokenizer, config, folder)
    return tokenizer


def bundled_tokenizer(kind: type[Model], vocab_size: int) -> str | None:
    """The bundled tokenizer of this size, of the kind that an architecture reads with; None: there is none."""
    wordpiece = kind.vocabulary == "8k"
    return {8192: kind.vocabulary, 50_000: "50k" if wordpiece else None}.get(vocab_size)


def bundled_replacement(source: Any, config: Any, remedy: str) -> str:
    """The bundled tokenizer for a trained model that comes without one. source: the model; remedy: ends the error"""
    name, size = bundled_tokenizer(model_class(config.to_dict()), config.vocab_size), f"{config.vocab_size:,}"
    if name is None:
        raise FileNotFoundError(
            f"{source} has no tokenizer ({FILES}), and no bundled tokenizer for {with_article(config.name)} has its "
            f"{size} tokens; {remedy}"
        )
    logger.warning(
        "%s has no tokenizer (%s); using the bundled tokenizer %r, which has the model's vocabulary size, %s. If the "
        "model was trained with another tokenizer, its predictions will be meaningless", source, FILES, name, size,
    )  # fmt: skip
    return name


def check_tokenizer(tokenizer: Tokenizer, config: Any, source: Any) -> None:
    """Raise an error if a tokenizer cannot belong to a model, and warn if it hardly can. source: where both are"""
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{source}: its tokenizer has {tokenizer.vocab_size:,} tokens, but its model has only "
            f"{config.vocab_size:,} ids, so they do not belong together; replace it with the tokenizer that the model "
            "was trained with"
        )
    around = LAYOUTS[model_class(config.to_dict()).layout].pair
    missing = [role for role in ADDED_ROLES if role in around and role not in tokenizer.roles]
    if missing:
        raise ValueError(
            f"{source}: its tokenizer, {tokenizer!r}, has no {' and no '.join(missing)} token, but "
            f"{with_article(config.name)} reads texts with {'them' if len(missing) > 1 else 'it'}, so they do not "
            "belong together; replace it with the tokenizer that the model was trained with"
        )
    made, known = max(tokenizer.template(texts).type_count for texts in (1, 2)), getattr(config, "type_vocab_size", 0)
    if 1 < known < made:  # with one type or none, a model ignores them
        raise ValueError(
            f"{source}: its tokenizer, {tokenizer!r}, makes {made} token types, but its model has only {known} "
            "(type_vocab_size in its config.json), so they do not belong together; replace it with the tokenizer that "
            "the model was trained with"
        )
    expected = getattr(config, "padding_id", None)
    if expected is not None and "pad" in tokenizer.roles and tokenizer.pad_id != expected:
        raise ValueError(
            f"{source}: {tokenizer.roles['pad']} has the id {tokenizer.pad_id} in its tokenizer, but pad_token_id is "
            f"{expected} in its config.json; the positions of this {config.name} depend on it. Use the tokenizer that "
            "the model was trained with, or correct pad_token_id"
        )
    unread = getattr(config, "pad_token_id", None)  # kept for others; no result of this model depends on it
    if expected is None and unread is not None and "pad" in tokenizer.roles and tokenizer.pad_id != unread:
        logger.warning(
            "%s: %s has the id %d in its tokenizer, %r, but pad_token_id is %d in its config.json. If the tokenizer is "
            "that of another model, all results are meaningless; replace it with the one that the model was trained "
            "with", source, tokenizer.roles["pad"], tokenizer.pad_id, tokenizer, unread,
        )  # fmt: skip
    unused = config.vocab_size - tokenizer.vocab_size
    padded = config.vocab_size % 64 == 0 and unused < 128  # many vocabularies are filled up to such a multiple
    if unused > UNUSED_IDS * config.vocab_size and not padded:
        logger.warning(
            "%s: its tokenizer, %r, is much smaller than the vocabulary of its model, %s with %s ids. If it is that of "
            "another model, all results are meaningless; replace it with the tokenizer that the model was trained with",
            source, tokenizer, with_article(config.name), f"{config.vocab_size:,}",
        )  # fmt: skip
