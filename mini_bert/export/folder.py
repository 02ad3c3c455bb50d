"""Export a model: a folder with 16-bit weights, half the size on disk, or with 8-bit weights, a quarter of it.

    $ mini-bert export runs/run-1 --out my-model                float16
    $ mini-bert export runs/run-1 --bfloat16 --out my-model
    $ mini-bert export runs/run-1 --int8 --out my-model

float16 keeps 11 of float32's 24 significant bits and ranges from 6e-8 to 65,504: enough for inference, too little for
training. bfloat16 keeps 8 bits, over the range of float32. Loading such a folder gives float32 weights again.

In 8 bits, a weight is an integer times the scale of its output (common/eight_bit.py). Loading such a folder gives a
model that computes with these integers. Nothing else can open the weights, so the file has another name.
"""

from __future__ import annotations

import json
import os
import re
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.invocation import command
from mini_bert.evaluation.word_frequencies import FILE as FREQUENCIES
from mini_bert.files.model_folder import (
    CONFIG,
    INT8_WEIGHTS,
    LENGTH,
    LOADING,
    add_tokenizer_settings,
    locate,
    trained_length,
    weights_of,
    write_folder,
)
from mini_bert.finetuning.model import FineTuned, folder_config
from mini_bert.finetuning.report import example
from mini_bert.inference.embed import FOLDER_POOLING, pooling_in
from mini_bert.inference.generate import text_ends
from mini_bert.models.base import Model
from mini_bert.training.checkpoint import FOLDER

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

EIGHT_BIT_HEADING, GRAPH_HEADING = "## Weights in 8 bits", "## The ONNX graph"
OWN_SECTIONS = (LOADING, EIGHT_BIT_HEADING, GRAPH_HEADING)  # of a model card, written anew by each export
STORED = {
    "float32": "in 32 bits",
    "float16": "in 16 bits (float16), and converted to float32 when loaded",
    "bfloat16": "in 16 bits (bfloat16), and converted to float32 when loaded",
    "int8": "in 8 bits",
}


def export(
    model: Model,
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    weights: str = "float16",
    card: Path | None = None,
    **more: Any,
) -> int:
    """Write config.json, weights, tokenizer, and a model card. Returns the size of the weights in bytes.

    weights: float32, float16, bfloat16 or int8; card: the file of an existing card; its section on loading is
    replaced. Word frequencies and pooling next to it are copied. more: for config.json
    """
    folder = Path(folder)
    model = stored_as(model, weights)
    text = card.read_text(encoding="utf-8") if card is not None and card.is_file() else f"# {folder.resolve().name}\n"
    text = _with_note(f"{_without_own(text).rstrip()}\n\n{_how_to_load(model)}", model)
    parts: Any = model.folders()
    if pooling := pooling_beside(card):
        more = {FOLDER_POOLING: pooling, **more}
    for name, part in parts.items():
        ends = text_ends(part, tokenizer)
        config = {**part.file_config(), **ends, **more}
        write_folder(folder / name, config, part.kept_tensors(), tokenizer, None if name else text, keep_others=True)
        _tell_tokenizer(folder / name, part, None if card is None else trained_length(card.parent))
        if ends:
            write_atomic(folder / name / "generation_config.json", (json.dumps(ends, indent=2) + "\n").encode())
    if card is not None and (frequencies := card.with_name(FREQUENCIES)).is_file():
        write_atomic(folder / FREQUENCIES, frequencies.read_bytes())
    return sum(size_of_weights(folder / name) for name in parts)


def export_tuned(tuned: FineTuned, folder: str | os.PathLike[str], weights: str, card: Path | None, **more: Any) -> int:
    """The same for a fine-tuned model, with the head of its task"""
    model, task, tokenizer, length = tuned
    model = stored_as(model, weights)
    text = f"# {Path(folder).resolve().name}\n\n```console\nmini-bert predict . {example(task)}\n```\n"
    if card is not None and card.is_file():
        text = _without_own(card.read_text(encoding="utf-8"))
    config = {**folder_config(model, task, tokenizer, length), **more}
    write_folder(folder, config, model.kept_tensors(task.architecture), tokenizer, _with_note(text, model))
    _tell_tokenizer(Path(folder), model, length)
    return size_of_weights(Path(folder))


def pooling_beside(card: Path | None) -> str | None:
    """The pooling of the model folder that a card is in"""
    return pooling_in(card.parent) if card is not None and card.with_name(CONFIG).is_file() else None


def _tell_tokenizer(folder: Path, model: Model, length: int | None) -> None:
    """Tell transformers which arrays its tokenizer makes: a GPT-2 adds token types to its input if it gets them. And
    the length of the sequences that the model was trained on, if it is known."""
    types = ["token_type_ids"] if model.tells_texts_apart else []
    inputs = ["input_ids", *types, "attention_mask"]
    add_tokenizer_settings(folder, model_input_names=inputs, **{LENGTH: length})


def size_of_weights(folder: Path) -> int:
    """The bytes of the weights file"""
    path = weights_of(folder)
    return 0 if path is None else path.stat().st_size


def stored_as(model: Model, weights: str) -> Model:
    """A copy of the model with its weights rounded to a kind; the model itself if they are of that kind already."""
    if weights == "float16":
        largest = max(float(np.abs(np.asarray(param.data)).max()) for param in model.named_params().values())
        if not largest <= float(np.finfo(np.float16).max):
            raise ValueError(
                f"the largest weight is {largest:g}, but float16 only goes to 65,504; export with --full or --bfloat16"
            )
    return model if model.weights_kind == weights else deepcopy(model).keep_weights(weights)


def _how_to_load(model: Model) -> str:
    """The section of the model card that says what can open the folder."""
    parts = {name: part.file_config().get("architectures", ["?"])[0] for name, part in model.folders().items()}
    if model.in_transformers is None:
        others = (
            "In `transformers`, only the tokenizer opens (`AutoTokenizer.from_pretrained`). The model does not: its\n"
            f"architecture, `{model.model_type}`, exists only in Mini-BERT."
        )
    else:
        library = " ".join(filter(None, ("`transformers`", model.in_transformers)))
        others = (
            f"{library} opens it as `{parts.pop('')}`; `AutoModel.from_pretrained` gives the encoder, and\n"
            "`AutoTokenizer.from_pretrained` the tokenizer."
        )
        others += "".join(f" The folder `{name}` is a model of its own, `{kind}`." for name, kind in parts.items())
    if model.in_eight_bits:
        others = "In `transformers`, only the tokenizer opens (`AutoTokenizer.from_pretrained`)."
    heads = ", ".join(model.output_heads) or "none"
    return f"""{LOADING}

```python
from mini_bert import load_model, load_tokenizer

model, tokenizer = load_model("FOLDER"), load_tokenizer("FOLDER")  # the path of this folder
hidden, cache = model.encode(tokenizer("some text", return_tensors="np")["input_ids"])  # a vector for each token
```

Its output heads: {heads}. The weights are stored {STORED[model.weights_kind]}.

{others}
"""


def _without_own(card: str) -> str:
    """A model card without the sections that an export adds: they may be of another kind of weights"""
    for heading in OWN_SECTIONS:
        card = re.sub(rf"^{re.escape(heading)}\n.*?(?=^## |\Z)", "", card, flags=re.MULTILINE | re.DOTALL)
    return card


def _with_note(text: str, model: Model) -> str:
    """A model card with a section on weights in 8 bits, if the model has such"""
    if not model.in_eight_bits:
        return text
    note = (
        f"{EIGHT_BIT_HEADING}\n\n`{INT8_WEIGHTS}` holds 8-bit integers, and a scale for each output. Only Mini-BERT\n"
        "computes with them; `transformers` does not open this file. `mini-bert export --onnx --int8` writes a graph\n"
        "(`onnx/model_quantized.onnx`) that computes the same wherever ONNX Runtime runs.\n"
    )
    return f"{text.rstrip()}\n\n{note}"


def source_of(model: str, out: Path) -> Path:
    """The folder to export `model` from; raises an error if that is not possible or `out` is not a new folder."""
    source = locate(model)
    if out.resolve() == source.resolve():
        raise ValueError(f"{out} is the folder that the model is read from; choose another one for --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose a new folder for --out")
    if source.parent.name == FOLDER and Path(model) != source:  # a run without a best model
        _refuse_failed_run(Path(model), source)
    return source


def _refuse_failed_run(run: Path, newest: Path) -> None:
    from mini_bert.training.doctor import diagnose, weights_are_useless

    try:
        findings = diagnose(run)
    except ValueError:  # no history, only checkpoints
        return
    if weights_are_useless(findings):
        raise ValueError(
            f"the run {run} went wrong ({findings[0].title[0].lower()}{findings[0].title[1:]}), so it has no model; "
            f"`{command('doctor', run)}` shows what to try. To export its newest checkpoint anyway, give its path: "
            f"{newest}"
        )
