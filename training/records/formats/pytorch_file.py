"""The tensors in a file of torch.save, read without running anything of it.

Since PyTorch 1.6 such a file is a zip archive: ``data.pkl``, a pickle that describes the tensors,
and ``data/KEY``, the numbers of one storage each. A pickle is a program. The reader here follows
its instructions for lists, tuples, mappings and tensors; it imports nothing and calls nothing that
the pickle names. Source: https://docs.pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from dataclasses import replace
from math import prod
from typing import Any

from ....common.text import cut, listed
from .stored_array import BITS, MOST_ARRAYS, StoredArray

# Instructions of a pickle: a network of some thousand arrays has 100,000.
_MOST_STEPS = 1 << 21
_MOST_NUMBERS, _MOST_AXES, _LONGEST_NAME = 1 << 48, 16, 1000
_MAPPING = "collections.OrderedDict"
_TENSOR, _PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
_STORAGES = {
    f"torch.{kind}Storage": dtype
    for kind, dtype in (
        *(("Float", "F32"), ("Half", "F16"), ("BFloat16", "BF16"), ("Double", "F64")),
        *(("Long", "I64"), ("Int", "I32"), ("Short", "I16"), ("Char", "I8"), ("Byte", "U8")),
        ("Bool", "BOOL"),
    )
}
_KNOWN = {_MAPPING, _TENSOR, _PARAMETER, *_STORAGES}
_HOLDERS = ("ema", "state_dict", "model_state_dict", "model")
"""Where programs keep the weights among other things, averaged ones first."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_NEW = {"EMPTY_DICT": dict, "EMPTY_LIST": list}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINSTRING"),
    *("SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
}
_DAMAGED = "its pickle is damaged"
_LENGTHS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_FILLS = {"APPEND": 1, "APPENDS": None, "SETITEM": 2, "SETITEMS": None}
_PUTS, _GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")


def torch_arrays(data: bytes) -> dict[str, StoredArray]:
    """The tensors by name in a file of torch.save: those of a state_dict, or of one within.

    Raises ValueError that says in one line what is wrong.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            held = _Machine(_Archive(archive, len(data))).run()
    except (zipfile.BadZipFile, RuntimeError, OverflowError, OSError, EOFError) as error:
        raise ValueError(f"its zip archive is damaged: {error}") from None
    # As many may lie in each other; a mapping that holds itself ends here too.
    for _ in _HOLDERS:
        held = _inner(held)
    found = {name: each for name, each in held.items() if isinstance(each, StoredArray)}
    if not found:
        names = listed([_short(name) for name in held], 6)
        raise ValueError(f"it has no tensors by name{names and f', but {names}'}")
    if len(found) > MOST_ARRAYS:
        raise ValueError(f"it has {len(found)} tensors")
    for name in found:
        if not isinstance(name, str) or len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"{_short(name)} is no name of a tensor")
    return found


def _inner(held: Any) -> dict[Any, Any]:
    """The mapping that one mapping holds beside other things; itself if it holds none."""
    if not isinstance(held, dict):
        return {}
    return next((held[key] for key in _HOLDERS if isinstance(held.get(key), dict)), held)


def _short(name: object) -> str:
    return f"'{cut(name[:200], 80)}'" if isinstance(name, str) else type(name).__name__


class _Archive:
    """The entries of the zip archive by their names in its one folder, each read once."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        roots = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise ValueError(f"its zip archive has {len(roots)} entries data.pkl, not one")
        # Otherwise a short file could stand for long ones.
        if sum(member.compress_size for member in archive.infolist()) > size:
            raise ValueError("entries of its zip archive overlap")
        self._archive, self._root = archive, roots[0].removesuffix("data.pkl")
        self._read: dict[str, bytes] = {}
        # PyTorch before 2.1 does not say it.
        said = self._root + "byteorder" in archive.namelist()
        self.order = ">" if said and self.content("byteorder") == b"big" else "<"

    def content(self, name: str) -> bytes:
        """The bytes of an entry. Raises ValueError, and what zipfile does."""
        if name not in self._read:
            try:
                member = self._archive.getinfo(self._root + name)
            except KeyError:
                raise ValueError(f"its zip archive has no entry {_short(name)}") from None
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"its entry {_short(name)} is compressed")
            self._read[name] = self._archive.read(member)
        return self._read[name]


class _Machine:
    """Follows the instructions of a pickle. The values that it makes are Python's own and ours."""

    def __init__(self, archive: _Archive) -> None:
        self._archive = archive
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._kept: dict[int, Any] = {}

    def run(self) -> Any:
        """What the pickle describes. Raises ValueError."""
        pickle = self._archive.content("data.pkl")
        for step, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if step == _MOST_STEPS:
                raise ValueError(f"its pickle has more than {_MOST_STEPS:,} instructions")
            self._do(opcode.name, argument)
        return self._take(1)[0]

    def _do(self, name: str, argument: Any) -> None:
        push = self._stack.append
        if name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _NEW:
            push(_NEW[name]())
        elif name in _VALUES:
            push(argument)
        elif name in _PUTS or name == "MEMOIZE":
            (top,) = self._take(1)
            push(top)
            self._kept[len(self._kept) if argument is None else argument] = top
        elif name in _GETS:
            if argument not in self._kept:
                raise ValueError(_DAMAGED)
            push(self._kept[argument])
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name in _LENGTHS or name == "TUPLE":
            push(tuple(self._take(_LENGTHS.get(name))))
        elif name in _FILLS:
            self._fill(self._take(_FILLS[name]))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            push(_known(*(self._take(2) if argument is None else argument.split(" ", 1))))
        elif name == "REDUCE":
            push(self._called(*self._take(2)))
        elif name == "BINPERSID":
            push(self._storage(*self._take(1)))
        elif name == "BUILD":
            # The attributes of a state_dict: the versions of its modules, which say nothing here.
            self._take(1)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"its pickle has the instruction {name}, which no tensor needs")

    def _take(self, count: int | None) -> list[Any]:
        """The last values of the stack; without a count, those since the last mark."""
        floor = self._marks[-1] if self._marks else 0
        begin = floor if count is None else len(self._stack) - count
        if begin < floor or (count is None and not self._marks):
            raise ValueError(_DAMAGED)
        if count is None:
            self._marks.pop()
        taken = self._stack[begin:]
        del self._stack[begin:]
        return taken

    def _fill(self, values: list[Any]) -> None:
        """Put values into the list, or keys and values into the mapping, before them."""
        (held,) = self._take(1)
        if isinstance(held, list):
            held.extend(values)
        # A key of tuples in tuples can take for ever to hash.
        elif isinstance(held, dict) and all(type(key) in (str, int) for key in values[::2]):
            if len(values) % 2:
                raise ValueError(_DAMAGED)
            held.update(zip(values[::2], values[1::2], strict=True))
        else:
            raise ValueError("its pickle fills what is neither a list nor a mapping of names")
        self._stack.append(held)

    def _called(self, name: Any, given: Any) -> Any:
        """What torch.save lets these few functions make."""
        if not isinstance(name, str) or name not in _KNOWN or not isinstance(given, tuple):
            raise ValueError(_DAMAGED)
        if name == _MAPPING and not given:
            return {}
        if given and isinstance(given[0], StoredArray):
            if name == _PARAMETER:
                return given[0]
            if name == _TENSOR and len(given) in (6, 7) and given[0].strides is None:
                return _tensor(*given[:4])
        raise ValueError(f"its pickle calls {name} with other arguments than torch.save writes")

    def _storage(self, place: Any) -> StoredArray:
        """The numbers in a row that ("storage", type, key, device, count) stands for."""
        if not isinstance(place, tuple) or len(place) != 5:
            raise ValueError(_DAMAGED)
        _, kind, key, _, count = place
        dtype = _STORAGES.get(kind) if isinstance(kind, str) else None
        if dtype is None or not isinstance(key, str) or type(count) is not int:
            raise ValueError(_DAMAGED)
        data = self._archive.content(f"data/{key}")
        if len(data) * 8 != count * BITS[dtype]:
            raise ValueError(f"its entry {_short(f'data/{key}')} has {len(data):,} bytes")
        return StoredArray(dtype, (count,), memoryview(data), order=self._archive.order)


def _known(module: Any, name: Any) -> str:
    """The name of what a pickle refers to; it is only compared."""
    whole = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else ""
    if whole not in _KNOWN:
        raise ValueError(
            f"its pickle names {_short(whole)}, of which no tensor is made, and nothing of it is "
            "run (save model.state_dict() alone)"
        )
    return whole


def _tensor(storage: StoredArray, offset: Any, shape: Any, strides: Any) -> StoredArray:
    """The numbers of a storage from ``offset`` on, so many apart along each axis."""
    fine = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) <= _MOST_AXES
    sizes = (offset, *shape, *strides) if fine and len(shape) == len(strides) else (None,)
    if not all(type(each) is int and 0 <= each <= _MOST_NUMBERS for each in sizes):
        raise ValueError("the shape of a tensor is none")
    (count,) = storage.shape
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    # Numbers that are named more than once would make a small file large.
    if prod(shape) > count or (prod(shape) and last >= count):
        raise ValueError(f"a tensor {shape} reaches beyond the {count} numbers that it is of")
    begin = offset * BITS[storage.dtype] // 8
    return replace(storage, shape=shape, data=storage.data[begin:], strides=strides)
