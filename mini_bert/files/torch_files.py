"""Read the weights in a `pytorch_model.bin` without PyTorch, and without running anything the file says.

What such a file is. `torch.save` writes a *pickle*, which says what there is (names, shapes, where each
tensor begins), and *storages*, the numbers themselves as raw bytes. Two layouts are met in the wild:

    since PyTorch 1.6: an uncompressed zip        before: everything in a row
      archive/data.pkl    the pickle                magic       pickle of the number MAGIC
      archive/data/0      storage "0", raw          protocol    pickle of 1001
      archive/data/1      storage "1", raw          system      pickle of a dict: byte order, sizes of C types
      archive/byteorder   "little" (newer files)    the pickle
                                                    keys        pickle of a list: the storages' order
                                                    storages    each an 8-byte count, then raw bytes

A tensor is a window on a storage: element (i, j) is number offset + i·stride₀ + j·stride₁ of it. So a
transpose is the same storage with the strides exchanged, and tied weights are two names for one window.

Why pickle is dangerous. A pickle is no table but a program for a small stack machine. Most instructions push
plain values; two do the harm: GLOBAL fetches *any* Python object by name, REDUCE calls it. A file that says
`GLOBAL os.system, "rm -rf ~", REDUCE` does so the moment `pickle.load` opens it.

How to be safe. We run the program on a machine of our own, `PickleMachine`. Its GLOBAL knows only the names
in `GLOBALS`, and each stands for something here that can at most *describe* a tensor; any other name is
refused on sight. The arrays are built afterwards, every number checked against the bytes that are there.
(The usual remedy, `pickle.Unpickler` with a strict `find_class`, stops foreign names but not odd programs.
In Python 3.11 a tuple nested two million deep as the key of a dict still crashes the interpreter, and five
bytes that say "remember this as item 2³¹" ask for 32 GB. Here a key is a string, and the memory a dict.)
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

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how the older layout begins
LONGEST_PICKLE = 4 << 20  # bytes; BERT-base needs 40 thousand. One byte can cost us a dict of 64
RESAVE = "with PyTorch, save the bare tensors: torch.save(model.state_dict(), path)"
STUMBLES = (  # what a mangled file can make zipfile, pickletools or the code below stumble over
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, OSError, RuntimeError),
    *(zipfile.BadZipFile, struct.error, Warning),  # a warning, where warnings are errors
)


class TorchFileError(ValueError):
    """The file is damaged, cut short, of another kind, or holds something other than a dict of tensors."""


class UnsafeFileError(TorchFileError):
    """The file asks for a Python object, or for a pickle instruction, that weights have no need of."""


@dataclass(frozen=True)
class Storage:
    """Numbers somewhere in the file."""

    dtype: np.dtype
    key: str
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Tensor:
    """A window on a storage; offset and strides count numbers, not bytes."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


Parts = tuple[dict[str, Tensor], dict[str, np.ndarray]]  # tensors by name, storages by key


def load_torch_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a `pytorch_model.bin` by name: read-only arrays, views of storages read once each.

    bfloat16 comes back as float32, exactly. The tensors may lie one level down, under "state_dict" or
    "model". A file that is or holds anything else raises TorchFileError (a ValueError).
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
            return {name: window(tensor, storages, size) for name, tensor in tensors.items()}
        except TorchFileError as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None
        except STUMBLES as error:
            what = f"damaged or cut short ({type(error).__name__}: {str(error)[:200]}); fetch it again"
            raise TorchFileError(f"{os.fspath(path)}: {what}") from error


# ---- the two layouts


def read_zip(file: BinaryIO, size: int) -> Parts:
    """The layout since PyTorch 1.6."""
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: info for info in archive.infolist()}
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                name = info.filename[:100]
                raise TorchFileError(f"its {name!r} is compressed, which torch.save never does; {RESAVE}")
            info.CRC = info.CRC or None  # type: ignore[assignment]  # 0: saved without checksums
        if sum(info.file_size for info in archive.infolist()) > size:
            raise TorchFileError("its parts overlap, as in a zip bomb; do not trust where it came from")
        names = [name for name in records if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            kind = "NumPy's .npz" if any(name.endswith(".npy") for name in records) else "some other zip"
            raise TorchFileError(f"looks like {kind}, not like weights; {LOOK}")
        if records[names[0]].file_size > LONGEST_PICKLE:
            raise TorchFileError(f"its data.pkl is longer than {LONGEST_PICKLE:,} bytes; {RESAVE}")

        tensors = state_dict(PickleMachine(io.BytesIO(archive.read(names[0]))).run())
        folder, storages = names[0].removesuffix("data.pkl"), {}
        byteorder = records.get(folder + "byteorder")
        order: Literal["<", ">"] = ">" if byteorder and archive.read(byteorder) == b"big" else "<"
        for storage in {tensor.storage for tensor in tensors.values()}:
            record = records[f"{folder}data/{storage.key}"]
            require(record.file_size == storage.nbytes, "a storage of another size than its record")
            storages[storage.key] = numbers(archive.read(record), storage.dtype, order)
        return tensors, storages


def read_row(file: BinaryIO, size: int) -> Parts:
    """The layout before PyTorch 1.6: five pickles, then the storages."""
    machine = PickleMachine(io.BytesIO(file.read(LONGEST_PICKLE)))
    if machine.run() != MAGIC:
        raise TorchFileError(f"looks like a plain pickle, not written by torch.save; {RESAVE}")
    require(machine.run() == PROTOCOL, "an unknown protocol")
    machine.run()  # the system that wrote it; storages are little-endian whatever it was
    tensors, keys = state_dict(machine.run()), machine.run()
    wanted, storages = {tensor.storage.key for tensor in tensors.values()}, {}
    file.seek(machine.stream.tell())
    for key in keys:
        storage = machine.storages[text(key)]
        (count,) = struct.unpack("<Q", file.read(8))
        require(count == storage.count, "a storage of another size than told")
        require(file.tell() + storage.nbytes <= size, "a storage reaches past the end of the file")
        if key in wanted:
            storages[key] = numbers(file.read(storage.nbytes), storage.dtype, "<")
        else:
            file.seek(storage.nbytes, os.SEEK_CUR)
    return tensors, storages


def state_dict(loaded: Any) -> dict[str, Tensor]:
    """The dict of tensors in what the pickle described: at the top, or under one of two customary names."""
    inner = [loaded.get(name) for name in ("state_dict", "model")] if isinstance(loaded, dict) else []
    loaded = next((value for value in inner if isinstance(value, dict)), loaded)
    if not isinstance(loaded, dict):
        raise TorchFileError(f"holds a {type(loaded).__name__} instead of a dict of tensors; {RESAVE}")
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise TorchFileError(f"its {name[:100]!r} is a {type(value).__name__}, not a tensor; {RESAVE}")
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


def window(tensor: Tensor, storages: dict[str, np.ndarray], file_size: int) -> np.ndarray:
    """The tensor's view of its storage, once it is certain that its first and last element lie inside."""
    storage = storages[tensor.storage.key]
    offset, size, stride = tensor.offset, tensor.size, tensor.stride
    require(min(offset, *size, *stride, 0) == 0, "a tensor with a negative offset, size or stride")
    if 0 in size:
        return np.ndarray(size, storage.dtype, storage[:0])
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    require(last < storage.size, "a tensor reaches outside its storage")
    if math.prod(size) > file_size:  # a stride of 0 repeats a number at no cost, until the array is copied
        raise TorchFileError(f"has {file_size:,} bytes and a tensor of more elements; {RESAVE}")
    strides = tuple(step * storage.itemsize for step in stride)
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, strides)


# ---- the pickle: a program that may describe tensors, and nothing else


def rebuild_tensor(storage, offset, size, stride, requires_grad=False, hooks=None, metadata=None) -> Tensor:
    require(isinstance(storage, Storage), "a tensor without a storage")
    require(type(size) is type(stride) is tuple, "a tensor of no clear shape")
    require(len(size) == len(stride) <= 32, "a tensor of no clear shape")
    require(all(type(n) is int for n in (offset, *size, *stride)), "a tensor of no clear shape")
    if metadata:
        raise TorchFileError(f"has a tensor that is stored negated or conjugated; {RESAVE}")
    return Tensor(storage, offset, size, stride)


BFLOAT16 = np.dtype("u2")  # NumPy has no bfloat16: its 16 bits go as u2, which has no other use here
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
    """Runs the pickles of a stream, one each `run`, with only the instructions that weights are made of."""

    def __init__(self, stream: io.BytesIO):
        self.stream = stream
        self.storages: dict[str, Storage] = {}  # all that were mentioned, by key

    def run(self) -> Any:
        stack: list[Any] = []
        below: list[list[Any]] = []  # what lay on the stack before each MARK
        memo: dict[int, Any] = {}
        argument: Any
        for instruction, argument, _ in pickletools.genops(self.stream):
            match instruction.name:
                case "PROTO" | "FRAME":
                    pass
                case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                    stack.append(argument)
                case "BINUNICODE" | "SHORT_BINUNICODE":
                    stack.append(argument)
                case "NONE":
                    stack.append(None)
                case "NEWTRUE" | "NEWFALSE":
                    stack.append(instruction.name == "NEWTRUE")
                case "EMPTY_DICT":
                    stack.append({})
                case "EMPTY_LIST":
                    stack.append([])
                case "EMPTY_TUPLE":
                    stack.append(())
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
                    stack.append(function(*arguments))  # of GLOBALS: nothing else here can be called
                case "BINPERSID":
                    stack.append(self.storage(stack.pop()))
                case "BUILD":  # attributes of the object below (`_metadata`, versions of modules): dropped
                    stack.pop()
                case "STOP":
                    return stack.pop()
                case name:
                    refuse(f"for the pickle instruction {name} ({str(argument)[:100]!r})")

    def storage(self, reference: Any) -> Storage:
        """("storage", type, key, device, count), in the older layout also None: a storage to read later."""
        require(type(reference) is tuple and len(reference) in (5, 6), "a reference of no clear meaning")
        kind, dtype, key, _, count, *view = reference
        require(kind == "storage" and not any(view), "a reference to something other than a storage")
        require(isinstance(dtype, np.dtype), "a storage of no clear type")
        require(type(count) is int and count >= 0, "a storage of no clear size")
        storage = Storage(dtype, text(key), count)
        require(self.storages.setdefault(key, storage) == storage, "a storage described in two ways")
        return storage


def known(name: str) -> Any:
    return GLOBALS[name] if name in GLOBALS else refuse(f"for the Python object {name[:100]!r}")


def text(value: Any) -> str:
    if type(value) is not str:
        raise TorchFileError(f"holds a {type(value).__name__} where a name should be; {RESAVE}")
    return value


# ---- saying no


def require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(complaint)


def refuse(wish: str) -> NoReturn:
    raise UnsafeFileError(
        f"asks {wish}, of which weights have no need. This reader builds arrays and nothing else, and ran "
        f"nothing of it. If you trust whoever made the file: {RESAVE}"
    )


LOOK = "look for the model's model.safetensors or pytorch_model.bin"
FOREIGN = {  # (position, bytes found there): what the file looks like, what to try
    (0, b"version https://git-lfs"): "a Git LFS pointer to the weights; run `git lfs pull` in its folder",
    (0, b"<"): "a web page, perhaps a failed download; fetch the file itself",
    (0, b"\x93NUMPY"): f"a NumPy array; {LOOK}",
    (0, b"\x1f\x8b"): "a gzip archive; unpack it first",
    (0, b"\x89HDF"): f"an HDF5 file of Keras or TensorFlow; {LOOK}",
    (8, b"{"): "a safetensors file; name it model.safetensors",
    (257, b"ustar"): "a tar archive; unpack it or, if PyTorch 0.1 wrote it, save it anew with a later one",
}


def foreign(head: bytes) -> str:
    if not head:
        return "is empty; fetch it again"
    for (position, mark), description in FOREIGN.items():
        if head[position:].startswith(mark):
            return f"looks like {description}"
    return f"looks like {'text' if min(head) >= 9 else 'nothing we know'}, not like weights; {LOOK}"
