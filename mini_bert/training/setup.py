"""Which model is trained: the same answer for `mini-bert train` and `mini-bert plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.invocation import quoted
from mini_bert.common.progress import counted
from mini_bert.files.model_folder import CONFIG, MODEL, TORCH_WEIGHTS, WEIGHT_FILES, WEIGHTS
from mini_bert.models.base import NEXT_SENTENCE, Model
from mini_bert.models.registry import load_config, model_class
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Objective
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import has_tokenizer, load_tokenizer
from mini_bert.training.defaults import TOKENIZERS


class Setup(NamedTuple):
    config: Any
    objective: type[Objective]
    vocabulary: str  # the name or path of the tokenizer
    tokenizer: Tokenizer
    length: int  # tokens per sequence
    note: str  # for the user, or empty

    def build(self, seed: int | None) -> Model:
        """A new model with the heads that the objective needs. Without a seed, its weights take up no memory."""
        return model_class(self.config.to_dict()).build(self.config, self.objective.heads, seed)

    def sizes(self, model: Model) -> Sizes:
        """The sizes of the model that `build` returned."""
        return self.config.sizes()._replace(max_length=self.length, parameters=model.get_parameter_count())


def parts_counted(model: Model) -> str:
    """Which parts of the architecture the number of parameters includes, and which it does not."""
    blocks = counted(len({id(block) for block in model.encoder.blocks}), "block")
    components = model.get_parameter_count(by_component=True)
    parts = dict.fromkeys(blocks if name.startswith("encoder.blocks.") else name for name in components)
    absent = [name for name in model.head_shapes if name not in model.output_heads]
    unused = f" Not used in this training, so not counted: {', '.join(absent)}." if absent else ""
    return f"Counted: {', '.join(parts)}.{unused}"


def set_up(
    model: str,
    objective: type[Objective],
    tokenizer: str | None = None,
    length: int | None = None,
    tie_head: bool = False,
) -> Setup:
    """Read config and tokenizer, and check that they fit each other and the objective.

    model: a preset, or the path of a config.json of any architecture. length: default: the model's maximum.
    """
    config = load_config(model)
    if tie_head:
        config = config.with_tied_head()
    if length is not None and not 3 <= length <= config.max_length:
        raise ValueError(f"length is {length}, expected 3 to {config.max_length}, the number of the model's positions")
    vocabulary = absolute(tokenizer) if tokenizer else _vocabulary(model, config)
    loaded, note = load_tokenizer(vocabulary), ""
    if config.vocab_size != loaded.vocab_size:
        note = (
            f"the tokenizer {vocabulary} has {loaded.vocab_size:,} pieces, so the model's vocab_size is "
            f"{loaded.vocab_size:,}, instead of the {config.vocab_size:,} in its config"
        )
        config = replace(config, vocab_size=loaded.vocab_size)
    if "pad" in loaded.roles:
        config = config.with_padding(loaded.pad_id)
    _check_types(model, config, objective, loaded)
    setup = Setup(config, objective, vocabulary, loaded, length or config.max_length, note)
    missing = set(objective.heads) - set(setup.build(seed=None).output_heads)
    if missing:
        names = " or ".join({NEXT_SENTENCE: "next-sentence"}.get(name, name) + " head" for name in sorted(missing))
        raise ValueError(
            f"{config.name} has no {names}, so it cannot be trained with {objective.option}: leave out "
            f"{objective.option}, or choose a published BERT with --model path/config.json"
        )
    return setup


def _check_types(model: str, config: Any, objective: type[Objective], tokenizer: Tokenizer) -> None:
    """Raise an error if pairs of texts have more token types than the model (0: it ignores them)."""
    needed = tokenizer.template(2).type_count if objective.sequences.get("mode") == "pairs" else 1
    if 0 < (found := getattr(config, "type_vocab_size", 0)) < needed:
        raise ValueError(
            f"type_vocab_size is {found} in {model}, but {objective.option} needs {needed}: in pairs of texts, token "
            f"types go up to {needed - 1}. Set it to {needed}, or leave out {objective.option}"
        )


def refuse_weights(model: str) -> None:
    """Training starts from random weights, so a model that has trained ones is refused."""
    path = Path(model)
    folders = [path, path / MODEL] if path.is_dir() else [path.parent] if path.suffix in WEIGHT_FILES else []
    for folder in folders:
        if any((folder / name).is_file() for name in (WEIGHTS, TORCH_WEIGHTS)):
            raise ValueError(
                f"{model} has trained weights, but training starts from random weights; to train a new model of the "
                f"same architecture, give its config: --model {quoted(folder / CONFIG)}"
            )


def absolute(name: str) -> str:
    """Make a path absolute, so that the run can be resumed from another folder; other names are not changed."""
    path, mark, column = name.partition("::")
    if Path(path).exists() or any(letter in path for letter in "*?["):
        return f"{Path(path).absolute()}{mark}{column}"
    return name


def _vocabulary(model: str, config: Any) -> str:
    """The tokenizer beside the model's config.json, or the bundled one with the model's vocabulary size."""
    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    if Path(model).exists() and has_tokenizer(folder):
        return str(folder.absolute())
    return TOKENIZERS.get(config.vocab_size, "8k")
