"""Read the weights in a `pytorch_model.bin` without PyTorch, and without running code from the file.

The format. `torch.save` writes a *pickle*, which describes the content (names, shapes, where each tensor begins), and
*storages*, the numbers themselves as raw bytes. There are two layouts:

    since PyTorch 1.6: an uncompressed zip        before: the parts in sequence
      archive/data.pkl    the pickle                magic       pickle of the number MAGIC
      archive/data/0      storage "0", raw          protocol    pickle of 1001
      archive/data/1      storage "1", raw          system      pickle of a dict: byte order, sizes of C types
      archive/byteorder   "little" (newer files)    the pickle
                                                    keys        pickle of a list: the storages' order
                                                    storages    each an 8-byte count, then raw bytes

A tensor is a view of a storage: element (i, j) is number offset + i·stride₀ + j·stride₁ of it. So a transpose is the
same storage with the strides exchanged, and tied weights are two names for one view.

Why pickle is dangerous. A pickle is a program for a small stack machine. Most instructions push plain values, but
GLOBAL looks up *any* Python object by name and REDUCE calls it. A file with `GLOBAL os.system, "rm -rf ~", REDUCE`
deletes your files as soon as `pickle.load` opens it.

How this reader is safe. It runs the program on its own machine, `PickleMachine`. GLOBAL accepts only the names in
`GLOBALS`, which at most *describe* a tensor; any other name is refused. The arrays are built afterwards, and every
number is checked against the size of the file. (The usual solution, `pickle.Unpickler` with a strict `find_class`,
refuses foreign names but not malicious programs. In Python 3.11 a tuple nested two million deep as a dict key still
crashes the interpreter, and five bytes that store a value as memo item 2³¹ allocate 32 GB. Here keys are strings and
the memo a dict.)
"""

import io
import math
import os
import pickletools
import struct
import zipfile
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np

__all__ = ["TorchFileError", "UnsafeFileError", "load_torch_file"]

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # the beginning of the older layout
LONGEST_PICKLE = 4 << 20  # bytes; BERT-base needs 40 thousand. One byte can create a dict of 64 bytes
RESAVE = "with PyTorch, save only the tensors: torch.save(model.state_dict(), path)"
DAMAGE = (  # exceptions that a damaged file can cause in zipfile, pickletools or the code below
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, OSError, RuntimeError),
    *(zipfile.BadZipFile, struct.error, Warning),  # a warning, if warnings are errors
)


class TorchFileError(ValueError):
    """The file is damaged, truncated, of another type, or contains something other than a dict of tensors."""


class UnsafeFileError(TorchFileError):
    """The file uses a Python object or a pickle instruction that weights do not need."""


@dataclass(frozen=True)
class Storage:
    """A block of numbers in the file."""

    dtype: np.dtype
    key: str
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; offset and strides count numbers, not bytes."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


Parts = tuple[dict[str, Tensor], dict[str, np.ndarray]]  # tensors by name, storages by key


def load_torch_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a `pytorch_model.bin` by name: read-only arrays, views of storages read once each.

    bfloat16 becomes float32, without loss. The tensors may be one level down, under "state_dict" or "model". Any other
    content raises TorchFileError (a ValueError).
    """
    with open(path, "rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            head = file.read(512)
            file.seek(0)
            if head.startswith(b"PK\3\4"):
                tensors, storages = read_zip(file, size)
            elif head.startswith(b"\x80"):  # PROTO, the first instruction of every pickle since Python 2.3
                tensors, storages = read_row(file, size)
            else:
                raise TorchFileError(foreign(head))
            return {name: view(tensor, storages, size) for name, tensor in tensors.items()}
        except TorchFileError as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None
        except DAMAGE as error:
            what = f"damaged or truncated ({type(error).__name__}: {str(error)[:200]}); download it again"
            raise TorchFileError(f"{os.fspath(path)}: {what}") from error


# ---- the two layouts


def read_zip(file: BinaryIO, size: int) -> Parts:
    """The layout since PyTorch 1.6."""
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: info for info in archive.infolist()}
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                name = info.filename[:100]
                raise TorchFileError(f"{name!r} is compressed, which torch.save never does; {RESAVE}")
            info.CRC = info.CRC or None  # type: ignore[assignment]  # 0: saved without checksums
        if sum(info.file_size for info in archive.infolist()) > size:
            raise TorchFileError("its parts overlap, as in a zip bomb; do not trust its source")
        names = [name for name in records if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            raise TorchFileError(f"is a zip archive without weights; {LOOK}")
        if records[names[0]].file_size > LONGEST_PICKLE:
            raise TorchFileError(f"its data.pkl is longer than {LONGEST_PICKLE:,} bytes; {RESAVE}")

        tensors = state_dict(PickleMachine(io.BytesIO(archive.read(names[0]))).run())
        folder, storages = names[0].removesuffix("data.pkl"), {}
        byteorder = records.get(folder + "byteorder")
        order: Literal["<", ">"] = ">" if byteorder and archive.read(byteorder) == b"big" else "<"
        for storage in {tensor.storage for tensor in tensors.values()}:
            record = records[f"{folder}data/{storage.key}"]
            require(record.file_size == storage.nbytes, "a storage whose size differs from its record")
            storages[storage.key] = numbers(archive.read(record), storage.dtype, order)
        return tensors, storages


def read_row(file: BinaryIO, size: int) -> Parts:
    """The layout before PyTorch 1.6: pickles, then the storages."""
    machine = PickleMachine(io.BytesIO(file.read(LONGEST_PICKLE)))
    if machine.run() != MAGIC:
        raise TorchFileError(f"looks like a plain pickle that torch.save did not write; {RESAVE}")
    require(machine.run() == PROTOCOL, "an unknown protocol")
    machine.run()  # the system that wrote it; storages are little-endian whatever it was
    tensors, keys = state_dict(machine.run()), machine.run()
    wanted, storages = {tensor.storage.key for tensor in tensors.values()}, {}
    file.seek(machine.stream.tell())
    for key in keys:
        storage = machine.storages[text(key)]
        (count,) = struct.unpack("<Q", file.read(8))
        require(count == storage.count, "a storage of unexpected size")
        require(file.tell() + storage.nbytes <= size, "a storage reaches past the end of the file")
        if key in wanted:
            storages[key] = numbers(file.read(storage.nbytes), storage.dtype, "<")
        else:
            file.seek(storage.nbytes, os.SEEK_CUR)
    return tensors, storages


def state_dict(loaded: Any) -> dict[str, Tensor]:
    """The dict of tensors in the loaded object: the object itself, or its "state_dict" or "model"."""
    inner = [loaded.get(name) for name in ("state_dict", "model")] if isinstance(loaded, dict) else []
    loaded = next((value for value in inner if isinstance(value, dict)), loaded)
    if not isinstance(loaded, dict):
        raise TorchFileError(f"contains a {type(loaded).__name__} instead of a dict of tensors; {RESAVE}")
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise TorchFileError(f"{name[:100]!r} is of type {type(value).__name__}, not a tensor; {RESAVE}")
    return loaded


# ---- from bytes to arrays


def numbers(raw: bytes, dtype: np.dtype, order: Literal["<", ">"]) -> np.ndarray:
    """A storage's bytes as a read-only array in this computer's byte order."""
    stored = np.frombuffer(raw, dtype.newbyteorder(order))
    if dtype == BFLOAT16:  # the upper half of a float32
        array = np.left_shift(stored, 16, dtype=np.uint32).view(np.float32)
    elif dtype == np.bool_:
        array = stored.view(np.uint8) != 0  # whatever the byte, a proper True or False
    else:
        array = stored.astype(dtype, copy=False)
    array.flags.writeable = False
    return array


def view(tensor: Tensor, storages: dict[str, np.ndarray], file_size: int) -> np.ndarray:
    """The tensor as a view of its storage, after a check that its first and last element are inside."""
    storage = storages[tensor.storage.key]
    offset, size, stride = tensor.offset, tensor.size, tensor.stride
    require(min(offset, *size, *stride, 0) == 0, "a tensor with a negative offset, size or stride")
    if 0 in size:
        return np.ndarray(size, storage.dtype, storage[:0])
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    require(last < storage.size, "a tensor reaches outside its storage")
    if math.prod(size) > file_size:  # a stride of 0 repeats a number, which takes memory when the array is copied
        raise TorchFileError(f"has {file_size:,} bytes but a tensor with more elements than that; {RESAVE}")
    strides = tuple(step * storage.itemsize for step in stride)
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, strides)


# ---- the pickle: a program that can only describe tensors


def rebuild_tensor(storage, offset, size, stride, requires_grad=False, hooks=None, metadata=None) -> Tensor:
    require(isinstance(storage, Storage), "a tensor without a storage")
    require(type(size) is type(stride) is tuple, "a tensor without a valid shape")
    require(len(size) == len(stride) <= 32, "a tensor without a valid shape")
    require(all(type(n) is int for n in (offset, *size, *stride)), "a tensor without a valid shape")
    if metadata:
        raise TorchFileError(f"has a tensor that is stored negated or conjugated; {RESAVE}")
    return Tensor(storage, offset, size, stride)


BFLOAT16 = np.dtype("u2")  # NumPy has no bfloat16: its 16 bits are read as u2, which has no other use here
FLOATS = {"Double": "f8", "Float": "f4", "Half": "f2", "BFloat16": "u2"}
INTEGERS = {"Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1", "Byte": "u1", "Bool": "?"}
GLOBALS: dict[str, Any] = {
    "collections.OrderedDict": lambda: {},
    "torch.Size": lambda size: size,
    "torch._utils._rebuild_parameter": lambda tensor, requires_grad, hooks: tensor,
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor,
    **{f"torch.{name}Storage": np.dtype(dtype) for name, dtype in (FLOATS | INTEGERS).items()},
}


class PickleMachine:
    """Runs the pickles of a stream, one with each `run`, with only the instructions that weights need."""

    def __init__(self, stream: io.BytesIO):
        self.stream = stream
        self.storages: dict[str, Storage] = {}  # all that are mentioned, by key

    def run(self) -> Any:
        stack: list[Any] = []
        below: list[list[Any]] = []  # the stack before each MARK
        memo: dict[int, Any] = {}
        argument: Any
        for instruction, argument, _ in pickletools.genops(self.stream):
            match instruction.name:
                case "PROTO" | "FRAME":
                    pass
                case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE" | "SHORT_BINUNICODE":
                    stack.append(argument)
                case "NONE" | "NEWTRUE" | "NEWFALSE":
                    stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction.name])
                case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                    stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[instruction.name]())
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    items = [stack.pop() for _ in range(int(instruction.name[-1]))]
                    stack.append(tuple(reversed(items)))
                case "MARK":
                    below.append(stack)
                    stack = []
                case "TUPLE":
                    items, stack = stack, below.pop()
                    stack.append(tuple(items))
                case "APPEND":
                    item = stack.pop()
                    stack[-1].append(item)
                case "APPENDS":
                    items, stack = stack, below.pop()
                    stack[-1].extend(items)
                case "SETITEM":
                    value, key = stack.pop(), stack.pop()
                    stack[-1].update({text(key): value})
                case "SETITEMS":
                    items, stack = stack, below.pop()
                    stack[-1].update(zip(map(text, items[::2]), items[1::2], strict=True))
                case "BINPUT" | "LONG_BINPUT":
                    memo[argument] = stack[-1]
                case "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(memo[argument])
                case "GLOBAL":
                    stack.append(known(argument.replace(" ", ".", 1)))
                case "STACK_GLOBAL":
                    name, module = stack.pop(), stack.pop()
                    stack.append(known(f"{text(module)}.{text(name)}"))
                case "REDUCE":
                    arguments, function = stack.pop(), stack.pop()
                    require(type(arguments) is tuple, "a call without arguments")
                    stack.append(function(*arguments))  # one of GLOBALS: nothing else on the stack can be called
                case "BINPERSID":
                    stack.append(self.storage(stack.pop()))
                case "BUILD":  # sets attributes of the object below (`_metadata`, module versions): ignored
                    stack.pop()
                case "STOP":
                    return stack.pop()
                case name:
                    refuse(f"the pickle instruction {name} ({str(argument)[:100]!r})")

    def storage(self, reference: Any) -> Storage:
        """("storage", type, key, device, count), in the older layout followed by None: a storage to read later."""
        require(type(reference) is tuple and len(reference) in (5, 6), "an invalid reference")
        kind, dtype, key, _, count, *view = reference
        require(kind == "storage" and not any(view), "a reference to something other than a storage")
        require(isinstance(dtype, np.dtype), "a storage without a valid type")
        require(type(count) is int and count >= 0, "a storage without a valid size")
        storage = Storage(dtype, text(key), count)
        require(self.storages.setdefault(key, storage) == storage, "a storage described in two ways")
        return storage


def known(name: str) -> Any:
    return GLOBALS[name] if name in GLOBALS else refuse(f"the Python object {name[:100]!r}")


def text(value: Any) -> str:
    if type(value) is not str:
        raise TorchFileError(f"contains a value of type {type(value).__name__}, expected a name; {RESAVE}")
    return value


# ---- errors


def require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(complaint)


def refuse(what: str) -> NoReturn:
    raise UnsafeFileError(f"uses {what}, which weights do not need. No code was run. If you trust the file: {RESAVE}")


LOOK = "look for the model's model.safetensors or pytorch_model.bin"
FOREIGN = {  # (position, bytes there): what the file looks like, what to do
    (0, b"version https://git-lfs"): "a Git LFS pointer to the weights; run `git lfs pull` in its folder",
    (0, b"<"): "a web page, perhaps a failed download; download the file again",
    (8, b"{"): "a safetensors file; name it model.safetensors",
}


def foreign(head: bytes) -> str:
    if not head:
        return "is empty; download it again"
    for (position, mark), description in FOREIGN.items():
        if head[position:].startswith(mark):
            return f"looks like {description}"
    return f"{'looks like text' if min(head) >= 9 else 'is of an unknown type'}, not weights; {LOOK}"
