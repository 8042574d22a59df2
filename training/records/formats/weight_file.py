"""A file of weights that anybody may have written: its arrays by name, as float32.

What torch.save has written is read in ``pytorch_file``, all else as safetensors: eight bytes,
little-endian, with the length of a JSON header; the header, which gives each array its type, its
shape, and the place of its numbers; then the numbers, without gaps.
Source: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Len, MaxLen

from ....common.errors import CheckpointError, explaining
from ....common.files import sha256_bytes
from ....common.records import dataclass
from ....common.text import cut
from ....common.typed_json import Count, Name, from_json
from .record import read_whole
from .stored_array import BITS, MOST_ARRAYS, StoredArray

# Bytes of a header, as in a checkpoint.
LONGEST_HEADER = 1 << 26
_LONGEST_REASON = 600
_ZIP, _PICKLES = b"PK\x03\x04", (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_CONVERSION = (
    "torch.load(..., weights_only=True) and safetensors.torch.save_file (dnnstack help finetuning)"
)


@dataclass(frozen=True)
class _Entry:
    dtype: Annotated[str, MaxLen(20)]
    shape: Annotated[tuple[Count, ...], MaxLen(16)]
    data_offsets: Annotated[tuple[Count, ...], Len(2, 2)]


@dataclass(frozen=True)
class WeightFile:
    """The arrays of a file by name; ``metadata`` are the texts that its writer added."""

    path: Path
    sha256: str
    arrays: Mapping[str, StoredArray]
    metadata: Mapping[str, str]


def read_weight_file(path: Path) -> WeightFile:
    """The file of safetensors or of torch.save that a user named; a link is followed.

    Raises CheckpointError: for a file that is missing, damaged, or of another format. Of a file of
    torch.save only tensors are read, and nothing is run; a bare pickle is refused.
    """
    # Only here, since few starts read files of others.
    from .pytorch_file import torch_arrays

    with explaining(path, "cannot be read"):
        data = read_whole(path.resolve(), LONGEST_HEADER)
        if data.startswith(_ZIP):
            data = read_whole(path.resolve())
    if data.startswith(_PICKLES):
        raise CheckpointError(
            f"{path}: is a pickle of PyTorch before 1.6, or of another program, by its first "
            "bytes; reading a pickle can run any program, so it is refused; convert it to "
            f"safetensors: {_CONVERSION}"
        )
    is_torch = data.startswith(_ZIP)
    try:
        arrays, metadata = (torch_arrays(data), {}) if is_torch else _parsed(data)
    except ValueError as error:
        named = is_torch or path.suffix in (".pth", ".pt")
        what = "file of weights that torch.save has written" if named else "safetensors file"
        raise CheckpointError(
            f"{path}: is damaged, or is not a {what}: {cut(str(error), _LONGEST_REASON)}; fetch it "
            "again, and compare its SHA-256 with the one that its source gives"
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


def _parsed(data: bytes) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """Raises ValueError that says what is wrong."""
    header = header_of(data)
    table = from_json(header, dict[str, Any])
    metadata = from_json(json.dumps(table.pop("__metadata__", {})), dict[str, str])
    if len(table) > MOST_ARRAYS:
        raise ValueError(f"it has {len(table)} arrays")
    entries = from_json(json.dumps(table), dict[Name, _Entry])
    numbers = memoryview(data)[8 + len(header) :]
    found, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, stop = entry.data_offsets
        bits = BITS.get(entry.dtype)
        if bits is None:
            raise ValueError(f"'{cut(name, 80)}' has the unknown type {entry.dtype!r}")
        if begin != end or (stop - begin) * 8 != prod(entry.shape) * bits:
            raise ValueError(f"the place of '{cut(name, 80)}' does not fit its shape {entry.shape}")
        found[name] = StoredArray(entry.dtype, entry.shape, numbers[begin:stop])
        end = stop
    if end != len(numbers):
        raise ValueError(f"it has {len(numbers)} bytes of numbers, and its header says {end}")
    return {name: found[name] for name in entries}, metadata
