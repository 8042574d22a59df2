"""The ``.dnnz`` file: a trained network with its config, as docs/compressed.md describes it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import zlib
from dataclasses import field, replace
from math import isfinite, prod
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval, Len, MaxLen

from ....backends.tuning import Tuning
from ....common.errors import CheckpointError, explaining
from ....common.files import atomic_write, open_regular
from ....common.machine import main_memory
from ....common.records import dataclass
from ....common.targets import Kind
from ....common.typed_json import Count, Name, from_json
from ....datasets.columns import Columns
from ....datasets.integer_pixels import Depth
from ....graph.ops import Quantization
from ...preprocessing import Preprocessing
from .calibration import COLDEST, HOTTEST
from .checkpoint import Checkpoint
from .dnnz_arrays import WORKING_BYTES, Cost, decode_array, encode_array, encode_scaled
from .provenance import Provenance, Side
from .record import read_whole
from .state import START

_LOG = logging.getLogger("dnnstack.training")
SUFFIX = ".dnnz"
MAGIC = b"\x89DNNZ\r\n\x1a"
VERSION, QUANTIZED_VERSION = 1, 2
# Version, unused, bytes of the compressed description, and of its text.
_HEAD = struct.Struct("<HHII")
_BEGIN, _DIGEST = len(MAGIC) + _HEAD.size, 32
_LONGEST_TEXT, _MOST_ARRAYS, _MOST_AXES = 1 << 24, 1 << 16, 16
# Bytes of arrays that a byte of a file may stand for: one weight in a thousand takes two bytes.
MOST_TIMES = 1 << 12
_LONGEST_REASON = 200
_OPTIONAL = ("pixel_bits", "kind", "floats", "columns")


@dataclass(frozen=True)
class _Described:
    """What a file says of its arrays and of their network."""

    arrays: Annotated[tuple[tuple[Name, Annotated[tuple[Count, ...], MaxLen(_MOST_AXES)]], ...],
                      MaxLen(_MOST_ARRAYS)]  # fmt: skip
    step: Count
    steps_per_epoch: Annotated[int, Interval(ge=1, le=1 << 53)]
    config: str
    dataset: Name
    input_shape: Annotated[tuple[Side, ...], Len(3, 3)]
    classes: Annotated[tuple[Name, ...], Len(1, 1 << 20)]
    preprocessing: Preprocessing
    quantization: Annotated[dict[Name, Quantization], MaxLen(_MOST_ARRAYS)] = field(
        default_factory=dict
    )
    pixel_bits: Depth = 16
    kind: Kind = "class"
    floats: bool = False
    columns: Columns | None = None
    temperature: Annotated[float, Interval(ge=COLDEST, le=HOTTEST)] = 1.0


@dataclass(frozen=True)
class Compressed:
    """A compressed network as a checkpoint; ``costs``: what each array takes of ``bytes``.

    ``seconds``: how long it took to read the file, to verify it and to decode the arrays.
    """

    checkpoint: Checkpoint
    costs: dict[str, Cost]
    bytes: int
    seconds: float


def is_compressed(path: Path) -> bool:
    """Whether the file of this name begins as a compressed network does."""
    try:
        with os.fdopen(open_regular(path.resolve()), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, RuntimeError):
        return False


def compressed_bytes(trained: Checkpoint, widths: tuple[int, ...] = ()) -> bytes:
    """The file of a checkpoint's parameters and statistics, or of their averages if it has any.

    widths: of gaps, see ``encode_array``.
    """
    arrays, origin = dict(sorted(trained.learned().items())), trained.provenance
    described = {
        "arrays": [[name, array.shape] for name, array in arrays.items()],
        "step": trained.state.step,
        "steps_per_epoch": origin.steps_per_epoch,
        "config": origin.config,
        "dataset": origin.dataset,
        "input_shape": origin.input_shape,
        "classes": origin.classes,
        "preprocessing": vars(origin.preprocessing),
    }
    said = origin.to_json()
    described |= {key: said[key] for key in _OPTIONAL if key in said}
    if trained.temperature != 1.0:
        described["temperature"] = trained.temperature
    version, encode = VERSION, encode_array
    if trained.quantization:
        version, encode = QUANTIZED_VERSION, encode_scaled
        described["quantization"] = {n: vars(each) for n, each in trained.quantization.items()}
    text = json.dumps(described, separators=(",", ":"), allow_nan=False).encode()
    packed = zlib.compress(text, 9)
    pieces = [MAGIC, _HEAD.pack(version, 0, len(packed), len(text)), packed]
    pieces += [encode(array, widths)[0] for array in arrays.values()]
    content = b"".join(pieces)
    return content + hashlib.sha256(content).digest()


def save_compressed(trained: Checkpoint, path: Path, widths: tuple[int, ...] = ()) -> Compressed:
    """Write the file, after decoding it again to the same bits; returns what was decoded.

    A file that is there is replaced at once or not at all. Raises CheckpointError.
    """
    data = compressed_bytes(trained, widths)
    found = _decoded(path, data)
    for name, array in trained.learned().items():
        again = found.checkpoint.arrays[name]
        if np.ascontiguousarray(array).tobytes() != again.tobytes():
            raise CheckpointError(f"{path}: is not written: '{name}' would not be the same again")
    with explaining(path, "cannot be written", "name a file in another folder"):
        atomic_write(path, data)
    return found


def read_compressed(path: Path) -> Compressed:
    """The network of a file, verified. Raises CheckpointError with one line."""
    begin = perf_counter()
    try:
        data = read_whole(path.resolve())
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    found = replace(_decoded(path, data), seconds=perf_counter() - begin)
    rate = 4e-6 * sum(cost.size for cost in found.costs.values()) / max(found.seconds, 1e-9)
    _LOG.info("%s: %d bytes read, decoded with %.0f MB/s", path, len(data), rate)
    return found


def _decoded(path: Path, data: bytes) -> Compressed:
    if not data.startswith(MAGIC):
        raise CheckpointError(f"{path}: is not a compressed network of dnnstack")
    if len(data) < _BEGIN + _DIGEST:
        raise CheckpointError(f"{path}: is damaged: it ends within its head")
    version, unused, packed, length = _HEAD.unpack_from(data, len(MAGIC))
    if version not in (VERSION, QUANTIZED_VERSION):
        raise CheckpointError(
            f"{path}: has version {version}, but this version of dnnstack reads {VERSION} and "
            f"{QUANTIZED_VERSION}"
        )
    content = memoryview(data)[:-_DIGEST]
    if hashlib.sha256(content).digest() != data[-_DIGEST:]:
        raise CheckpointError(
            f"{path}: is damaged: its content does not match its SHA-256; copy it again"
        )
    try:
        if unused:
            raise ValueError("an unused number is not 0")
        found = _parsed(path, content, packed, length)
        if bool(found.checkpoint.quantization) != (version == QUANTIZED_VERSION):
            raise ValueError("its version is not that of what it contains")
        return found
    except ValueError as error:
        reason = str(error)[:_LONGEST_REASON]
        raise CheckpointError(
            f"{path}: is not a compressed network of dnnstack: {reason}"
        ) from None


def _parsed(path: Path, content: memoryview, packed: int, length: int) -> Compressed:
    """Raises ValueError that says what is wrong."""
    begin = perf_counter()
    said = from_json(_inflated(content[_BEGIN:][:packed], length), _Described)
    shapes = dict(said.arrays)
    scaling = said.preprocessing
    if not np.isfinite((*scaling.scale, *scaling.shift)).all():
        raise ValueError("its preprocessing is not finite")
    for each in said.quantization.values():
        if not (isfinite(each.scale) and each.scale > 0):
            raise ValueError("a scale is not above 0")
    if len(shapes) != len(said.arrays):
        raise ValueError("two arrays have one name")
    sizes = [prod(shape) for shape in shapes.values()]
    largest = max(sizes, default=0)
    if 4 * sum(sizes) > MOST_TIMES * len(content):
        raise ValueError(f"its arrays would take more than {MOST_TIMES} times its bytes")
    if WORKING_BYTES * largest + 4 * sum(sizes) > main_memory():
        raise ValueError("its arrays would take more than this machine's memory")
    arrays: dict[str, Any] = {}
    costs: dict[str, Cost] = {}
    rest = content[_BEGIN + packed :]
    for name, shape in shapes.items():
        arrays[name], costs[name] = decode_array(rest, shape)
        rest = rest[costs[name].bytes :]
    if len(rest):
        raise ValueError("bytes follow the last array")
    origin = Provenance(
        steps_per_epoch=said.steps_per_epoch,
        config=said.config,
        dataset=said.dataset,
        input_shape=said.input_shape,
        classes=said.classes,
        preprocessing=scaling,
        tuning=Tuning(""),
        versions={},
        **{key: getattr(said, key) for key in _OPTIONAL},
    )
    sha256 = hashlib.sha256(content).hexdigest()
    state = replace(START, step=said.step, window_start=said.step)
    checkpoint = Checkpoint(
        path, state, origin, arrays, sha256, said.quantization, said.temperature
    )
    size = len(content) + _DIGEST
    return Compressed(checkpoint, costs, size, perf_counter() - begin)


def _inflated(packed: memoryview, length: int) -> bytes:
    """A text of ``length`` bytes. Raises ValueError."""
    if length > _LONGEST_TEXT:
        raise ValueError("its description is too long")
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, length + 1)
    except zlib.error:
        raise ValueError("its description cannot be decompressed") from None
    if len(text) != length or not inflater.eof or inflater.unused_data:
        raise ValueError("its description does not have the length that it should have")
    return text
