"""More that cases are made of: run folders, fine-tuned models, and files that the command may change."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

from making import Maker, file, model

PROSE = "The cat sat on a mat. A dog ran.\n\nThe film was good, the dog was bad.\n\n" * 20
CLASSES = "text\tlabel\n" + "".join(
    f"{'good' if n % 2 else 'bad'} film{' the' * (n // 2)}\t{'pos' if n % 2 else 'neg'}\n" for n in range(8)
)
SCORES = "first\tsecond\tscore\n" + "".join(
    f"the cat{' sat' * n}\tthe {'cat' if n % 2 else 'dog'}{' ran' * n}\t{n / 2}\n" for n in range(8)
)
TAGS = "".join("the O\ncat B-PER\n" + "sat O\n" * (n + 1) + "\n" for n in range(8))
WORDS = [(1, "the", "DET", 2, "det"), (2, "cat", "NOUN", 3, "nsubj"), (3, "sat", "VERB", 0, "root")]
TREE = "".join(f"{n}\t{word}\t_\t{part}\t_\t_\t{head}\t{label}\t_\t_\n" for n, word, part, head, label in WORDS) + "\n"
SQUAD = json.dumps({
    "data": [{
        "title": "t",
        "paragraphs": [
            {
                "context": f"the cat sat on a mat{' ran' * n}",
                "qas": [{"id": str(n), "question": "the cat", "answers": [{"text": "mat", "answer_start": 17}]}],
            }
            for n in range(4)
        ],
    }]
})  # fmt: skip
DATA = {
    "classify": ("c.tsv", CLASSES),
    "similarity": ("s.tsv", SCORES),
    "tag": ("t.conll", TAGS),
    "qa": ("q.json", SQUAD),
}


@cache
def _kept(kind: str) -> Path:
    """A folder made once per process: a short run, or a fine-tuned model."""
    folder = Path(tempfile.mkdtemp(prefix="mini-bert-cases-"))
    base = model()(folder)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        if kind == "run":
            from mini_bert.training.pretraining import pretrain

            text = file("prose.txt", PROSE)(folder)
            pretrain(
                [str(text)], str(base / "config.json"), str(base), folder / kind, 0.0, quiet=True, steps=2, threads=1
            )
        else:
            from mini_bert.finetuning.data import read_data
            from mini_bert.finetuning.finetune import finetune
            from mini_bert.finetuning.settings import FineTuning

            path = str(file(*DATA[kind])(folder))
            settings = FineTuning(epochs=1, threads=1, batch_size=4)
            finetune(kind, read_data(kind, path, path), settings, str(base), folder / kind)
    return folder / kind


def run(change: Callable[[Path], object] | None = None) -> Maker:
    """The folder of a run of two steps; `change` damages it."""

    def make(folder: Path) -> Path:
        path = Path(shutil.copytree(_kept("run"), folder / "run"))
        if change is not None:
            change(path)
        return path

    return make


def tuned(kind: str = "classify") -> Maker:
    """A fine-tuned model: classify, tag, qa or similarity."""
    return lambda folder: Path(shutil.copytree(_kept(kind), folder / kind))


def here(maker: Maker) -> Maker:
    """The same, in the folder where the command runs: it may change it. The command names it itself."""
    return lambda folder: maker(folder.parents[1] / "here")


def empty(name: str = "empty") -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).mkdir(parents=True)
        return folder / name

    return make


def loop(name: str = "loop") -> Maker:
    """A link that leads to itself."""

    def make(folder: Path) -> Path:
        os.symlink(folder / name, folder / name)
        return folder / name

    return make
