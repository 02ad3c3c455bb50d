"""What the tables of cases are made of: a case, and files that are odd in one way.

    Case("an empty text", "embed ''", 1, "the text is empty")
    Case("weights that are NaN", "embed --model {bad} hello", 1, "not finite", bad=model(weights=float("nan")))

`{bad}` is the path of a file or folder that the keyword's maker writes for this case alone.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.text.wordpiece import WordPieceTokenizer

Maker = Callable[[Path], Path]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *"the cat sat on a mat dog ran ##s ##ing . , good bad film was".split()]  # noqa: SIM905
TINY = MiniBertConfig(
    vocab_size=len(PIECES), hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16, max_seq_length=16
)


class Case:
    """One line of a table: what is done, the command or code, its exit code or exception, and what it must say.

    env: environment variables. limits: of the system, such as {"FSIZE": 1000}. stdout: a file instead of a pipe.
    check: a function of the folder in which the command ran. writes: the command may change what it was given.
    """

    def __init__(
        self, what: str, run: str, end: Any, says: str = "", stdin: str | bytes = "", *,
        env: dict[str, str] | None = None, limits: dict[str, int] | None = None, stdout: str | None = None,
        check: Callable[[Path], object] | None = None, writes: bool = False, **makers: Maker,
    ):  # fmt: skip
        self.what, self.run, self.end, self.says, self.stdin, self.makers = what, run, end, says, stdin, makers
        self.env, self.limits, self.stdout, self.check, self.writes = env or {}, limits or {}, stdout, check, writes

    def __repr__(self) -> str:
        return self.what


def file(name: str, content: str | bytes) -> Maker:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def files(folder_name: str = "folder", **contents: str | bytes) -> Maker:
    """A folder; a dot in a file's name is written as two underscores: vocab__txt="…"."""

    def make(folder: Path) -> Path:
        (folder / folder_name).mkdir()
        for name, content in contents.items():
            file(name.replace("__", "."), content)(folder / folder_name)
        return folder / folder_name

    return make


def gzipped(name: str, content: bytes) -> Maker:
    return file(name, gzip.compress(content))


def zipped(name: str, **members: bytes) -> Maker:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member.replace("__", "."), content)
    return file(name, memory.getvalue())


def tarred(name: str, **members: bytes) -> Maker:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for member, content in members.items():
            entry = tarfile.TarInfo(member.replace("__", "."))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file(name, memory.getvalue())


def model(
    kind: str = "mini",
    config: dict[str, Any] | str | None = None,
    weights: Any = None,
    drop: tuple[str, ...] = (),
    tokenizer: dict[str, str | bytes] | None = None,
) -> Maker:
    """A model folder with a tokenizer. `config` changes fields of config.json (a str replaces it), `weights` is a
    function of each array, or a number that the first weight of every array becomes; `drop` names files to delete."""

    def make(folder: Path) -> Path:
        from safetensors.numpy import load_file, save_file

        path = folder / "model"
        if kind == "mini":
            from mini_bert.model import MiniBERT

            MiniBERT(TINY, seed=0).save_pretrained(path)
        else:
            sizes = BertConfig(
                vocab_size=len(PIECES), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=16, max_position_embeddings=16,
            )  # fmt: skip
            Bert(sizes, seed=0).save_pretrained(path)
        WordPieceTokenizer(PIECES).save(path)
        if weights is not None:
            arrays = load_file(path / "model.safetensors")
            save_file({name: _changed(array, weights) for name, array in arrays.items()}, path / "model.safetensors")
        if isinstance(config, str):
            (path / "config.json").write_text(config)
        elif config:
            values = json.loads((path / "config.json").read_text()) | config
            (path / "config.json").write_text(json.dumps(values))
        for name, content in (tokenizer or {}).items():
            file(name, content)(path)
        for name in drop:
            (path / name).unlink()
        return path

    return make


def _changed(array: np.ndarray, weights: Any) -> np.ndarray:
    if callable(weights):
        return np.ascontiguousarray(weights(array))
    array = array.copy()
    array.flat[0] = weights
    return array
