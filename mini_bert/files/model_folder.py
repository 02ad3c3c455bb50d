"""Read and write model folders in the usual layout: `config.json` beside `model.safetensors`.

Weights are safetensors (a header and raw numbers; loading them runs no code). `torch_files` reads a `pytorch_model.bin`
and can only build arrays. A `.pkl` is refused. Files are written atomically (common/atomic.py).

A folder in `bundled/` is a model that comes with the package and is found by its name: "mini-bert".
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.atomic import old_version, replaced_folder, write_atomic, written_beside
from mini_bert.common.eight_bit import Int8
from mini_bert.common.folders import folders_inside
from mini_bert.common.json_values import parse_json, read_object
from mini_bert.common.sixteen_bit import Stored, kind_of

WEIGHTS, TORCH_WEIGHTS, CONFIG, CARD = "model.safetensors", "pytorch_model.bin", "config.json", "README.md"
INT8_WEIGHTS = "model_int8.safetensors"  # another name, so that transformers does not take its integers for weights
EIGHT_BIT = "eight_bit"  # the entry in config.json of a folder with such weights
SCALES = ".int8_scale"  # follows the name of a tensor in 8 bits
WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth")  # extensions
BUNDLED = Path(__file__).parent / "bundled"  # contains a folder for each bundled model
BUNDLED_NAMES = ("mini-bert",)
TOKENIZER_CONFIG, LENGTH = "tokenizer_config.json", "model_max_length"
MODEL = "model"  # the folder of a run's best model
LOADING = "## How to load it"  # the heading of a section in model cards, which `export` replaces
logger = logging.getLogger(__name__)


def locate(source: str | os.PathLike[str], quiet: bool = False) -> Path:
    """Find a model folder: a folder with this path, the best model of a run, or a bundled model with this name.

    If a run has no best model yet, its newest checkpoint is used, with a warning, unless `quiet`.
    """
    if not os.fspath(source).strip():
        raise FileNotFoundError("the name of the model folder is empty; give a folder, or a name such as mini-bert")
    folder = Path(source)
    refuse_pickle(folder)
    if os.fspath(source) in BUNDLED_NAMES and not (folder / CONFIG).is_file():  # your own folder takes precedence
        folder = BUNDLED / folder
        if not _is_model(folder):
            raise FileNotFoundError(
                f"the bundled model {os.fspath(source)!r} is missing from this installation ({folder}); "
                "reinstall Mini-BERT, or give the folder of another model"
            )
    if not folder.exists() and _is_model(old_version(folder)):  # a crash while it was being replaced
        return old_version(folder)
    if not folder.is_dir():
        file = f" (it is a file, in {folder.parent})" if folder.exists() else ""
        raise FileNotFoundError(
            f"there is no model folder {folder}{file}; give a folder with "
            f"{CONFIG} and {WEIGHTS}, the folder of a training run, or the name of a bundled model: "
            f"{', '.join(BUNDLED_NAMES)} (models are not downloaded)"
        )
    if _is_model(folder):
        return folder
    for best in (folder / MODEL, old_version(folder / MODEL)):
        if _is_model(best):
            return best
    checkpoints = [path for path in sorted(folder.glob("checkpoints/step-*")) if _is_model(path)]
    if checkpoints:
        if not quiet:
            logger.warning("the run %s has no best model yet; using its newest checkpoint, %s", folder, checkpoints[-1])
        return checkpoints[-1]
    return folder  # reading it will raise an error that says what is missing


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and weights_of(folder) is not None


def weights_of(folder: Path) -> Path | None:
    """The weights file of a model folder. If there are several, config.json says whether it is that in 8 bits."""
    names = (WEIGHTS, TORCH_WEIGHTS, INT8_WEIGHTS)
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1 and found[-1].name == INT8_WEIGHTS and EIGHT_BIT in read_config(folder):
        return found[-1]
    return found[0] if found else None


def read_tensors(path: str | os.PathLike[str], widened: bool = True) -> dict[str, Any]:
    """All arrays of a weights file. Those in 8 bits become float32.

    bfloat16 becomes float32, or sixteen_bit.Stored if `widened` is False.
    """
    path = Path(path)
    refuse_pickle(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a weights file such as {path / WEIGHTS}")
    if path.suffix not in WEIGHT_FILES:
        raise ValueError(f"{path}: unknown type of weights file {path.suffix!r}, expected .safetensors or .bin")
    if not path.is_file():
        raise FileNotFoundError(f"there is no weights file {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path, widened)
    from mini_bert.files.torch_files import load_torch_file

    return load_torch_file(path)


def refuse_pickle(path: Path) -> None:
    if path.suffix in (".pkl", ".pickle"):
        raise ValueError(
            f"{path} is a pickle. Loading a pickle runs the code in it, so Mini-BERT never does. "
            "Use safetensors for weights (save_pretrained writes them), JSON and text for tokenizers"
        )


def _read_safetensors(path: Path, widened: bool) -> dict[str, Any]:
    """Check the header with the library, then read all numbers into one array; the tensors are views of it.

    (`safetensors.deserialize` would hold them twice, which takes 0.2 s more for a model of 90 MB.)
    """
    from safetensors import SafetensorError, safe_open

    damaged = "it may be truncated or damaged, copy it again"
    if path.stat().st_size < 8:
        raise ValueError(f"{path} is not a complete safetensors file (it has less than 8 bytes); {damaged}")
    try:
        with safe_open(path, framework="numpy"), path.open("rb") as file:
            header = parse_json(file.read(int.from_bytes(file.read(8), "little")), path)
            data = np.fromfile(file, np.uint8)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file ({error}); {damaged}") from error
    tensors = {name: _as_array(path, name, entry, data) for name, entry in header.items() if name != "__metadata__"}
    for name in [name for name in tensors if name.endswith(SCALES)]:
        own = name.removesuffix(SCALES)
        if own not in tensors or tensors[own].dtype != np.int8 or tensors[own].ndim != tensors[name].ndim:
            raise ValueError(f"{path}: {name} is there, but not the int8 tensor {own} that it belongs to; {damaged}")
        tensors[own] = np.asarray(Int8(tensors[own], tensors.pop(name)))
    return {name: np.asarray(array) for name, array in tensors.items()} if widened else tensors


_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
    "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


def _as_array(path: Path, name: str, entry: dict[str, Any], data: np.ndarray) -> Any:
    own = data[slice(*entry["data_offsets"])]
    if entry["dtype"] == "BF16":
        return Stored(own.view("<u2").astype(np.uint16, copy=False).reshape(entry["shape"]))
    if entry["dtype"] not in _DTYPES:
        raise ValueError(
            f"{path}: tensor {name} has dtype {entry['dtype']}, expected one of {', '.join(_DTYPES)}, BF16"
        )
    return own.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the content of config.json and the weights by name. `locate` finds the folder."""
    folder = locate(folder)
    config = read_config(folder)
    if (path := weights_of(folder)) is not None:
        return config, read_tensors(path)
    pickles = "".join(f"; {path.name} is a pickle, which is never loaded" for path in sorted(folder.glob("*.pkl")))
    raise FileNotFoundError(f"{folder} has neither {WEIGHTS} nor {TORCH_WEIGHTS}{pickles}")


def tensor_names(folder: Path) -> list[str]:
    """The names in the weights file of a model folder. Of a safetensors file, only the header is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights_of(folder) or folder / WEIGHTS, framework="numpy") as file:
            names = list(file.keys())
            return [name for name in names if not name.endswith(SCALES)]
    except (FileNotFoundError, SafetensorError):  # another type of file; or damaged, and then the error says how
        return list(read_folder(folder)[1])


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a model folder's config.json."""
    path = folder / CONFIG
    try:
        return read_object(path)
    except FileNotFoundError:
        remedy = "" if _has_weights(folder) else folders_inside(folder, CONFIG, _is_model_or_run)
        remedy = remedy or f"a model folder has {CONFIG} and {WEIGHTS}"
        raise FileNotFoundError(f"{folder} has no {CONFIG}; {remedy}") from None


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in WEIGHT_FILES for path in folder.glob("*.*"))


def _is_model_or_run(folder: Path) -> bool:
    """Not a part of a model, as the generator of an ELECTRA, and the pooling of sentence-transformers, which has a
    config.json but no weights."""
    return folder.name != "generator" and _is_model(locate(folder, quiet=True))


def write_folder(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, Any],
    tokenizer: Any = None,
    card: str | None = None,
    keep_others: bool = False,
) -> None:
    """Write a model folder atomically, in place of one that exists.

    keep_others: other files in the folder stay. If it has folders in it, or is the current one, it is not replaced;
    then only each file is atomic.
    """
    folder = Path(folder)
    others = list(folder.iterdir()) if keep_others and folder.is_dir() else []
    if not all(path.is_file() for path in others) or (keep_others and folder.resolve() == Path.cwd()):
        fill_folder(folder, config, tensors, tokenizer, card)
        return
    with replaced_folder(folder) as new:
        if folder.exists():
            shutil.copymode(folder, new)
        for path in others:
            shutil.copy2(path, new / path.name)
        fill_folder(new, config, tensors, tokenizer, card)


def fill_folder(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Any], tokenizer: Any = None, card: str | None = None
) -> None:
    """Write the files of a model to a folder that exists, for example one that is not in its place yet.

    config.json also says how the weights are stored, if that is not float32.
    """
    int8 = any(isinstance(array, Int8) for array in tensors.values())
    write_tensors(folder / (INT8_WEIGHTS if int8 else WEIGHTS), tensors)
    config = {**config, **_about(tensors)}
    write_atomic(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    if tokenizer is not None:
        tokenizer.save(folder)
    if card is not None:
        write_atomic(folder / CARD, card.encode())


def _about(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says about the way in which weights are stored"""
    if any(isinstance(array, Int8) for array in tensors.values()):
        about = {
            "weights": f"int8 in {INT8_WEIGHTS}: multiply each tensor by its {SCALES}, one scale for each output",
            "activations": "uint8, one scale for each array, found when it is computed",
        }
        return {EIGHT_BIT: about}
    kinds = {kind_of(array.bits if isinstance(array, Stored) else array) for array in tensors.values()}
    return {"torch_dtype": kinds.pop()} if len(kinds) == 1 and kinds <= {"bfloat16", "float16"} else {}


def trained_length(folder: Path) -> int | None:
    """How many tokens the sequences had that a model was trained on, if its tokenizer says so"""
    path = folder / TOKENIZER_CONFIG
    length = read_object(path).get(LENGTH) if path.is_file() else None
    return length if type(length) is int else None


def add_tokenizer_settings(folder: Path, **settings: Any) -> None:
    """Settings for other programs, which we do not read with a tokenizer. None: leave it out"""
    known = {name: value for name, value in settings.items() if value is not None}
    content = {**read_object(folder / TOKENIZER_CONFIG), **known}
    write_atomic(folder / TOKENIZER_CONFIG, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Write a safetensors file directly from the arrays' memory.

    16-bit weights (sixteen_bit.Stored) stay 16-bit. Of an Int8, integers and scales are two tensors.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    eight = {name: array for name, array in tensors.items() if isinstance(array, Int8)}
    scales = {name + SCALES: array.scales for name, array in eight.items()}
    tensors = {**tensors, **{name: array.integers for name, array in eight.items()}, **scales}
    bits = {name: array.bits if isinstance(array, Stored) else array for name, array in tensors.items()}
    arrays = {name: np.asarray(array, order="C") for name, array in bits.items()}
    bfloat16 = {name for name, array in tensors.items() if isinstance(array, Stored) and array.bits.dtype == np.uint16}
    with written_beside(Path(path)) as temporary:
        if bfloat16:  # which the library's function for NumPy does not support
            _write_with_bfloat16(temporary, arrays, bfloat16)
            return
        try:
            # transformers only opens files with "format: pt", even if they are not from PyTorch.
            save_file(arrays, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # such as a full disk
            raise OSError(f"{path}: {error}") from error


def _write_with_bfloat16(path: Path, arrays: Mapping[str, np.ndarray], bfloat16: set[str]) -> None:
    """Write the length of the header in 8 bytes, the header in JSON, and the arrays; `bfloat16` names such arrays."""
    names = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    order, end = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0  # so that all are aligned
    for name in order:
        array = arrays[name]
        dtype, start, end = "BF16" if name in bfloat16 else names[array.dtype], end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            array = arrays[name]
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)
