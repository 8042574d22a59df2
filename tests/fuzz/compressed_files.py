"""Compressed networks with a right digest: heads that lie, tables, words, descriptions."""

from __future__ import annotations

import hashlib
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.training.compressed.quantization import on_grid
from dnnstack.training.inference.trained import Trained
from dnnstack.training.records.formats import dnnz as compressed
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.dnnz import compressed_bytes, read_compressed
from dnnstack.training.records.formats.dnnz_arrays import encode_array, encode_scaled
from dnnstack.training.records.formats.state import START
from hypothesis import strategies as st

from .drawing import changed, encoded, wrong_json
from .harness import Target
from .run_files import provenance


@cache
def _arrays() -> dict[str, np.ndarray]:
    weight = np.zeros((10, 784), np.float32)
    weight.flat[::37] = np.tile([0.5, -0.25, 0.5, 1.0], 53)
    return {"dense_1.weight": weight, "dense_1.bias": np.arange(10, dtype=np.float32)}


@cache
def _sound() -> bytes:
    return compressed_bytes(Checkpoint(Path("x"), START, provenance(), _arrays()))


def _sealed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def _put(text: bytes, arrays: bytes) -> bytes:
    packed = zlib.compress(text)
    head = compressed._HEAD.pack(compressed.VERSION, 0, len(packed), len(text) % (1 << 32))
    return _sealed(compressed.MAGIC + head + packed + arrays)


@cache
def _parts() -> tuple[dict[str, Any], bytes]:
    """The description, and the bytes of the arrays."""
    packed = compressed._HEAD.unpack_from(_sound(), len(compressed.MAGIC))[2]
    described = json.loads(zlib.decompress(_sound()[compressed._BEGIN :][:packed]))
    return described, _sound()[compressed._BEGIN + packed : -32]


def _array_seeds() -> list[bytes]:
    found = [b"".join(encode_array(a, (w,))[0] for a in _arrays().values()) for w in (1, 4, 8)]
    dense = on_grid(np.linspace(-1, 1, 7840, dtype=np.float32).reshape(10, 784))
    weight, bias = _arrays().values()
    scaled = [encode_scaled(each)[0] for each in (dense, on_grid(weight))]
    return [*found, *(each + encode_array(bias)[0] for each in scaled)]


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 3))
    described, arrays = _parts()
    if kind == 0:
        return draw(changed(lambda: [_sound()]))
    if kind == 1:
        return _sealed(draw(changed(lambda: [_sound()[:-32]])))
    if kind == 2:
        return _put(draw(encoded(wrong_json(described))), arrays)
    return _put(json.dumps(described).encode(), draw(changed(_array_seeds)))


def _read(data: bytes, folder: Path) -> None:
    path = folder / "w.dnnz"
    path.write_bytes(data)
    found = read_compressed(path)
    assert sum(cost.bytes for cost in found.costs.values()) < len(data)
    assert all(np.isfinite(array).all() for array in found.checkpoint.arrays.values())
    # What was read is written again as the same numbers.
    again = compressed._decoded(path, compressed_bytes(found.checkpoint))
    for name, array in found.checkpoint.learned().items():
        assert again.checkpoint.arrays[name].tobytes() == array.tobytes()
    Trained.of(found.checkpoint)


COMPRESSED_FILES = (Target("compressed", _read, _files(), lambda: [_sound()]),)
