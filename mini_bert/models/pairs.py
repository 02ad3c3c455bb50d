"""Two models that are trained together: a generator fills gaps, a discriminator finds the words that it put in.

    model = Electra(config.with_generator())              model.generator is a model, too; one flat memory holds both
    model.folders()                                       {"": the discriminator, "generator": the generator}
    Electra.pair(discriminator, generator)                both in one memory again

ELECTRA (models/electra.py) and DeBERTa v3 (models/deberta_v2.py) are trained like this. They differ in how the two
token tables are related: ELECTRA shares one, DeBERTa v3 adds a difference (`joined`, `own_weights`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from mini_bert.common.wording import with_article
from mini_bert.models.base import MASKED_WORDS, REPLACED

GENERATOR = "generator"  # the field in a config, the part of a model, and the folder in the discriminator's folder
OWN_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")  # of a generator


class PairConfig:
    """The config of a pair, or of either model alone; the fields are those of the architecture, and `generator`.

    generator: the sizes in which the generator of a pair differs, {"hidden_size": …, "num_hidden_layers": …,
    "num_attention_heads": …, "intermediate_size": …}; None: a single model.
    """

    shares_tables: ClassVar[bool] = True  # both models change the tables of tokens and positions

    generator: Mapping[str, Any] | None
    to_dict: Callable[..., dict[str, Any]]
    with_generator: Callable[..., Any]  # the config of a pair, with a generator of the usual sizes

    def check_generator(self) -> None:
        """The sizes of the generator must be some of OWN_SIZES, and make a config."""
        if self.generator is None:
            return
        if not isinstance(self.generator, Mapping) or not set(self.generator) <= set(OWN_SIZES):
            raise ValueError(
                f"generator is {self.generator!r:.100}, expected the sizes in which it differs, some of "
                f"{', '.join(OWN_SIZES)}: it shares the rest with the discriminator"
            )
        try:
            self.generator_config  # noqa: B018 - checks its sizes
        except ValueError as error:
            raise ValueError(f"generator: {error}") from error

    @property
    def generator_config(self) -> Any:
        return self.alone(**self.generator or {})

    def alone(self, **changes: Any) -> Any:
        """The same without a generator"""
        own: Any = self
        return replace(own, generator=None, **changes)

    def with_generator_like(self, other: Any, folder: Path | None = None) -> Any:
        """The config of a pair, from those of a discriminator and a generator. folder: for errors, where they are"""
        own: Any = self
        theirs, ours = "this generator", "this discriminator"
        remedy = "take both from one pair"
        if folder is not None:
            theirs, ours = f"the generator in {folder / GENERATOR}", f"the discriminator in {folder}"
            remedy = f"copy both from the same place, or remove {folder / GENERATOR} to use the discriminator alone"
        if not isinstance(other, type(self)):
            raise ValueError(
                f"{theirs} is of another architecture: it is {with_article(other.name)}, and {ours} is "
                f"{with_article(own.name)}; {remedy}"
            )
        sizes = {name: getattr(other, name) for name in OWN_SIZES}
        pair = replace(own, generator={name: size for name, size in sizes.items() if size != getattr(own, name)})
        expected, given = pair.generator_config.to_dict(), other.to_dict()
        different = [
            f"its {name} is {given[name]!r:.60}, not {value!r:.60}"
            for name, value in expected.items()
            if value != given.get(name, value) and name != "legacy"  # which only names tensors in files
        ]
        if different:
            raise ValueError(
                f"{theirs} does not fit {ours}: {', '.join(different)}, but they may differ only in "
                f"{', '.join(OWN_SIZES)}; {remedy}"
            )
        return pair


class Pair:
    """A discriminator with its generator in it, or either model alone (then `generator` is None)."""

    __init__: Callable[..., None]  # that of a Model

    generator: Any
    config: Any
    dtype: Any
    weights_kind: str
    tokens: Any
    output_heads: Any
    named_params: Callable[[], dict[str, Any]]
    assign_tensors: Callable[..., None]
    from_pretrained: ClassVar[Callable[..., Any]]

    @classmethod
    def pair(cls, discriminator: Any, generator: Any, folder: Path | None = None) -> Any:
        """A copy of both in one memory. folder: for errors, where they are"""
        config = discriminator.config.with_generator_like(generator.config, folder)
        pair = cls(config, (REPLACED,), None, discriminator.dtype)
        weights = {f"{GENERATOR}.{name}": param.data for name, param in generator.named_params().items()}
        weights |= {name: param.data for name, param in discriminator.named_params().items()}
        _assign(pair, cls.joined(weights))
        return pair

    def with_new_generator(self, generator: Any) -> Any:
        """A copy of this discriminator as a pair with a generator that is not trained yet: it gets our token table."""
        new = generator.alone()
        new.tokens.table.data[...] = self.tokens.table.data
        return self.pair(self, new)

    def alone(self) -> Any:
        """A copy of this model without its generator, or of a generator without its discriminator; in as many bits."""
        twin: Any = type(self)(self.config.alone(), self.output_heads, None, self.dtype)
        _assign(twin, self.own_weights())
        return twin if self.weights_kind == twin.weights_kind else twin.keep_weights(self.weights_kind)

    def folders(self) -> dict[str, Any]:
        return {"": self} if self.generator is None else {"": self.alone(), GENERATOR: self.generator.alone()}

    def without_head(self, name: str) -> str:
        if name != MASKED_WORDS or REPLACED not in self.output_heads:
            return super().without_head(name)  # type: ignore[misc]
        its = "as `model.generator`"
        if self.generator is None:
            its = (
                f"and is usually kept in the folder `{GENERATOR}` in that of the discriminator; `mini-bert train "
                "--init` makes a new one"
            )
        return (
            "no head for masked words: it is a discriminator, which says whether words were replaced. Its generator "
            f"predicts masked words, {its}"
        )

    def load_checkpoint(self, path: str | os.PathLike[str]) -> Any:
        """As other models do; a pair also reads two models from a folder and its subfolder, as a run has them."""
        from mini_bert.files.model_folder import CONFIG, locate, read_config

        folder = locate(path) if Path(path).is_dir() else Path(path)
        if self.generator is None or not (folder / GENERATOR / CONFIG).is_file() or is_pair(read_config(folder)):
            return super().load_checkpoint(path)  # type: ignore[misc]
        pair = self.pair(self.from_pretrained(folder), self.from_pretrained(folder / GENERATOR), folder)
        self.assign_tensors({name: param.data for name, param in pair.named_params().items()}, str(path))
        return self

    # The weights of two models in one memory. An architecture whose tables are related in another way overrides both.

    @classmethod
    def joined(cls, weights: dict[str, Any]) -> dict[str, Any]:
        """The weights of a pair, from those of both models. What they share is the discriminator's."""
        return weights

    def own_weights(self) -> dict[str, Any]:
        """The weights of this model alone"""
        return {name: param.data for name, param in self.named_params().items()}


def _assign(model: Any, weights: Mapping[str, Any]) -> None:
    for name, param in model.named_params().items():
        if name not in weights:
            raise ValueError(f"there is no {name} in these two models; expected a discriminator and a generator")
        param.data[...] = weights[name]


def is_pair(values: Mapping[str, Any]) -> bool:
    """Whether the content of a config.json says that its file holds both models, as in a checkpoint"""
    return values.get(GENERATOR) is not None
