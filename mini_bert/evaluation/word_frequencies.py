"""The word frequencies of a model's training text, in a small file of the model folder: `eval` needs them for the
unigram baseline (unigram_baseline.py).

`mini-bert train` writes the file. This adds it to an older folder (or the bundled model), given the training text:

    python -m mini_bert.evaluation.word_frequencies FOLDER wiki.txt.xz books.txt.xz --held-out 0.01
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mini_bert.evaluation.evaluate import word_counts
from mini_bert.files.model_folder import locate, read_tensors, write_tensors
from mini_bert.objectives.masked_words import word_shares

FILE, TENSOR = "word_frequencies.safetensors", "log_frequencies"


def log_frequencies(counts: np.ndarray) -> np.ndarray:
    """log p (V,) of the words of a text with these counts; a word that does not occur counts as half an occurrence."""
    return np.log(word_shares(counts)).astype(np.float32)


def write_frequencies(folder: str | os.PathLike[str], frequencies: np.ndarray) -> None:
    """Write the log frequencies (V,) of the words of the training text."""
    write_tensors(Path(folder) / FILE, {TENSOR: frequencies})


def read_frequencies(folder: str | os.PathLike[str]) -> np.ndarray | None:
    """Log frequencies (V,) of the model's training text, or None if the folder has no such file."""
    path = locate(folder) / FILE
    if not path.is_file():
        return None
    found = read_tensors(path).get(TENSOR)
    if found is None or found.ndim != 1 or not np.isfinite(found).all() or (found > 0).any():
        raise ValueError(f"{path} does not hold log frequencies: expected one number up to 0 for every word")
    return found


def main(words: Sequence[str] | None = None) -> None:
    from mini_bert.data.generator import MLMDataGenerator
    from mini_bert.inference.loading import load_tokenizer

    parser = argparse.ArgumentParser(description="Add the word frequencies of the training text to a model folder.")
    parser.add_argument("folder", help="the model folder, or mini-bert")
    parser.add_argument("corpus", nargs="+", help="the text that the model was trained on")
    parser.add_argument("--held-out", type=float, default=0.01, help="the fraction of it that was held out")
    given = parser.parse_args(words)
    folder = locate(given.folder)
    batches = MLMDataGenerator(given.corpus, load_tokenizer(folder), held_out=given.held_out)
    counts = word_counts(batches)
    write_frequencies(folder, log_frequencies(counts))
    print(f"{folder / FILE}: log frequencies of {counts.size:,} words in {counts.sum():,} tokens")


if __name__ == "__main__":
    main()
