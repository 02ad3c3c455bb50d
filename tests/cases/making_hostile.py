"""Makers of files that are damaged or made to do harm. A harmful file tries to create a file called PWNED."""

from __future__ import annotations

import atexit
import functools
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from making import PIECES, Maker, file, model

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b[31m\x1b]0;owned\x07"  # red, and a new title for the terminal's window
BIG = 10**30
CONLL = "1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


def short(value: Any) -> str:
    """A value as a case's name shows it."""
    shown = repr(value)
    return shown if len(shown) < 40 else f"{shown[:20]}… ({len(shown):,} characters)"


# ---- model folders


def changed(*changes: Callable[[Path], Any], kind: str = "mini", **options: Any) -> Maker:
    """A model folder, then `changes` of it."""

    def make(folder: Path) -> Path:
        path = model(kind, **options)(folder)
        for change in changes:
            change(path)
        return path

    return make


def weights(content: bytes) -> Maker:
    return changed(lambda path: (path / "model.safetensors").write_bytes(content))


def header(change: Callable[[dict[str, Any]], Any], tail: bytes = b"") -> Maker:
    """A sound model whose safetensors header is changed."""

    def edit(path: Path) -> None:
        raw = (path / "model.safetensors").read_bytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        values = json.loads(raw[8:end])
        text = change(values)
        text = (json.dumps(values) if text is None else text).encode()
        (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[end:] + tail)

    return changed(edit)


def entry(**fields: Any) -> Maker:
    """A sound model; the first tensor's entry in the header has other fields."""
    return header(lambda values: values[min(set(values) - {"__metadata__"})].update(fields))


def arrays(change: Callable[[dict[str, np.ndarray]], Any], kind: str = "mini") -> Maker:
    """A model whose dict of arrays is changed."""

    def edit(path: Path) -> None:
        from safetensors.numpy import load_file, save_file

        values = load_file(path / "model.safetensors")
        change(values)
        save_file({name: np.ascontiguousarray(array) for name, array in values.items()}, path / "model.safetensors")

    return changed(edit, kind=kind)


def first(values: dict[str, Any]) -> str:
    return min(values)


def instead(name: str, put: Callable[[Path], Any]) -> Maker:
    """A model folder in which `put` makes something else under this name."""

    def edit(path: Path) -> None:
        (path / name).unlink()
        put(path / name)

    return changed(edit)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def linked(folder: Path) -> Path:
    """A model with a symbolic link to it beside it."""
    path = model()(folder)
    (folder / "link").symlink_to(path)
    return path


# ---- pytorch_model.bin


class Harm:
    """Unpickling this runs a command."""

    def __init__(self, function: Callable[..., Any] = os.system, argument: str = "touch PWNED"):
        self.function, self.argument = function, argument

    def __reduce__(self) -> Any:
        return self.function, (self.argument,)


def torch_model(content: bytes, name: str = "pytorch_model.bin") -> Maker:
    """A published BERT whose weights are this file."""
    return changed(
        lambda path: (path / name).write_bytes(content), kind="bert", drop=("model.safetensors",)
    )  # fmt: skip


def torch_zip(
    code: bytes, compress: int = zipfile.ZIP_STORED, name: str = "archive/data.pkl", **records: bytes
) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compress) as archive:
        archive.writestr(name, code)
        for key, content in records.items():
            archive.writestr(f"archive/data/{key}", content)
    return memory.getvalue()


def tensor_code(
    size: str = "K\x02", offset: str = "K\x00", stride: str = "K\x01", count: str = "K\x02", key: str = "0"
) -> bytes:
    """The pickle of {"w": tensor}, with these instructions for its numbers."""
    return (
        f"\x80\x02}}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        f"X{chr(len(key))}\0\0\0{key}X\x03\0\0\0cpu{count}tQ{offset}({size}t({stride}t\x89NtRs."
    ).encode("latin-1")


# ---- tokenizers


def vocab(content: str | bytes) -> Maker:
    """A model whose only tokenizer file is this vocab.txt."""
    return model(tokenizer={"vocab.txt": content}, drop=("tokenizer.json",))


def pieces(change: Callable[[list[str]], Any]) -> Maker:
    """A model whose vocab.txt is changed."""
    words = list(PIECES)
    return vocab("\n".join(change(words) or words) + "\n")


def tokenizer_json(change: Callable[[dict[str, Any]], Any]) -> Maker:
    """A model whose tokenizer.json is changed."""

    def edit(path: Path) -> None:
        values = json.loads((path / "tokenizer.json").read_text())
        change(values)
        (path / "tokenizer.json").write_text(json.dumps(values))
        (path / "vocab.txt").unlink(missing_ok=True)

    return changed(edit)


# ---- other files


def at(name: str, put: Callable[[Path], Any]) -> Maker:
    """Whatever `put` makes at this path."""

    def make(folder: Path) -> Path:
        put(folder / name)
        return folder / name

    return make


def bomb(name: str, compress: Callable[[bytes], bytes], content: bytes, times: int) -> Maker:
    """A small file that unpacks to a large one."""
    return at(name, lambda path: path.write_bytes(compress(content * times)))


def link(target: str, name: str = "link.txt") -> Maker:
    return at(name, lambda path: path.symlink_to(target))


def texts_with_loop(folder: Path) -> Path:
    file("texts/a.txt", "The cat sat on the mat.\n")(folder)
    (folder / "texts" / "again").symlink_to(folder / "texts")
    loop(folder / "texts" / "loop.txt")
    os.mkfifo(folder / "texts" / "pipe.txt")
    return folder / "texts"


def tiny_config(folder: Path) -> Path:
    """A config.json for `train --model`, with the bundled vocabulary."""
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16, "max_seq_length": 16}
    return file("config.json", json.dumps({"model_type": "mini_bert", "vocab_size": 8192, **sizes}))(folder)


# ---- run folders and fine-tuned models: made once, then copied


def temporary() -> Path:
    """A folder that is removed when the tests end."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path, True)
    return path


def mini_bert(words: list[str], here: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "mini_bert", *words], cwd=here, env=environment, check=True, timeout=60)


@functools.cache
def _trained() -> Path:
    here = temporary()
    text = file("t.txt", "The cat sat on the mat. A dog ran. The film was good.\n\n" * 300)(here)
    words = f"train --corpus {text} --model {tiny_config(here)} --steps 4 --save-every 2 --batch-size 4 --threads 1"
    mini_bert([*words.split(), "--quiet", "--out", "run"], here)
    return here / "run"


def run(*changes: Callable[[Path], Any], name: str = "run") -> Maker:
    """A finished training run of four steps, then `changes` of it."""

    def make(folder: Path) -> Path:
        path = folder / name
        shutil.copytree(_trained(), path)
        for change in changes:
            change(path)
        return path

    return make


def write(name: str, content: str | bytes) -> Callable[[Path], Any]:
    return lambda path: file(name, content)(path)


def add(name: str, content: str) -> Callable[[Path], Any]:
    def append(path: Path) -> None:
        with (path / name).open("a") as stream:
            stream.write(content)

    return append


def edit(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """Change a JSON file."""

    def edit_file(path: Path) -> None:
        values = json.loads((path / name).read_text())
        change(values)
        (path / name).write_text(json.dumps(values))

    return edit_file


def each_checkpoint(change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def change_all(path: Path) -> None:
        for folder in (path / "checkpoints").glob("step-*"):
            change(folder)

    return change_all


@functools.cache
def _classifier() -> Path:
    here = temporary()
    rows = "".join(f"the cat sat {'good' if i % 2 else 'bad'} {i}\t{'yes' if i % 2 else 'no'}\n" for i in range(40))
    table = file("t.tsv", "text\tlabel\n" + rows)(here)
    base = model()(here)
    words = f"finetune classify --train {table} --model {base} --epochs 1 --threads 1 --quiet --out classifier"
    mini_bert(words.split(), here)
    return here / "classifier"


def classifier(*changes: Callable[[Path], Any]) -> Maker:
    """A fine-tuned classifier with the labels no and yes, then `changes` of it."""

    def make(folder: Path) -> Path:
        shutil.copytree(_classifier(), folder / "classifier")
        for change in changes:
            change(folder / "classifier")
        return folder / "classifier"

    return make


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)
