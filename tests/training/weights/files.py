"""Safetensors files for the tests, written by hand so that they may be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def raw(header: Any, numbers: bytes = b"") -> bytes:
    """A file with this header, which need not be true, and these numbers."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def written(path: Path, **arrays: np.ndarray) -> Path:
    """A sound file of float32."""
    header, numbers = {}, b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array, np.float32).tobytes()
        end = len(numbers) + len(data)
        header[name.replace("__", ".")] = entry("F32", list(array.shape), len(numbers), end)
        numbers += data
    path.write_bytes(raw(header, numbers))
    return path
