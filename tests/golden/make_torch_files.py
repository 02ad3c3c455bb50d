"""Write tests/golden/torch_files/: small `torch.save` files, and the arrays a reader must find in them.

    python tests/golden/make_torch_files.py        (needs torch; the committed files came from torch 2.13.0)

The numbers are fixed; the bytes around them are not (the older layout names storages by memory address).
"""

from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parent / "torch_files"
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def tensors():
    grid = torch.arange(7 * 5 * 3, dtype=torch.float32).reshape(7, 5, 3) / 8 - 6
    tied = torch.arange(10, dtype=torch.float32).reshape(5, 2)
    state = {f"dtype.{name}": (torch.arange(11) * 23 - 117).to(getattr(torch, name)) for name in DTYPES}
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3.14159, 65504.0]
    state |= {f"special.{name}": torch.tensor(special).to(getattr(torch, name)) for name in DTYPES[:4]}
    state |= {
        "view.whole": grid,
        "view.offset": grid[2:5, 1:],
        "view.transposed": grid.permute(2, 0, 1),
        "view.stepped": grid[::3, ::2, 1],
        "view.diagonal": grid.as_strided((3, 5), (18, 4), 2),
        "view.windows": grid.flatten().unfold(0, 6, 2),  # overlapping
        "view.expanded": torch.tensor([[1.5], [2.5]]).expand(2, 7),  # stride 0
        "view.bfloat16": grid.bfloat16().transpose(0, 2)[1:],
        "view.bool": (grid > 0).transpose(0, 1)[:, 2::2],
        "zero_dim": torch.tensor(2.75),
        "zero_dim.view": grid[6, 4, 2],
        "zero_dim.int64": torch.tensor(-(2**62) - 1),
        "empty": torch.empty(0),
        "empty.shaped": torch.empty(3, 0, 2, dtype=torch.int64),
        "empty.view": grid[7:, 2:2],
        "tied.a": tied,
        "tied.b": tied,
        "parameter": torch.nn.Parameter(torch.linspace(-1, 1, 13)),
        "parameter.frozen": torch.nn.Parameter(tied.t(), requires_grad=False),
        "Größe ✓": torch.tensor([1.0]),
    }
    return state


def main():
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    state = tensors()
    torch.save(state, FOLDER / "zip.bin")
    torch.save(state, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    torch.save(state, FOLDER / "protocol4.bin", pickle_protocol=4)

    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))  # a real one, with _metadata
    torch.save(module.state_dict(), FOLDER / "module_zip.bin")
    torch.save(module.state_dict(), FOLDER / "module_legacy.bin", _use_new_zipfile_serialization=False)
    optimizer = {"step": 7, "average": torch.ones(17), "betas": [0.9, 0.999], "amsgrad": None}
    wrapped = {"epoch": 3, "optimizer": optimizer, "state_dict": module.state_dict()}
    torch.save(wrapped, FOLDER / "wrapped_legacy.bin", _use_new_zipfile_serialization=False)
    wrapped["model"] = wrapped.pop("state_dict")
    torch.serialization.set_crc32_options(False)
    torch.save(wrapped, FOLDER / "wrapped_no_checksums.bin")
    torch.serialization.set_crc32_options(True)

    for name, values in {"expected": state, "module_expected": module.state_dict()}.items():
        widened = {key: v.detach().float() if v.dtype == torch.bfloat16 else v for key, v in values.items()}
        arrays = {key: value.detach().contiguous().numpy() for key, value in widened.items()}
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)

    files = sorted(FOLDER.iterdir())
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
