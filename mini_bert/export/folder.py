"""Export a model: a folder with 16-bit weights, half the size on disk.

    $ mini-bert export runs/first --out my-model

float16 keeps 11 of float32's 24 significant bits and ranges from 6e-8 to 65,504: enough for inference, too little for
training. Loading the folder gives float32 weights again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.invocation import command
from mini_bert.evaluation.word_frequencies import FILE as FREQUENCIES
from mini_bert.files.model_folder import WEIGHTS, locate, write_folder
from mini_bert.models.base import Model
from mini_bert.training.checkpoint import FOLDER

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

HEADING = "## How to load it"


def export(
    model: Model,
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    half: bool = True,
    card: Path | None = None,
) -> int:
    """Write config.json, weights, tokenizer, and a model card. Returns the size of the weights in bytes.

    card: the file of an existing card, to which a section on loading is added. Word frequencies next to it are copied.
    """
    folder = Path(folder)
    if half:
        largest = float(np.abs(model.flat.data).max())
        if not largest <= float(np.finfo(np.float16).max):
            raise ValueError(f"the largest weight is {largest:g}, but float16 only goes to 65,504; export with --full")
    text = card.read_text(encoding="utf-8") if card is not None and card.is_file() else f"# {folder.resolve().name}\n"
    if HEADING not in text:
        text = f"{text.rstrip()}\n\n{_how_to_load(model)}"
    for name, part in model.folders().items():
        tensors = part.file_tensors()
        if half:
            tensors = {key: np.asarray(array, np.float16) for key, array in tensors.items()}
        write_folder(folder / name, part.file_config(), tensors, tokenizer, None if name else text, keep_others=True)
    if card is not None and (frequencies := card.with_name(FREQUENCIES)).is_file():
        write_atomic(folder / FREQUENCIES, frequencies.read_bytes())
    return (folder / WEIGHTS).stat().st_size


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
    heads = ", ".join(model.output_heads) or "none"
    return f"""{HEADING}

```python
from mini_bert import load_model, load_tokenizer

model, tokenizer = load_model("FOLDER"), load_tokenizer("FOLDER")  # the path of this folder
hidden, cache = model.encode(tokenizer("some text", return_tensors="np")["input_ids"])  # a vector for each token
```

Its output heads: {heads}.

{others}
"""


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
