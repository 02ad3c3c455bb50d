"""Reading torch.save's files: their tensors are read bit for bit, and no file can do anything else.

The golden files come from torch itself (tests/golden/make_torch_files.py); the malicious ones are assembled below,
instruction by instruction.
"""

import gzip
import importlib.metadata
import io
import itertools
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert.files.torch_files import MAGIC, TorchFileError, UnsafeFileError, load_torch_file

GOLDEN = Path(__file__).parents[1] / "golden" / "torch_files"
CONTENTS = {  # golden file: the arrays it holds
    "zip.bin": "expected.npz",
    "legacy.bin": "expected.npz",
    "protocol4.bin": "expected.npz",
    "module_zip.bin": "module_expected.npz",
    "module_legacy.bin": "module_expected.npz",
    "wrapped_legacy.bin": "module_expected.npz",
    "wrapped_no_checksums.bin": "module_expected.npz",
}
LAYOUTS = ["zip", "legacy"]


# ---- making files by hand


@dataclass
class Global:
    """GLOBAL: a Python object, by name."""

    name: str


class Call:
    """GLOBAL, then REDUCE: that object, called."""

    def __init__(self, name, *arguments):
        self.name, self.arguments = name, arguments


def storage(kind="Float", key="0", count=6, *more):
    return Reference(("storage", Global(f"torch.{kind}Storage"), key, "cpu", count, *more))


@dataclass
class Reference:
    """BINPERSID: something outside the pickle."""

    to: object


def tensor(offset=0, size=(2, 3), stride=(3, 1), of=None, more=()):
    more = more or (False, Call("collections.OrderedDict"))  # requires_grad, backward hooks
    return Call("torch._utils._rebuild_tensor_v2", of or storage(), offset, size, stride, *more)


def encode(value):
    """The pickle instructions that create a value; bytes stand for themselves."""
    match value:
        case bytes():
            return value
        case bool() | None:
            return {True: b"\x88", False: b"\x89", None: b"N"}[value]
        case int():
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(raw)]) + raw
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case tuple():
            return b"(" + b"".join(map(encode, value)) + b"t"
        case list():
            return b"](" + b"".join(map(encode, value)) + b"e"
        case dict():
            return b"}(" + b"".join(encode(k) + encode(v) for k, v in value.items()) + b"u"
        case Global(name):
            module, _, name = name.rpartition(".")
            return f"c{module}\n{name}\n".encode()
        case Call():
            return encode(Global(value.name)) + encode(value.arguments) + b"R"
        case Reference(to):
            return encode(to) + b"Q"


SIX = np.arange(6, dtype="<f4").tobytes()


def write(path, value, layout="zip", storages=None, counts=None, records=None, **zip_options):
    """A file of either layout that contains `value`; `storages` are raw bytes by key, by default six float32."""
    storages = {"0": SIX} if storages is None else storages
    program = b"\x80\x02" + encode(value) + b"."
    if layout == "zip":
        with zipfile.ZipFile(path, "w", **zip_options) as archive:
            for name, raw in {"data.pkl": program, **(records or {})}.items():
                archive.writestr(f"archive/{name}", raw)
            for key, raw in storages.items():
                archive.writestr(f"archive/data/{key}", raw)
    else:
        parts = [pickle.dumps(part, 2) for part in (MAGIC, 1001, {"little_endian": True})]
        parts += [program, pickle.dumps(list(storages), 2)]
        for key, raw in storages.items():
            parts += [struct.pack("<Q", (counts or {}).get(key, len(raw) // 4)), raw]
        path.write_bytes(b"".join(parts))
    return path


def refusal(path, kind=TorchFileError):
    """The text of the error; it always names the file."""
    with pytest.raises(kind) as caught:
        load_torch_file(path)
    assert type(caught.value) in (TorchFileError, UnsafeFileError)
    assert str(path) in str(caught.value)
    return str(caught.value)


def same(ours, expected):
    """Equal names, types, shapes and bits, including NaN and -0."""
    assert list(ours) == list(expected)
    for name, array in expected.items():
        assert (ours[name].dtype, ours[name].shape) == (array.dtype, array.shape), name
        assert ours[name].tobytes() == array.tobytes(), name


# ---- what torch saved comes out


@pytest.mark.parametrize("name", CONTENTS)
def test_golden_files_read_bit_for_bit(name):
    """Every dtype, view, parameter, 0-dimensional and empty tensor is the same as in torch, in both layouts."""
    with np.load(GOLDEN / CONTENTS[name], allow_pickle=False) as expected:
        same(load_torch_file(GOLDEN / name), dict(expected))


@pytest.mark.parametrize("name", ["zip.bin", "legacy.bin"])
def test_arrays_are_read_only_views_of_shared_storages(name):
    """Tied weights share memory, views share their storage, and neither can be written to by accident."""
    arrays = load_torch_file(str(GOLDEN / name))
    assert not any(array.flags.writeable for array in arrays.values())
    assert np.shares_memory(arrays["tied.a"], arrays["tied.b"])
    assert np.shares_memory(arrays["view.whole"], arrays["view.transposed"])
    with pytest.raises(ValueError, match="read-only"):
        arrays["tied.a"][0] = 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_made_by_hand_read(tmp_path, layout):
    """The files built in this module are valid, so the attacks below are refused only because of what they change."""
    older = (None,) if layout == "legacy" else ()
    of = storage("Float", "0", 6, *older)
    size = Call("torch.Size", (3, 2))
    value = {
        "a": tensor(of=of),
        "b": tensor(0, size, (1, 3), of=of),
        "c": Call("torch._utils._rebuild_tensor", of, 4, (2,), (1,)),
    }
    arrays = load_torch_file(write(tmp_path / "model.bin", value, layout))
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(arrays, {"a": numbers, "b": numbers.T.copy(), "c": numbers[1, 1:].copy()})


def test_big_endian_storages_come_out_in_native_order(tmp_path):
    """A zip with "big" in `byteorder` gives the same arrays, in this computer's byte order."""
    raw = {"0": np.arange(6, dtype=">f4").tobytes(), "1": b"\x3f\x80\xc0\x00"}
    value = {"a": tensor(), "b": tensor(0, (2,), (1,), storage("BFloat16", "1", 2))}
    arrays = load_torch_file(write(tmp_path / "model.bin", value, storages=raw, records={"byteorder": b"big"}))
    same(arrays, {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.array([1, -2], np.float32)})


def test_booleans_are_proper_whatever_the_byte(tmp_path):
    """A byte of 2 or 255 in a bool storage is True, not a bool that equals neither True nor False."""
    value = {"a": tensor(0, (4,), (1,), storage("Bool", "0", 4))}
    arrays = load_torch_file(write(tmp_path / "model.bin", value, storages={"0": b"\0\1\2\xff"}))
    assert arrays["a"].view(np.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("kind", ["Float", "BFloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_stays_near_the_size_of_the_weights(tmp_path, layout, kind):
    """Loading eight storages of 8 MB takes the memory of the arrays, plus about one storage at most."""
    count = 1 << 21
    width = 4 if kind == "Float" else 2
    value = {f"w{i}": tensor(0, (count,), (1,), storage(kind, str(i), count)) for i in range(8)}
    raw = {str(i): bytes(count * width) for i in range(8)}
    path = write(tmp_path / "model.bin", value, layout, raw, counts=dict.fromkeys(raw, count))
    tracemalloc.start()
    arrays = load_torch_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = sum(array.nbytes for array in arrays.values())
    assert held == 8 * count * 4
    assert peak < held + 1.3 * count * 4


# ---- nothing but arrays


def payloads(marker):
    """Programs that create a file if something runs them, and the name each refers to."""
    shell, python = f'echo > "{marker}"', f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Call("os.system", shell),
        f"{os.name}.system": Call(f"{os.name}.system", shell),
        "builtins.eval": Call("builtins.eval", python),
        "builtins.exec": Call("builtins.exec", python),
        "__builtin__.eval": Call("__builtin__.eval", python),
    }


@pytest.mark.parametrize("name", [*payloads("")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_code_in_a_file_is_refused_by_name_and_not_run(tmp_path, layout, name):
    """A working payload (pickle.loads runs it) is refused, the error names what it refers to, and nothing is run."""
    marker = tmp_path / "ran"
    payload = payloads(marker)[name]
    for value in ({"weight": tensor(), "bias": payload}, payload, {"a": {"b": [({"c": payload},)]}}):
        message = refusal(write(tmp_path / "model.bin", value, layout), UnsafeFileError)
        assert f"'{name}'" in message and "torch.save(model.state_dict(), path)" in message
        assert not marker.exists()
    pickle.loads(b"\x80\x02" + encode(payload) + b".")  # the control: the payload does work
    assert marker.exists()


INSTRUCTIONS = {
    "protocol 4 names": (b"\x8c\x02os\x8c\x06system\x93X\x01\0\0\0:\x85R", "'os.system'"),
    "INST": (b"(X\x01\0\0\0:ios\nsystem\n", "INST ('os system')"),
    "OBJ": (b"(cos\nsystem\nX\x01\0\0\0:o", "'os.system'"),
    "NEWOBJ": (b"cbuiltins\nobject\n)\x81", "'builtins.object'"),
    "NEWOBJ_EX": (b"ccollections\nOrderedDict\n)}\x92", "NEWOBJ_EX"),
    "EXT1": (b"\x82\x01", "EXT1"),
    "a name, never called": (b"cos\nsystem\n", "'os.system'"),
    "a dotted name": (
        b"\x8c\x0bcollections\x8c\x12OrderedDict.update\x93",
        "'collections.OrderedDict.update'",
    ),
    "a relative of an allowed name": (
        b"ctorch._utils\n_rebuild_tensor_v3\n",
        "'torch._utils._rebuild_tensor_v3'",
    ),
    "an unknown storage": (b"ctorch\nComplexFloatStorage\n", "'torch.ComplexFloatStorage'"),
    "PERSID": (b"Pos.system\n", "PERSID ('os.system')"),
    "numpy": (encode(Call("numpy._core.multiarray._reconstruct")), "'numpy._core.multiarray._reconstruct'"),
    "getattr": (encode(Call("builtins.getattr", "a", "b")), "'builtins.getattr'"),
    "a set": (b"\x8f", "EMPTY_SET"),
    "a bytearray of 2^40": (b"\x96" + struct.pack("<Q", 1 << 40), "damaged or truncated"),
    "a terminal escape": (b"cos\n\x1b[31m\n", "'os.\\x1b[31m'"),
}


@pytest.mark.parametrize("case", INSTRUCTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_instruction_reaches_a_foreign_object(tmp_path, layout, case):
    """Every way in which a pickle can name, create or look up an object is refused, and the error says which."""
    instructions, expected = INSTRUCTIONS[case]
    assert expected in refusal(write(tmp_path / "model.bin", {"weight": instructions}, layout))


def test_pickle_itself_is_never_asked(tmp_path, monkeypatch):
    """Loading works with Python's unpickler disabled, so it is never used."""
    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.delattr(pickle, name)
    assert load_torch_file(GOLDEN / "zip.bin") and load_torch_file(GOLDEN / "legacy.bin")


WRONG_CALLS = {
    "no arguments": Call("torch._utils._rebuild_tensor_v2"),
    "too many": tensor(more=(False, None, None, None, None)),
    "no storage": tensor(of="0"),
    "a storage type for a storage": tensor(of=Global("torch.FloatStorage")),
    "calling a storage type": Call("torch.FloatStorage", 10),
    "calling a string": encode("os.system") + encode(()) + b"R",
    "calling a tensor": encode(tensor()) + encode(()) + b"R",
    "arguments that are no tuple": encode(Global("torch.Size")) + encode([1]) + b"R",
    "a float for an offset": tensor(b"G" + struct.pack(">d", 0.0)),
    "True for an offset": tensor(True),
    "a string for a size": tensor(size="ab", stride="ab"),
    "nested sizes": tensor(size=((2, 3),), stride=((3, 1),)),
    "more sizes than strides": tensor(stride=(1,)),
    "a thousand dimensions": tensor(size=(1,) * 1000, stride=(1,) * 1000),
    "negated": tensor(more=(False, None, {"neg": True})),
    "a parameter of a string": Call("torch._utils._rebuild_parameter", "x", True, None),
    "OrderedDict of pairs": Call("collections.OrderedDict", [("weight", tensor())]),
    "a reference to a string": Reference("storage"),
    "a reference to a module": Reference(("module", "a", "b", "c", "d")),
    "a storage of a named type": Reference(("storage", "torch.FloatStorage", "0", "cpu", 6)),
    "a storage view": tensor(of=storage("Float", "0", 6, ("1", 0, 2))),
    "a storage of negative size": tensor(of=storage(count=-6)),
    "a storage with a number for a key": tensor(of=storage(key=0)),
    "a storage that is not there": tensor(of=storage(key="1")),
    "a storage in another folder": tensor(of=storage(key="../data/0")),
    "a storage of two types": b"".join(map(encode, [tensor(), "bias", tensor(of=storage("Int"))])),
    "SETITEMS on a string": encode("a") + b"(" + encode("b") * 2 + b"u",
    "APPENDS to a dict": b"}(" + encode("b") + b"e",
    "half a pair": b"}(" + encode("a") + b"u",
    "an empty stack": b"0" * 3,
    "no MARK": b"NtNt",
    "an unknown memo": b"h\x07",
}


@pytest.mark.parametrize("case", WRONG_CALLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_allowed_names_with_wrong_arguments_are_refused(tmp_path, layout, case):
    """Allowed names accept only the arguments that torch writes."""
    refusal(write(tmp_path / "model.bin", {"weight": WRONG_CALLS[case]}, layout))


OUTSIDE = {
    "offset past the end": tensor(6, (1,), (1,)),
    "one element too many": tensor(1, (2, 3), (3, 1)),
    "a stride too long": tensor(0, (2, 3), (4, 1)),
    "a negative stride": tensor(5, (6,), (-1,)),
    "a negative offset": tensor(-1, (2,), (1,)),
    "a negative size": tensor(0, (-2, -3), (3, 1)),
    "a negative size beside an empty one": tensor(0, (0, -3), (3, 1)),
    "0-dimensional, outside": tensor(6, (), ()),
    "sizes whose product wraps to 0 in 64 bits": tensor(0, (2**32, 2**32), (1, 1)),
    "strides that wrap to 0 in 64 bits": tensor(0, (2, 2), (2**64, 1)),
    "a stride of 2^62 bytes": tensor(0, (3,), (2**62,)),
    "a terabyte of one repeated number": tensor(0, (2**20, 2**20), (0, 0)),
    "a gigabyte by overlapping rows": tensor(0, (2**30, 1), (0, 1)),
    "an empty tensor too large for NumPy": tensor(0, (0, 2**62, 2**62), (1, 1, 1)),
}


@pytest.mark.parametrize("case", OUTSIDE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_tensor_reaches_outside_its_storage(tmp_path, layout, case):
    """Offsets, sizes and strides are checked against the size of the storage, in exact arithmetic."""
    refusal(write(tmp_path / "model.bin", {"weight": OUTSIDE[case]}, layout))


@given(
    offset=st.integers(-2, 8),
    dims=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 5)), max_size=3),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_window_is_right_or_refused(tmp_path, offset, dims):
    """Each element is number offset + Σ index·stride of the storage; if one lies outside, it is an error."""
    size, stride = tuple(n for n, _ in dims), tuple(step for _, step in dims)
    places = [
        offset + sum(i * step for i, step in zip(index, stride, strict=True))
        for index in itertools.product(*map(range, size))
    ]
    path = write(tmp_path / "model.bin", {"weight": tensor(offset, size, stride)})
    if min([offset, *stride]) < 0 or max(places, default=0) > 5:
        refusal(path)
    else:
        array = load_torch_file(path)["weight"]
        assert array.shape == size and array.ravel().tolist() == places


# ---- no absurd memory, no endless work


@pytest.mark.parametrize("layout", LAYOUTS)
def test_declared_sizes_are_checked_before_memory_is_taken(tmp_path, layout):
    """A storage that claims 2^40 numbers is refused, using no more than 8 MB on the way."""
    value = {"weight": tensor(of=storage(count=2**40))}
    path = write(tmp_path / "model.bin", value, layout, counts={"0": 2**40})
    tracemalloc.start()
    refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23


def test_compressed_records_are_refused(tmp_path):
    """torch.save never compresses, so a megabyte of zeros in a kilobyte is a zip bomb, wherever it is."""
    zeros = bytes(1 << 20)
    squeezed = write(
        tmp_path / "model.bin",
        {"weight": tensor(of=storage(count=1 << 18))},
        storages={"0": zeros},
        compression=zipfile.ZIP_DEFLATED,
    )
    assert squeezed.stat().st_size < 1 << 13
    assert "compressed" in refusal(squeezed)


def test_overlapping_records_are_refused(tmp_path):
    """A zip whose records are all the same bytes claims more than it has."""
    path = write(tmp_path / "model.bin", {"weight": tensor()}, storages={"0": SIX, "1": bytes(4000)})
    raw = path.read_bytes()
    entry, end = raw.rindex(b"PK\1\2"), raw.index(b"PK\5\6")  # the large record's entry is repeated
    fields = list(struct.unpack("<4s4H2LH", raw[end:]))
    fields[3] = fields[4] = fields[4] + 9
    fields[5] += 9 * (end - entry)
    path.write_bytes(raw[:end] + raw[entry:end] * 9 + struct.pack("<4s4H2LH", *fields))
    assert "overlap" in refusal(path)


def test_an_overlong_pickle_is_refused(tmp_path):
    """Pickles longer than four megabytes are not read: one byte of pickle can take a hundred bytes of memory."""
    value = {"weight": tensor(), "state": "x" * (5 << 20)}
    assert "longer than" in refusal(write(tmp_path / "model.bin", value))
    refusal(write(tmp_path / "model.bin", value, "legacy"))


LAUGHS = b")q\0" + b"h\0\x86q\0" * 60  # a tuple of two tuples of two tuples of ...: 2^60 leaves
WORK = {
    "a key whose hash visits 2^60 leaves": b"}(" + LAUGHS + b"Nu",
    "a key nested 400,000 deep": b"}(" + b")" + b"\x85" * 400_000 + b"Nu",
    "a size of 2^60 leaves": tensor(size=LAUGHS, stride=LAUGHS),
    "a storage key of 2^60 leaves": tensor(of=storage(key=LAUGHS)),
    "memo slot 2^32 - 1": b"Nr\xff\xff\xff\xff",
    "a frame of 2^63 bytes": b"\x95" + b"\xff" * 8,
    "a string of 2^32 - 1 bytes": b"X\xff\xff\xff\xff",
    "a list in itself": b"]q\0h\0a",
    "400,000 MARKs": b"(" * 400_000,
    "many references to one long tuple": b"(" + b"N" * 300_000 + b"tq\0" + b"h\0Q" * 300_000,
}


CHILD = """
import sys
from mini_bert.files.torch_files import TorchFileError, load_torch_file
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
except ImportError:  # Windows
    pass
for path in sys.argv[1:]:
    try:
        load_torch_file(path)
    except TorchFileError:
        continue
    raise SystemExit(f"{path} was read")
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_program_runs_long_crashes_or_fills_memory(tmp_path, layout):
    """Programs that hang, crash or exhaust the memory of Python's own unpickler end here with an error, within
    seconds."""
    paths = [write(tmp_path / f"{i}.bin", {"weight": value}, layout) for i, value in enumerate(WORK.values())]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": ".", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---- damaged files


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize("name", ["module_zip.bin", "module_legacy.bin", "wrapped_legacy.bin"])
def test_every_truncation_gives_the_clean_error(tmp_path, name, step):
    """Truncated after any byte, a file is refused with an error that names it, never with another exception."""
    whole, path = (GOLDEN / name).read_bytes(), tmp_path / "model.bin"
    for length in range(0, len(whole), step):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_truncated_empty_storage_is_noticed(tmp_path):
    """In the older layout the count of a last, empty storage must be there too."""
    value = {"weight": tensor(), "empty": tensor(0, (0,), (1,), storage(key="1", count=0))}
    path = write(tmp_path / "model.bin", value, "legacy", {"0": SIX, "1": b""})
    assert load_torch_file(path)["empty"].shape == (0,)
    for _ in range(8):
        path.write_bytes(path.read_bytes()[:-1])
        refusal(path)


@given(
    st.sampled_from(sorted(CONTENTS)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_gives_arrays_or_the_clean_error(tmp_path, name, flips):
    """Whatever bytes are changed, the result is arrays or TorchFileError."""
    raw = bytearray((GOLDEN / name).read_bytes())
    for place, change in flips:
        raw[int(place * len(raw))] ^= change
    path = tmp_path / "model.bin"
    path.write_bytes(raw)
    try:
        assert all(isinstance(array, np.ndarray) for array in load_torch_file(path).values())
    except TorchFileError as error:
        assert str(path) in str(error)


FRAGMENTS = [bytes([code]) for code in b"()]}t\x85\x86\x87aesuNRQb\x94"] + [b"q\0", b"h\0", b"q\1", b"h\1"]
FRAGMENTS += map(encode, ["storage", "0", "cpu", 0, 6, tensor(), storage()])
FRAGMENTS += [encode(Global(f"torch.{name}")) for name in ("FloatStorage", "Size", "_utils._rebuild_tensor")]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30), st.sampled_from(LAYOUTS))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_gives_arrays_or_the_clean_error(tmp_path, fragments, layout):
    """In whatever order the allowed instructions come, the result is arrays or TorchFileError."""
    path = write(tmp_path / "model.bin", b"".join(fragments), layout)
    try:
        assert all(isinstance(array, np.ndarray) for array in load_torch_file(path).values())
    except TorchFileError as error:
        assert str(path) in str(error)


def test_a_flipped_bit_in_the_weights_is_noticed(tmp_path):
    """The zip's checksums are compared, so weights that were corrupted in transfer are not used."""
    path = write(tmp_path / "model.bin", {"weight": tensor()})
    raw = path.read_bytes()
    path.write_bytes(raw.replace(SIX, SIX[:-1] + b"\0"))
    assert "CRC" in refusal(path)


# ---- other files


def archive(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tar(content=b"weights"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        info = tarfile.TarInfo("pytorch_model.bin")
        info.size = len(content)
        file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def npy():
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FOREIGN = {
    "empty": (b"", "is empty; download it again"),
    "safetensors": (
        struct.pack("<Q", len(HEADER)) + HEADER + bytes(4),
        "safetensors file; name it model.safet",
    ),
    "text": (b"once upon a time\n", "looks like text"),
    "web page": (b"<!doctype html><title>404</title>", "a web page"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "npy": (npy(), "is of an unknown type"),
    "npz": (archive(**{"a.npy": npy()}), "a zip archive without weights"),
    "zip": (archive(**{"word/document.xml": "<w/>"}), "a zip archive without weights"),
    "tar": (tar(), "is of an unknown type"),
    "gzip": (gzip.compress(b"weights"), "is of an unknown type"),
    "plain pickle": (pickle.dumps({"a": [1.5, None]}), "a plain pickle"),
    "pickled array": (pickle.dumps({"a": np.ones(3)}), "_reconstruct'"),
    "noise": (bytes(range(64)), "is of an unknown type"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files_are_recognised(tmp_path, kind):
    """For a file of another kind, the error names it, says what it looks like and what to try."""
    content, expected = FOREIGN[kind]
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    assert expected in refusal(path)


CONTENT = {
    "a list": ([tensor()], "contains a list"),
    "a tensor": (tensor(), "contains a Tensor instead of a dict"),
    "a number among tensors": ({"weight": tensor(), "epoch": 3}, "'epoch' is of type int, not a tensor"),
    "a dict among tensors": ({"weight": tensor(), "more": {}}, "'more' is of type dict"),
    "two levels down": ({"model": {"state_dict": {"weight": tensor()}}}, "'state_dict' is of type dict"),
    "a numbered tensor": ({7: tensor()}, "contains a value of type int, expected a name"),
}


@pytest.mark.parametrize("case", CONTENT)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_a_dict_of_named_tensors_is_taken(tmp_path, layout, case):
    """Anything that is not a tensor is refused by its name in the file."""
    value, expected = CONTENT[case]
    assert expected in refusal(write(tmp_path / "model.bin", value, layout))


def test_paths_that_cannot_be_opened_keep_their_error(tmp_path):
    """A missing file is a FileNotFoundError, a folder an OSError: Python's own message names the path."""
    with pytest.raises(FileNotFoundError, match="missing"):
        load_torch_file(tmp_path / "missing.bin")
    with pytest.raises(OSError):
        load_torch_file(tmp_path)


# ---- real files


def installed(package, name):
    """Files of an installed package, found without importing it."""
    try:
        files = importlib.metadata.distribution(package).files or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return [Path(str(file.locate())) for file in files if file.name == name]


@pytest.mark.peers
@pytest.mark.parametrize("package, count", [("rxnfp", 3), ("antiberty", 1)])
def test_real_weights_equal_torch_load(package, count):
    """Published BERT weights, in both layouts, are bit for bit what torch.load reads."""
    torch = pytest.importorskip("torch")
    paths = installed(package, "pytorch_model.bin")
    assert len(paths) == count
    for path in paths:
        expected = torch.load(path, map_location="cpu", weights_only=True)
        same(load_torch_file(path), {name: value.numpy() for name, value in expected.items()})


@pytest.mark.peers
@pytest.mark.parametrize("package, asked", [("rxnfp", "Namespace"), ("antiberty", "TrainingArguments")])
def test_real_files_with_objects_are_refused_by_name(package, asked):
    """Training arguments stored next to the weights are Python objects, and refused as such."""
    for path in installed(package, "training_args.bin"):
        assert asked in refusal(path, UnsafeFileError)
