"""Tiny models of every architecture, odd in one way.

of("gpt2")                                      a sound folder, with a tokenizer
of("gpt2", config={"n_layer": 1})               its config.json is changed
of("gpt2", weights=lambda arrays: arrays.popitem())     its tensors are changed
of("gpt2", write={"vocab.txt": "…"}, drop=("tokenizer.json",))
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from making import PIECES, Maker, file

from mini_bert.models.registry import model_class
from mini_bert.text.wordpiece import WordPieceTokenizer

BERT = {
    "vocab_size": len(PIECES), "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
DISTANCES = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]}
KINDS: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "roberta": BERT | {"max_position_embeddings": 17, "pad_token_id": 0, "type_vocab_size": 1},
    "distilbert": {
        "vocab_size": len(PIECES), "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16,
        "max_position_embeddings": 16,
    },
    "albert": BERT | {"embedding_size": 4},
    "electra": BERT | {
        "embedding_size": 4, "generator": {"hidden_size": 4, "num_attention_heads": 1, "intermediate_size": 8}
    },
    "deberta": BERT | DISTANCES,
    "deberta-v2": BERT | DISTANCES | {
        "position_buckets": 8, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3, "share_att_key": True
    },
    "gpt2": {"vocab_size": len(PIECES), "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2},
    "modernbert": BERT | {
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
        "local_attention": 4,
    },
    "transfo-xl": {
        "vocab_size": len(PIECES), "cutoffs": [8, 12], "d_model": 8, "d_embed": 8, "n_head": 2, "d_head": 4,
        "d_inner": 16, "div_val": 2, "n_layer": 2, "mem_len": 4, "clamp_len": -1, "same_length": False, "tgt_len": 16,
    },
    "xlnet": {
        "vocab_size": len(PIECES), "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 16, "mem_len": 4, "seq_len": 16
    },
}  # fmt: skip
# The fields of config.json that are sizes: at least 1, and not beyond reason.
SIZES: dict[str, list[str]] = {
    kind: [name for name, value in values.items() if type(value) is int and value > 1 and not name.endswith("_id")]
    for kind, values in KINDS.items()
}
SIZES["albert"] += ["num_hidden_groups", "inner_group_num"]
for _signed in ("position_buckets", "conv_kernel_size"):  # −1: off
    SIZES["deberta-v2"].remove(_signed)
for _kind in ("transfo-xl", "xlnet"):  # 0: no memory
    SIZES[_kind].remove("mem_len")


@functools.cache
def _sound(kind: str, bare: bool) -> Path:
    """A folder made once per process. bare: an encoder without heads"""
    folder = Path(tempfile.mkdtemp(prefix="mini-bert-cases-"))
    atexit.register(_remove, folder, os.getpid())
    model = model_class({"model_type": kind})
    config = model.config_class.from_dict({"model_type": kind, **KINDS[kind]})
    (model(config, (), seed=0) if bare else model(config, seed=0)).save_pretrained(folder / kind)
    WordPieceTokenizer(PIECES).save(folder / kind)
    return folder / kind


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)


def of(
    kind: str,
    config: Mapping[str, Any] | None = None,
    weights: Callable[[dict[str, np.ndarray]], Any] | None = None,
    write: Mapping[str, str | bytes] | None = None,
    drop: tuple[str, ...] = (),
    bare: bool = False,
    inside: str = "",
) -> Maker:
    """A model folder. `weights` changes the dictionary of its tensors; inside: the folder in it that is changed."""

    def make(folder: Path) -> Path:
        path = Path(shutil.copytree(_sound(kind, bare), folder / kind))
        place = path / inside
        if weights is not None:
            from safetensors.numpy import load_file, save_file

            arrays = load_file(place / "model.safetensors")
            weights(arrays)
            found = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            save_file(found, place / "model.safetensors")
        if config is not None:
            values = json.loads((place / "config.json").read_text()) | dict(config)
            (place / "config.json").write_text(json.dumps(values))
        for name, content in (write or {}).items():
            file(name, content)(place)
        for name in drop:
            (place / name).unlink()
        return path

    return make


def with_files_of(kind: str, other: str, *names: str) -> Maker:
    """A folder of one kind in which some files are those of another."""

    def make(folder: Path) -> Path:
        path = of(kind)(folder)
        for name in names:
            shutil.copy(_sound(other, bare=False) / name, path / name)
        return path

    return make


def config_file(kind: str, **changes: Any) -> Maker:
    """A config.json alone, for `train --model`, `info` and `plan`."""
    return file("config.json", json.dumps({"model_type": kind, **KINDS[kind], **changes}))


def every(change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, np.ndarray]], None]:
    """A change of all tensors."""
    return lambda arrays: arrays.update({name: np.asarray(change(array)) for name, array in arrays.items()})


def one(end: str, change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, np.ndarray]], None]:
    """A change of the first tensor whose name ends like this."""

    def edit(arrays: dict[str, np.ndarray]) -> None:
        name = next(name for name in sorted(arrays) if name.endswith(end))
        arrays[name] = np.asarray(change(arrays[name]))

    return edit


def without(end: str) -> Callable[[dict[str, np.ndarray]], None]:
    """The first tensor whose name ends like this is missing."""
    return lambda arrays: arrays.__delitem__(next(name for name in sorted(arrays) if name.endswith(end)))


# ---- runs that were killed


OPTIONS = "--batch-size 4 --micro-batch 2 --steps 12 --save-every 3 --eval-every 6 --threads 2 --seed 5 --quiet"
SENTENCES = "The cat sat on a mat. A dog ran. The film was good.\n\nThe dog was bad. A cat ran on a mat.\n\n" * 60


def _train(folder: Path, kind: str, objective: str) -> list[str]:
    """The command that trains in folder/run, after what it needs is written there."""
    file("prose.txt", SENTENCES)(folder)
    words = [sys.executable, "-m", "mini_bert", "train", "--corpus", "prose.txt", "--out", "run", *OPTIONS.split()]
    if objective == "distillation":
        shutil.copytree(_sound("bert", False), folder / "teacher")
        config_file(kind)(folder)
        return [*words, "--model", "config.json", "--teacher", "teacher"]
    shutil.copytree(_sound(kind, False), folder / "start")
    return [*words, "--init", "start", "--objective", objective]


def _run(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@functools.cache
def _whole(kind: str, objective: str) -> bytes:
    """The weights after a run that was not killed."""
    folder = Path(tempfile.mkdtemp(prefix="mini-bert-cases-"))
    atexit.register(_remove, folder, os.getpid())
    assert _run(_train(folder, kind, objective), folder).wait(60) == 0
    return (folder / "run" / "model" / "model.safetensors").read_bytes()


def stopped(kind: str, objective: str, change: Callable[[Path], Any] | None = None) -> Maker:
    """A run in the folder of the command, killed after its first checkpoint; `change` damages it."""

    def make(folder: Path) -> Path:
        here = folder.parents[1] / "here"
        training = _run(_train(here, kind, objective), here)
        while training.poll() is None and not list(here.glob("run/checkpoints/step-*")):
            time.sleep(0.01)
        training.kill()
        training.wait()
        shutil.rmtree(here / "run" / "model", ignore_errors=True)  # if it was faster
        if change is not None:
            change(here / "run")
        return here / "run"

    return make


def runs_on(kind: str, objective: str) -> Callable[[Path], None]:
    """A check that a run which was killed and resumed ends with the same bits."""

    def check(here: Path) -> None:
        assert (here / "run" / "model" / "model.safetensors").read_bytes() == _whole(kind, objective)

    return check
