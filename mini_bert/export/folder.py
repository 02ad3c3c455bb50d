"""A model on its way to others: a folder with weights in 16 bits, half the size on disk.

    $ mini-bert export runs/first --out my-model

float16 keeps 11 of float32's 24 binary digits, and numbers from 6e-8 to 65,504: enough for weights to be read, too
little to train with. They are float32 again as soon as a model reads them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.files.model_folder import WEIGHTS, locate, read_tensors, write_tensors
from mini_bert.inference.loading import load
from mini_bert.models.base import Model
from mini_bert.training.checkpoint import FOLDER

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

CARD = "README.md"


def export(model: Model, tokenizer: Tokenizer, folder: str | os.PathLike[str], half: bool = True) -> int:
    """Write config.json, model.safetensors and the tokenizer -> bytes of the weights"""
    folder = Path(folder)
    if half:
        largest = float(np.abs(model.flat.data).max())
        if not largest <= float(np.finfo(np.float16).max):
            raise ValueError(f"a weight is {largest:g}, float16 ends at 65,504; export with --full")
    model.save_pretrained(folder)
    path = folder / WEIGHTS
    if half:
        write_tensors(path, {name: array.astype(np.float16) for name, array in read_tensors(path).items()})
    tokenizer.save(folder)
    return path.stat().st_size


def _refuse_spoilt(run: Path, newest: Path) -> None:
    """A run that broke has no model, and its last checkpoint is none for others."""
    from mini_bert.training.doctor import diagnose, spoilt

    try:
        findings = diagnose(run)
    except ValueError:  # only checkpoints are left of it: nobody knows
        return
    if spoilt(findings):
        raise ValueError(
            f"the run {run} went wrong ({findings[0].title[0].lower()}{findings[0].title[1:]}), so it has no model; "
            f"`{command('doctor', run)}` says what to try. To export its newest checkpoint all the same, name "
            f"it: {newest}"
        )


def export_command(model: str, out: Path, full: bool = False) -> None:
    """Export by name; a card beside the model goes with it."""
    source = locate(model)
    if out.resolve() == Path(source).resolve():
        raise ValueError(f"{out} is the folder that the model is read from; choose another one for --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose a new folder for --out")
    if Path(source).parent.name == FOLDER and Path(model) != Path(source):  # a run without a model of its own
        _refuse_spoilt(Path(model), Path(source))
    loaded, tokenizer = load(source)
    size = export(loaded, tokenizer, out, half=not full)
    card = Path(source) / CARD
    if card.is_file():
        shutil.copyfile(card, out / CARD)
    bits = 32 if full else 16
    print(f"{out}: {loaded.get_parameter_count():,} weights in {bits} bits, {size / 1e6:.1f} MB")
