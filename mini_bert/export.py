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

from mini_bert.loading import load_model
from mini_bert.pretrained import WEIGHTS, locate, read_tensors, write_tensors

if TYPE_CHECKING:
    from mini_bert.model import MiniBERT
    from mini_bert.models.bert import Bert
    from mini_bert.tokenizer import WordPieceTokenizer

CARD = "README.md"


def export(
    model: MiniBERT | Bert, tokenizer: WordPieceTokenizer, folder: str | os.PathLike[str], half: bool = True
) -> int:
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


def export_command(model: str, out: Path, full: bool = False) -> None:
    """Export by name; a card beside the model goes with it."""
    source = locate(model)
    if out.resolve() == Path(source).resolve():
        raise ValueError(f"{out} is the folder that the model is read from; choose another one for --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose a new folder for --out")
    loaded, tokenizer = load_model(model)
    size = export(loaded, tokenizer, out, half=not full)
    card = Path(source) / CARD
    if card.is_file():
        shutil.copyfile(card, out / CARD)
    bits = 32 if full else 16
    print(f"{out}: {loaded.get_parameter_count():,} weights in {bits} bits, {size / 1e6:.1f} MB")
