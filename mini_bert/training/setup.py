"""What is trained, on which objective: the same answer for `mini-bert train` and `mini-bert plan`.

set_up(Wanted(model="electra"))                        a preset, with its own objective
set_up(Wanted(init="bert-base/"))                      weights, config and tokenizer of a folder
set_up(Wanted(model="distilbert", teacher="runs/a"))   the vocabulary of the teacher
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.invocation import quoted
from mini_bert.common.progress import counted
from mini_bert.common.wording import either
from mini_bert.files.model_folder import BUNDLED_NAMES, CONFIG, MODEL, WEIGHT_FILES, locate, trained_length, weights_of
from mini_bert.inference.loading import (
    bundled_replacement,
    bundled_tokenizer,
    check_tokenizer,
    heads_in,
    pair_config_in,
)
from mini_bert.models.base import MASKED_WORDS, REPLACED, Model
from mini_bert.models.pairs import PairConfig
from mini_bert.models.registry import PRESETS, load_config, model_class, preset, preset_name
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Objective
from mini_bert.objectives.distillation import Distillation
from mini_bert.objectives.masked_words import MaskedWords, MaskedWordsAndSentences
from mini_bert.objectives.next_word import NextWord, NextWordWithMemory
from mini_bert.objectives.registry import OBJECTIVES, objective_class
from mini_bert.objectives.replaced_tokens import FOR_NEW, WEIGHT, ReplacedTokens
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import has_tokenizer, load_tokenizer
from mini_bert.training.muon import block_matrices

MASKING: dict[str, dict[str, Any]] = {
    "pieces": {}, "whole-word": {"whole_word": True}, "span": {"span": True}, "ngram": {"ngram": True}
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. None: the default.

    model           a preset, or the path of a config.json of any architecture; default: "mini"
    init            the folder of a model to start from, instead of random weights; it has config and tokenizer, too
    objective       a name from objectives/registry.py; default: that of the architecture
    next_sentence   the same as the objective masked_words_and_next_sentence
    masking         "pieces", "whole-word", "span" or "ngram"; None: that of the architecture
    mask_prob: the share of the words that are predicted
    teacher         the folder of a model to learn from, for the objective distillation; temperature: of its answers
    replaced_weight the factor of the discriminator's loss, for the objective replaced_tokens
    tokenizer       default: that of the folder, or the bundled one with the model's vocabulary size
    length          tokens per sequence; default: that of --init, or the model's maximum
    """

    model: str | None = None
    init: str | None = None
    objective: str | None = None
    next_sentence: bool = False
    masking: str | None = None
    mask_prob: float | None = None
    teacher: str | None = None
    temperature: float | None = None
    replaced_weight: float | None = None
    tokenizer: str | None = None
    length: int | None = None
    tie_head: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """Only what was asked for."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    @property
    def source(self) -> str:
        """Where the model comes from, on the command line."""
        return self.init or self.model or "mini"


class Setup(NamedTuple):
    config: Any
    objective: type[Objective]
    options: dict[str, Any]  # of the objective
    vocabulary: str  # the name or path of the tokenizer
    tokenizer: Tokenizer
    length: int  # tokens per sequence
    notes: list[str]  # for the user
    init: str | None  # the folder with the initial weights

    def build(self, seed: int | None) -> Model:
        """A new model with the heads that the objective needs. Without a seed, its weights take up no memory."""
        return build(self.config, self.objective, seed)

    def make_objective(self) -> Objective:
        return self.objective.for_tokenizer(self.tokenizer, **self.options)

    @property
    def content(self) -> int:
        """The tokens of the text in one sequence."""
        if self.objective.sequences["mode"] == "running":
            return self.length + 1
        return self.length - self.tokenizer.added_count()

    def sizes(self, model: Model) -> Sizes:
        """The sizes of the model that `build` returned, as the objective uses it."""
        sizes = self.config.sizes()._replace(
            max_length=self.length, parameters=model.get_parameter_count(),
            matrices=sum(param.size for param in block_matrices(model)),
        )  # fmt: skip
        return self.objective.sizes(sizes, **self.options)


def parts_counted(model: Model) -> str:
    """Which parts of the architecture the number of parameters includes, and which it does not."""
    blocks = counted(len({id(block) for block in model.encoder.blocks}), "block")
    components = model.get_parameter_count(by_component=True)
    parts = dict.fromkeys(blocks if name.startswith("encoder.blocks.") else name for name in components)
    absent = [name for name in model.head_shapes if name not in model.output_heads]
    unused = f" Not used in this training, so not counted: {', '.join(absent)}." if absent else ""
    return f"Counted: {', '.join(parts)}.{unused}"


def build(config: Any, objective: type[Objective], seed: int | None) -> Model:
    """A model with the heads of the objective, as far as its architecture has them (`check_fit` names the others)."""
    kind = model_class(config.to_dict())
    return kind(config, [name for name in objective.heads if name in kind.head_shapes], seed)


def set_up(wanted: Wanted) -> Setup:
    """Read config and tokenizer, and check that they fit each other and the objective."""
    config = config_of(wanted)
    objective = objective_for(wanted, config)
    start, options = config, options_for(wanted, objective, config)
    config = objective.adapted(start)
    if wanted.tie_head:
        config = config.with_tied_head()
    if wanted.length is not None and not 3 <= wanted.length <= config.max_length:
        field = config.length_field
        raise ValueError(
            f"length is {wanted.length}, expected 3 to {config.max_length}, from {field} in the config of this "
            f"{config.name}; choose another --length, or a config.json with a larger {field}"
        )
    vocabulary, tokenizer = vocabulary_for(wanted, config)
    if wanted.init is None:
        tokenizer = in_own_layout(tokenizer, config, objective)
    config, notes = with_vocabulary(wanted, config, vocabulary, tokenizer)
    notes += _new_generator(wanted, start, config)
    if "pad" in tokenizer.roles and wanted.init is None:
        config = config.with_padding(tokenizer.pad_id)
    _check_types(wanted, config, objective, tokenizer)
    check_fit(config, objective, wanted.init is not None)
    whole = objective is ReplacedTokens and wanted.init is not None and start.generator is not None
    if whole and config.shares_tables and wanted.replaced_weight is None:
        notes.append(
            f"the discriminator's loss counts {WEIGHT:g} times, as in published models; with --replaced-weight "
            f"{FOR_NEW:g} an ELECTRA that `train` started continues as before"
        )
    if objective is NextWord and model_class(config.to_dict()).objective == NextWordWithMemory.name:
        notes.append(
            "the model learns without its memory, so `eval` and `generate`, which use it, will do worse than this run; "
            f"--objective {NextWordWithMemory.name} trains it"
        )
    init = None if wanted.init is None else folder_to_store(wanted.init)
    length, more = length_for(wanted, config)
    notes += more
    return Setup(config, objective, options, vocabulary, tokenizer, length, notes, init)


# ---------------------------------------------------------------------- the model


def config_of(wanted: Wanted) -> Any:
    """The config of the model, from --init or --model."""
    if wanted.init is None:
        refuse_weights(wanted.source)
        return load_config(wanted.source)
    config = pair_config_in(locate(wanted.init))
    if wanted.model is not None and load_config(wanted.model) != config:
        raise ValueError(
            f"--init {quoted(wanted.init)} has a config of its own, which is not that of --model "
            f"{quoted(wanted.model)}; leave out --model to continue with the model in the folder, or leave out --init "
            "to train a new one"
        )
    if wanted.tie_head and not config.tie_head:
        raise ValueError(
            f"--init {quoted(wanted.init)} has a head with a matrix of its own, so --tie-head would discard it; leave "
            "out --tie-head"
        )
    return config


def length_for(wanted: Wanted, config: Any) -> tuple[int, list[str]]:
    """Tokens per sequence, and a note if they are fewer than the model has positions: as it was trained before"""
    before = None if wanted.init is None else trained_length(locate(wanted.init))
    if wanted.length is not None or before is None or not 3 <= before < config.max_length:
        return wanted.length or config.max_length, []
    return before, [
        f"sequences of {before:,} tokens, as {wanted.init} was trained with; it has {config.max_length:,} positions, "
        f"which --length {config.max_length} trains"
    ]


def _new_generator(wanted: Wanted, start: Any, config: Any) -> list[str]:
    """A note if trained weights continue with a generator that is not from their folder"""
    if wanted.init is None or start == config or not isinstance(config, PairConfig) or config.generator is None:
        return []
    own = config.generator_config
    return [
        f"{wanted.init} has no generator, which this objective needs to replace words; a new one starts from random "
        f"weights, with {counted(own.depth, 'block')} of width {own.width:,}"
    ]


def folder_to_store(name: str) -> str:
    """A model folder as a run's description names it: a path from anywhere, or the name of a bundled model."""
    return name if name in BUNDLED_NAMES and not Path(name).exists() else str(locate(name).absolute())


def _check_types(wanted: Wanted, config: Any, objective: type[Objective], tokenizer: Tokenizer) -> None:
    """Raise an error if sequences have more token types than the model (0: it ignores them)."""
    in_pairs = objective.sequences.get("mode") == "pairs"
    needed = tokenizer.template(2 if in_pairs else 1).type_count
    if not 0 < (found := getattr(config, "type_vocab_size", 0)) < needed:
        return
    said = f"type_vocab_size is {found} in {wanted.source}, but the"
    if in_pairs:
        remedy = "Choose" if wanted.init else f"Set it to {needed}, or choose"  # the number is that of trained vectors
        raise ValueError(
            f"{said} objective {objective.name} needs {needed}: in pairs of texts, token types go up to {needed - 1}. "
            f"{remedy} --objective masked_words"
        )
    if found > 1:  # a model with one type ignores them
        raise ValueError(
            f"{said} tokenizer of the teacher {wanted.teacher}, {tokenizer!r}, makes {needed} token types, which a "
            f"student reads, too. Set it to {needed} in a config.json for --model, or choose another --teacher"
        )


def refuse_weights(model: str) -> None:
    """--model starts from random weights, so a model that has trained ones is refused."""
    path = Path(model)
    if model in PRESETS:
        return
    if model in BUNDLED_NAMES and not path.exists():
        trained, config = model, preset_name(load_config(locate(model))) or locate(model) / CONFIG
    else:
        folders = [path, path / MODEL] if path.is_dir() else [path.parent] if path.suffix in WEIGHT_FILES else []
        found = next((folder for folder in folders if weights_of(folder) is not None), None)
        if found is None:
            return
        trained, config = str(found), found / CONFIG
    raise ValueError(
        f"{model} has trained weights, but --model starts from random weights: --init {quoted(trained)} continues to "
        f"train it, --model {quoted(config)} trains a new model of the same architecture"
    )


# ---------------------------------------------------------------------- the objective


def objective_for(wanted: Wanted, config: Any) -> type[Objective]:
    """The objective that was asked for, or that of the architecture."""
    named = {
        "--objective": wanted.objective,
        "--next-sentence": MaskedWordsAndSentences.name if wanted.next_sentence else None,
        "--teacher": None if wanted.teacher is None else Distillation.name,
    }
    kinds = {option: objective_class(name) for option, name in named.items() if name is not None}
    if len(set(kinds.values())) > 1:
        asked = " and ".join(f"{option} ({kind.name})" for option, kind in kinds.items())
        raise ValueError(f"{asked} ask for different objectives; leave out one of them")
    return next(iter(kinds.values())) if kinds else default_objective(config, wanted.init)


def default_objective(config: Any, init: str | None = None) -> type[Objective]:
    """That of the architecture. Where this may be a discriminator or a generator, the heads in the folder decide.

    So a DeBERTa v3 continues as it was trained, though its architecture is that of v2, which predicts masked words; and
    a generator of ELECTRA continues with masked words.
    """
    if isinstance(config, PairConfig):
        trained = [] if init is None else heads_in(locate(init))
        if REPLACED in trained or (not trained and config.generator is not None):
            return ReplacedTokens
        if MASKED_WORDS in trained:
            return MaskedWords
    return objective_class(model_class(config.to_dict()).objective)


def options_for(wanted: Wanted, objective: type[Objective], config: Any) -> dict[str, Any]:
    """The options of the objective, as its `for_tokenizer` takes them."""
    if wanted.masking is not None and wanted.masking not in MASKING:
        raise ValueError(f"--masking is {wanted.masking!r}, expected one of {', '.join(MASKING)}")
    options = dict(MASKING[wanted.masking or "pieces"])
    if wanted.masking is None and issubclass(objective, MaskedWords):
        options = dict(MASKING[model_class(config.to_dict()).masking])
    if wanted.mask_prob is not None:
        options["mask_prob"] = wanted.mask_prob
    if wanted.teacher is not None:
        options["teacher"] = folder_to_store(wanted.teacher)
    if wanted.temperature is not None:
        options["temperature"] = wanted.temperature
    if wanted.replaced_weight is not None:
        options["replaced_weight"] = wanted.replaced_weight
    elif objective is ReplacedTokens and wanted.init is None and getattr(config, "shares_tables", False):
        options["replaced_weight"] = FOR_NEW
    for name in options:
        if name not in objective.options:
            flag = "--masking" if name in ("whole_word", "span", "ngram") else f"--{name.replace('_', '-')}"
            fitting = ", ".join(kind.name for kind in OBJECTIVES.values() if name in kind.options)
            raise ValueError(
                f"{flag} has no effect on the objective {objective.name}; leave it out, or choose another --objective: "
                f"{fitting}"
            )
    if objective is Distillation and wanted.teacher is None:
        raise ValueError("the objective distillation needs a teacher: add --teacher and the folder of a trained model")
    return options


def check_fit(config: Any, objective: type[Objective], trained: bool) -> None:
    """Raise an error if the model lacks what the objective needs."""
    missing = objective.missing(build(config, objective, seed=None))
    if not missing:
        return
    kind = model_class(config.to_dict())
    heads = ", ".join(kind.head_shapes)
    fitting = ", ".join(name for name, one in OBJECTIVES.items() if not one.missing(build(config, one, seed=None)))
    able = [name for name in PRESETS if not objective.missing(build(preset(name), objective, seed=None))]
    raise ValueError(
        f"{config.name} cannot be trained with the objective {objective.name}: it has no {' and no '.join(missing)}. "
        f"Its output heads are {heads}; with these, --objective can be {fitting}. "
        f"For {objective.name}{': without --init, a new model can' if trained else ''}: --model {either(able)}"
    )


# ---------------------------------------------------------------------- the vocabulary


def vocabulary_for(wanted: Wanted, config: Any) -> tuple[str, Tokenizer]:
    """The tokenizer and its name or path. That of --init or --teacher cannot be replaced by another one."""
    fixed = {option: folder for option, folder in (("--init", wanted.init), ("--teacher", wanted.teacher)) if folder}
    owned = {option: locate(folder) for option, folder in fixed.items()}
    owned = {option: folder for option, folder in owned.items() if has_tokenizer(folder)}
    if wanted.tokenizer is not None:
        vocabulary = absolute(wanted.tokenizer)
    elif owned:
        vocabulary = str(next(iter(owned.values())).absolute())
    elif fixed:
        option, name = next(iter(fixed.items()))
        remedy = "give the one that it was trained with: --tokenizer FOLDER"
        vocabulary = bundled_replacement(f"{option} {quoted(name)}", load_config(locate(name)), remedy)
    else:
        vocabulary = _vocabulary(wanted.source, config)
    tokenizer = load_tokenizer(vocabulary)
    for option, folder in owned.items():
        own = load_tokenizer(folder)
        if own.fingerprint != tokenizer.fingerprint:
            raise ValueError(
                f"{option} {quoted(fixed[option])} has its own tokenizer, {own!r}, which is not the one from "
                f"{vocabulary}, {tokenizer!r}: its weights belong to its own vocabulary; "
                + ("leave out --tokenizer" if wanted.tokenizer else "choose models with the same vocabulary")
            )
    return vocabulary, tokenizer


def with_vocabulary(wanted: Wanted, config: Any, vocabulary: str, tokenizer: Tokenizer) -> tuple[Any, list[str]]:
    """The config with as many ids as the tokenizer has pieces, and notes for the user.

    A model that was trained may have some more, which stay; so may a teacher, whose student needs the same number.
    """
    size, why = tokenizer.vocab_size, f"the tokenizer {vocabulary} has"
    if wanted.teacher is not None:
        teacher = load_config(locate(wanted.teacher))
        check_tokenizer(tokenizer, teacher, f"{wanted.teacher} with the tokenizer {vocabulary}")
        size, why = teacher.vocab_size, f"the teacher {wanted.teacher} has"
    if wanted.init is not None:
        check_tokenizer(tokenizer, config, wanted.init)
        if size > config.vocab_size or (wanted.teacher is not None and size != config.vocab_size):
            raise ValueError(
                f"{why} {size:,} pieces, but the model in {wanted.init} has {config.vocab_size:,} ids; use the "
                "tokenizer that it was trained with"
            )
        return config, []
    if config.vocab_size == size:
        return config, []
    now = f"the model's vocab_size is {size:,}, instead of the {config.vocab_size:,} in its config"
    return config.with_vocabulary(size), [f"{why} {size:,} pieces, so {now}"]


def in_own_layout(tokenizer: Tokenizer, config: Any, objective: type[Objective]) -> Tokenizer:
    """The tokenizer with the templates and the padding of a new model, whichever vocabulary it has: those of its
    architecture, unless the objective requires others. A student reads text as its teacher does."""
    if objective is Distillation:
        return tokenizer
    return tokenizer.in_layout(objective.layout or model_class(config.to_dict()).layout)


def absolute(name: str) -> str:
    """Make a path absolute, so that the run can be resumed from another folder; other names are not changed."""
    path, mark, column = name.partition("::")
    if Path(path).exists() or any(letter in path for letter in "*?["):
        return f"{Path(path).absolute()}{mark}{column}"
    return name


def _vocabulary(model: str, config: Any) -> str:
    """For a new model: the tokenizer beside its config.json, or a bundled one of its kind, if possible of its size."""
    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    if model not in PRESETS and Path(model).exists() and has_tokenizer(folder):
        return str(folder.absolute())
    kind = model_class(config.to_dict())
    return bundled_tokenizer(kind, config.vocab_size) or kind.vocabulary
