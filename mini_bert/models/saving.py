"""A model's files: one implementation reads and writes the folders of every architecture.

An architecture says how files call its tensors, as a table of `Name`s (`names`), how it spells out variants of such
names (`canonical`), and which heads a file holds (`heads_in`). For fine-tuned models it names the published heads.

Here and in `models/` in general, "ours" is a parameter's path in the model, "theirs" the name of a tensor in a file.
`files` is imported when it is needed, because a model that is built in memory needs no files.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.eight_bit import Int8
from mini_bert.common.sixteen_bit import Stored
from mini_bert.layers.base import Layer
from mini_bert.models.memory import INT8, InMemory

EIGHT_BIT = "eight_bit"  # in config.json of a folder with weights in 8 bits (as in files/model_folder.py)
LARGEST_WEIGHT = 1e9  # weights of trained models are below 100
TOGETHER = "config.json and the weights must be those of one model: copy both from the same place"


class Name(NamedTuple):
    """A row in the table of names of an architecture: our array, and the published tensors that it concatenates."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    shape: tuple[int, ...] | None = None  # of their tensors, if these have more axes than ours: (H,A,d) for (H,A·d)

    def under(self, prefix: str) -> Name:
        """The same row for a part with this name: our path and theirs begin with it."""
        return self._replace(ours=f"{prefix}.{self.ours}", theirs=tuple(f"{prefix}.{name}" for name in self.theirs))

    def load(self, published: Mapping[str, Any]) -> Any:
        parts = [published[name] for name in self.theirs]
        if isinstance(parts[0], Stored):  # 16 bits: rearranged without conversion
            return Stored(self._joined([part.bits for part in parts]))
        return self._joined(parts)

    def _joined(self, parts: list[np.ndarray]) -> np.ndarray:
        if self.shape:
            parts = [part.reshape(len(part), -1) for part in parts]
        parts = [part.T if self.transposed else part for part in parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def save(self, array: Any) -> dict[str, Any]:
        if isinstance(array, Stored):
            return {name: Stored(part) for name, part in self.save(array.bits).items()}
        parts = np.split(array, len(self.theirs), axis=-1)
        parts = [part.T if self.transposed else part for part in parts]
        if self.shape:
            parts = [part.reshape(self.shape) for part in parts]
        return dict(zip(self.theirs, parts, strict=True))


class Saved(InMemory):
    """The part of a `Model` that concerns files."""

    __init__: Callable[..., None]  # (config, output_heads, seed, dtype)

    config: Any
    config_class: ClassVar[Any]

    family: ClassVar[str]  # "Bert" in the names of published classes such as BertForMaskedLM
    with_head: ClassVar[str] = "ForMaskedLM"  # the rest of such a name, for a model with its usual head
    output_heads: Any
    fine_tuned: str
    reads_forward: ClassVar[bool]
    in_transformers: ClassVar[str | None] = ""  # the versions that have this architecture; "": all, None: none
    prefix: ClassVar[str] = ""  # of the encoder's names in a file that also holds heads
    head_prefixes: ClassVar[tuple[str, ...]] = ()  # of the names of its heads, those of published tasks included
    heads_in: Callable[..., list[str]]  # (config.json, tensors) -> the output heads that a file holds

    # The published heads of tasks: by class (without the family), the name of each linear layer of our `task`.
    task_heads: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    # How its published heads differ from BERT's: options of SentenceHead, and dropout before SpanHead's layer
    # (finetuning/heads.py).
    sentence_head: ClassVar[Mapping[str, Any]] = {}
    drops_spans: ClassVar[bool] = False

    def task_transform(self) -> Layer | None:
        """A new layer that the published heads of all tasks apply to the vectors first, if there is one."""
        return None

    @classmethod
    def sentence_settings(cls, config: Any) -> dict[str, Any]:
        """What the published classifier of texts pools, and whether a dense layer follows (finetuning/heads.py). In a
        model that reads forward, the last token has seen all others and stands for [CLS]; its head is a matrix."""
        return {"pooling": ["cls"], "dense": not cls.reads_forward}

    # Where such a class has another name than BERT's: our task -> its name without the family.
    task_classes: ClassVar[Mapping[str, str]] = {}
    # Where layers of a new task head start from: our name -> our name.
    task_start: ClassVar[Mapping[str, str]] = {}

    def names(self) -> list[Name]:
        """The table of tensor names in files and here, for loading and saving. By default the names are the same."""
        return [Name(name, (name,)) for name in self.named_params()]

    @classmethod
    def canonical(cls, name: str) -> str:
        """One spelling for the names that different versions of a library wrote: without the encoder's prefix."""
        return name.removeprefix(cls.prefix)

    def task_names(self, task: str) -> list[Name]:
        """The same for the head of a fine-tuned model. task: a key of `task_heads`"""
        theirs = self.task_heads.get(task)
        if theirs is None:
            return []
        params = [name for name in self.named_params() if name.startswith("task.")]
        rows = []
        for part in sorted({name.rpartition(".")[0] for name in params}):
            published = theirs[part.removeprefix("task.")]
            rows += [*linear_names(part, published), *norm_names(part, published)]
        return [row for row in rows if row.ours in params]

    @classmethod
    def task_class(cls, task: str) -> str | None:
        """The published class for a task, such as BertForTokenClassification; None: there is none."""
        exists = task in cls.task_heads or (task == "Model" and cls.in_transformers is not None)
        return cls.family + cls.task_classes.get(task, task) if exists else None

    @classmethod
    def task_of_class(cls, name: str) -> str:
        """The inverse"""
        name = name.removeprefix(cls.family)
        return next((task for task, theirs in cls.task_classes.items() if theirs == name), name)

    def reconcile(self, tensors: dict[str, Any], table: list[Name], source: str) -> list[str]:
        """Complete a file's tensors where older files lack some; returns the names that no part of the model uses."""
        return sorted(set(tensors) - {name for entry in table for name in entry.theirs})

    def file_tensors(self, task: str = "") -> dict[str, Any]:
        """All weights under the names that files use. Those in 8 bits are widened; see `kept_tensors`."""
        params = self.named_params()
        tensors: dict[str, Any] = {}
        for entry in [*self.names(), *self.task_names(task)]:
            data = params[entry.ours].data
            tensors |= entry.save(np.asarray(data) if isinstance(data, Int8) else data)
        heads = self.head_prefixes
        if not any(name.startswith(heads) for name in tensors):
            return tensors
        return {name if name.startswith(heads) else self.prefix + name: array for name, array in tensors.items()}

    def kept_tensors(self, task: str = "") -> dict[str, Any]:
        """The same as they are stored in memory: Int8 for those in 8 bits.

        The names of an architecture take tensors apart and put them together. Scales go the same way as weights.
        """
        tensors = self.file_tensors(task)
        if not self.in_eight_bits:
            return tensors
        twin, ours = deepcopy(self).keep_weights("float32"), self.named_params()
        for name, param in twin.named_params().items():
            frozen = ours[name].frozen
            param.data[...] = 0 if frozen is None else frozen.scales
        for name, scales in twin.file_tensors(task).items():
            if scales.ndim > 1 and scales.any():
                tensors[name] = Int8.of(tensors[name], scales)
        return tensors

    def folders(self) -> dict[str, Saved]:
        """The models that are written for others to read, by the name of a subfolder; "": the folder itself."""
        return {"": self}

    def architecture(self) -> str:
        """The published class for a model with these heads, without the family: "ForMaskedLM"."""
        return self.with_head if self.output_heads else "Model"

    def file_config(self) -> dict[str, Any]:
        """The content of config.json."""
        values = self.config.to_dict()
        return (
            values if self.in_transformers is None else {**values, "architectures": [self.family + self.architecture()]}
        )

    def assign_tensors(self, tensors: Mapping[str, Any], source: str, task: str = "") -> None:
        """Copy a file's tensors into our weights; nothing changes unless all of them fit."""
        params = self.named_params()
        table = [*self.names(), *self.task_names(task)]
        known = {name for entry in table for name in entry.theirs}
        if known == set(params) or set(params) != set(tensors):  # names of files, which may be ours
            by_name = self._by_canonical_name(tensors, source)
            self._check_shapes(by_name, source, task)
            unused = self.reconcile(by_name, table, source)
            self._check_names(known, by_name, unused, source)
            if unused:
                warnings.warn(f"{source}: no part of this model uses {listed(unused)}", stacklevel=3)
            check_numbers({name: by_name[name] for name in known}, source, self.flat.grad.dtype)
            tensors = {entry.ours: entry.load(by_name) for entry in table}
        else:
            check_numbers(tensors, source, self.flat.grad.dtype)
        assign(params, tensors, source)

    def _by_canonical_name(self, tensors: Mapping[str, Any], source: str) -> dict[str, Any]:
        by_name: dict[str, Any] = {}
        for name, array in tensors.items():
            other = by_name.setdefault(self.canonical(name), array)
            if other is not array and not np.array_equal(other, array):
                raise ValueError(
                    f"{source} has two different tensors for {self.canonical(name)}, one of them called {name}; remove "
                    "the one that does not belong to this model"
                )
        return by_name

    def _check_shapes(self, by_name: Mapping[str, Any], source: str, task: str) -> None:
        """Compare a file's tensors with those that this model would write."""
        for name, expected in self.file_tensors(task).items():
            given = by_name.get(self.canonical(name))
            if given is not None and given.shape != expected.shape:
                raise ValueError(
                    f"{source}: tensor {self.canonical(name)} has shape {given.shape}, but this model "
                    f"({sizes_of(self.config)}) needs {expected.shape}; {TOGETHER}"
                )

    def _check_names(self, known: set[str], by_name: Mapping[str, Any], unused: list[str], source: str) -> None:
        """Every weight must be there, and the file must not have further ones in the encoder: a model with half of its
        layers would compute something else. Heads may be left over."""
        absent = sorted(known - set(by_name))
        parts = {name.partition(".")[0] for name in known if not name.startswith(self.head_prefixes)}
        more = [name for name in unused if name.partition(".")[0] in parts and by_name[name].dtype.kind == "f"]
        if absent:
            instead = f", and has {listed(unused)} instead" if unused else ""
            raise ValueError(
                f"{source} lacks {listed(absent)}{instead}; this model needs them (model_type "
                f"{self.config.to_dict()['model_type']}, {sizes_of(self.config)}); {TOGETHER}"
            )
        if more:
            raise ValueError(
                f"{source} has weights for which this model ({sizes_of(self.config)}) has no place: "
                f"{listed(more)}; {TOGETHER}"
            )

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write `config.json` and `model.safetensors`; published architectures use the names `transformers` expects.

        Other files in the folder, such as a tokenizer, stay. Weights in 8 bits go to `model_int8.safetensors`.
        """
        from mini_bert.files.model_folder import write_folder

        for name, model in self.folders().items():
            write_folder(Path(folder) / name, model.file_config(), model.kept_tensors(), keep_others=True)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: Any = np.float32) -> Self:
        """Read a model folder, the folder of a run, or a bundled model by name.

        The model has the heads that the file has. From a fine-tuned folder only the encoder is loaded.
        """
        from mini_bert.files.model_folder import read_folder

        values, tensors = read_folder(folder)
        config = cls.config_in(values, tensors, str(folder))
        own = cls.of_task(values)
        tuned = any(name.startswith(own) for name in tensors)
        if tuned and "fine_tuning" in values:
            from mini_bert.common.invocation import command

            warnings.warn(
                f"{folder} was fine-tuned; only its encoder is loaded here "
                f"(`{command('predict', folder)}` uses all of it)",
                stacklevel=2,
            )
            tensors = {name: array for name, array in tensors.items() if not name.startswith(own)}
        by_name = {cls.canonical(name): array for name, array in tensors.items()}
        model = cls(config, cls.heads_in(values, by_name), seed=None, dtype=dtype)
        model.assign_tensors(tensors, str(folder))
        model.fine_tuned = cls.tuned_for(values) if tuned else ""
        return model.kept_as(values)

    def kept_as(self, values: Mapping[str, Any]) -> Self:
        """With weights in 8 bits if config.json says so, and the model computes in float32."""
        return self.keep_weights(INT8) if EIGHT_BIT in values and self.dtype == np.float32 else self

    @staticmethod
    def tuned_for(values: Mapping[str, Any]) -> str:
        """How it was tuned: "with `mini-bert finetune tag`", "as BertForTokenClassification", from config.json"""
        settings, classes = values.get("fine_tuning"), values.get("architectures") or []
        if isinstance(settings, dict) and settings.get("task"):
            return f"with `mini-bert finetune {settings['task']!s:.60}`"
        return f"as {classes[0]:.60}" if classes else "for a task"

    @classmethod
    def of_task(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """How the names of a fine-tuned head begin in a file, from its config.json."""
        classes = values.get("architectures") or [""]
        layers = cls.task_heads.get(cls.task_of_class(str(classes[0])), {})
        return ("task.", *(f"{name}." for name in layers.values()))

    @classmethod
    def config_in(cls, values: dict[str, Any], tensors: Mapping[str, Any], source: str) -> Any:
        """The config of a model folder. Refuses one that describes a far larger model than the file holds, because
        building that could take all memory."""
        try:
            config = cls.config_class.from_dict(values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source}: {error}") from error
        held, described = sum(array.size for array in tensors.values()), config.sizes().parameters
        if described > 4 * held:  # heads may be missing from the file, but they are less than half of any model
            raise ValueError(
                f"{source}: config.json describes a model of {described:,} parameters ({sizes_of(config)}), but the "
                f"weights file has only {held:,} numbers; they do not belong together"
            )
        return config

    def load_checkpoint(self, path: str | os.PathLike[str]) -> Self:
        """Load weights from a file (`model.safetensors`) or the folder of a model, a checkpoint or a run.

        For a run, this is its best model, or its newest checkpoint if there is no best model yet.
        """
        from mini_bert.files.model_folder import WEIGHT_FILES, read_folder, read_tensors

        is_file = Path(path).suffix in WEIGHT_FILES and not Path(path).is_dir()
        tensors = read_tensors(path) if is_file else read_folder(path)[1]
        self.assign_tensors(tensors, str(path))
        return self


def sizes_of(config: Any) -> str:
    """The sizes and switches in a config, as config.json writes them, for messages about tensors that do not fit."""
    values = {name: value for name, value in asdict(config).items() if not name.endswith(("_token_id", "_act"))}
    return ", ".join(
        f"{name} {value:,}" if type(value) is int else f"{name} {json.dumps(value):.60}"
        for name, value in values.items()
        if isinstance(value, int | str | tuple)
    )


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def linear_names(ours: str, *theirs: str) -> list[Name]:
    """Files store weights as (out,in), we as (in,out); several of their tensors may form one of ours, side by side."""
    return [
        Name(f"{ours}.w", tuple(f"{name}.weight" for name in theirs), transposed=True),
        Name(f"{ours}.b", tuple(f"{name}.bias" for name in theirs)),
    ]


def norm_names(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.gamma", (f"{theirs}.weight",)), Name(f"{ours}.beta", (f"{theirs}.bias",))]


def warn_of_own_matrix(tensors: Mapping[str, Any], own: str, table: str, source: str) -> None:
    """For a head that shares the token table: warn if a file has another matrix for it, which is not used."""
    if own in tensors and table in tensors and not np.array_equal(tensors[own], tensors[table]):
        warnings.warn(
            f"{source}: config.json says that the head shares the token table, so the file's own matrix for the head "
            'is not used; to use it, set "tie_word_embeddings": false there',
            stacklevel=5,
        )


def check_numbers(tensors: Mapping[str, Any], source: str, dtype: np.dtype[Any]) -> None:
    """Every tensor must hold floats that are finite in this dtype: a NaN would spread to every result."""
    for name, array in tensors.items():
        if not isinstance(array, Stored) and array.dtype.kind != "f":
            raise ValueError(
                f"{source}: tensor {name} has dtype {array.dtype}, expected floating-point weights such as float32"
            )
        with np.errstate(over="ignore"):
            numbers = np.asarray(array).astype(dtype, copy=False)
        if not np.isfinite(numbers).all():
            odd = numbers[~np.isfinite(numbers)]
            kinds = " and ".join(kind for kind, is_odd in (("NaN", np.isnan), ("inf", np.isinf)) if is_odd(odd).any())
            raise ValueError(
                f"{source}: tensor {name} has {odd.size:,} of {numbers.size:,} values that are {kinds}; the file is "
                "damaged, or the training that wrote it failed"
            )
        largest = max(numbers.max(initial=0), -numbers.min(initial=0))
        if largest > LARGEST_WEIGHT:
            raise ValueError(
                f"{source}: tensor {name} has values of up to {largest:.2g}, expected at most {LARGEST_WEIGHT:.0e}: "
                "products of such numbers overflow; the file is damaged, or the training that wrote it failed"
            )


def assign(params: Mapping[str, Any], tensors: Mapping[str, np.ndarray], source: str) -> None:
    """Copy arrays to the Params with the same names. Nothing is changed unless all of them fit."""
    for name, param in params.items():
        if tensors[name].shape != param.shape:
            raise ValueError(
                f"{source}: tensor {name} has shape {tensors[name].shape}, but this model needs {param.shape}; "
                f"{TOGETHER}"
            )
    for name, param in params.items():
        param.data[...] = tensors[name]
