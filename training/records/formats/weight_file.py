"""A safetensors file that anybody may have written: its arrays by name, as float32.

The format: eight bytes, little-endian, with the length of a JSON header; the header, which gives
each array its type, its shape, and the place of its numbers; then the numbers, without gaps.
Source: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Len, MaxLen
from numpy.typing import NDArray

from ....common.errors import CheckpointError, explaining
from ....common.files import sha256_bytes
from ....common.records import dataclass
from ....common.text import cut
from ....common.typed_json import Count, Name, from_json
from ....graph.graph import Shape
from .record import read_whole

# Bytes of a header, as in a checkpoint, and arrays in a file: large networks have some thousands.
LONGEST_HEADER, _MOST_ARRAYS = 1 << 26, 1 << 16
# Bits of a number of each type; the numbers of those in _NUMPY can be read.
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16}
_BITS |= {"U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "C64": 64}
_BITS |= {"I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_NUMPY = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}
_PICKLES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".tar")
_MARKS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
CONVERSION = (
    "torch.load(..., weights_only=True) and safetensors.torch.save_file (dnnstack help finetuning)"
)


@dataclass(frozen=True)
class _Entry:
    dtype: Annotated[str, MaxLen(20)]
    shape: Annotated[tuple[Count, ...], MaxLen(16)]
    data_offsets: Annotated[tuple[Count, ...], Len(2, 2)]


@dataclass(frozen=True)
class StoredArray:
    """An array of a file: its type there, its shape, and its bytes."""

    dtype: str
    shape: Shape
    data: memoryview

    @property
    def is_readable(self) -> bool:
        """Whether its numbers are of a floating-point type that float32 can stand for."""
        return self.dtype in _NUMPY

    def values(self) -> NDArray[np.float32]:
        """The numbers as float32; those of float64 are rounded, beyond its range to infinity."""
        stored = np.frombuffer(self.data, _NUMPY[self.dtype]).reshape(self.shape)
        if self.dtype == "BF16":
            # The upper half of a float32.
            return (stored.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return np.asarray(stored.astype(np.float32))


@dataclass(frozen=True)
class WeightFile:
    """The arrays of a file by name; ``metadata`` are the texts that its writer added."""

    path: Path
    sha256: str
    arrays: Mapping[str, StoredArray]
    metadata: Mapping[str, str]


def read_weight_file(path: Path) -> WeightFile:
    """The safetensors file that a user named; a link is followed.

    Raises CheckpointError: for a file that is missing, damaged, or of another format. Pickles are
    never read, because reading one can run any program.
    """
    if path.suffix.lower() in _PICKLES:
        raise _pickled(path)
    with explaining(path, "cannot be read"):
        data = read_whole(path.resolve(), LONGEST_HEADER)
    if data.startswith(_MARKS):
        raise _pickled(path)
    try:
        arrays, metadata = _parsed(data)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: is damaged, or is not a safetensors file: {error}; fetch it again, and "
            "compare its SHA-256 with the one that its source gives"
        ) from None
    return WeightFile(path, sha256_bytes(data), arrays, metadata)


def header_of(data: bytes) -> bytes:
    """The header of a safetensors file. Raises ValueError for what cannot be one."""
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < max(8, end):
        # The header is JSON.
        cut_off = data[8:9] == b"{"
        raise ValueError("it ends within its header" if cut_off else "it does not begin like one")
    return data[8:end]


def _pickled(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: is a pickle of PyTorch, by its name or its first bytes; reading a pickle can run "
        f"any program, so it is refused; convert it to safetensors: {CONVERSION}"
    )


def _parsed(data: bytes) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """Raises ValueError that says what is wrong."""
    header = header_of(data)
    table = from_json(header, dict[str, Any])
    metadata = from_json(json.dumps(table.pop("__metadata__", {})), dict[str, str])
    if len(table) > _MOST_ARRAYS:
        raise ValueError(f"it has {len(table)} arrays")
    entries = from_json(json.dumps(table), dict[Name, _Entry])
    numbers = memoryview(data)[8 + len(header) :]
    found, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, stop = entry.data_offsets
        bits = _BITS.get(entry.dtype)
        if bits is None:
            raise ValueError(f"'{cut(name, 80)}' has the unknown type {entry.dtype!r}")
        if begin != end or (stop - begin) * 8 != prod(entry.shape) * bits:
            raise ValueError(f"the place of '{cut(name, 80)}' does not fit its shape {entry.shape}")
        found[name] = StoredArray(entry.dtype, entry.shape, numbers[begin:stop])
        end = stop
    if end != len(numbers):
        raise ValueError(f"it has {len(numbers)} bytes of numbers, and its header says {end}")
    return {name: found[name] for name in entries}, metadata
