"""Files of other programs, from which a network takes its first weights, and calibrations."""

from __future__ import annotations

import json
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.datasets import Downloads
from dnnstack.training.records.formats import calibration
from dnnstack.training.records.formats.calibration import Calibration
from dnnstack.training.weights import hub
from dnnstack.training.weights.source import open_source
from dnnstack.training.weights.start import begin
from hypothesis import strategies as st
from safetensors.numpy import save

from ..support import torch_files
from .drawing import changed, encoded, wrong_json
from .harness import Target

_SHAPES = {
    "conv1.weight": (2, 1, 2, 2),
    "layer1.block_0.bn1.running_var": (2,),
    "layer2.block_0.downsample.conv.weight": (2, 2, 1, 1),
    "fc.weight": (3, 8),
}
_NAMES = (
    *("conv1.weight", "layer1.0.bn1.running_var", "layer2.0.downsample.0.weight", "fc.weight"),
    *("module.fc.weight", "head.fc.weight", "fc6.weight", "bn1.num_batches_tracked", "x" * 2000),
    *("layer1.0", "layer.0.x", "layer1.9999999999999999999.x", "", ".", "__metadata__", "\x1b[31m"),
)
_TYPES = ("F32", "F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E4M3", "F4", "C64", "X", "")
_WIDTHS = {"F16": 2, "BF16": 2, "F64": 8, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "C64": 8}


def _put(entries: list[tuple[str, str, tuple[int, ...]]], fill: bytes) -> bytes:
    """A file with arrays of these names, types and shapes, one behind the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, kind, shape in entries:
        size = int(np.prod(shape, dtype=np.int64)) * _WIDTHS.get(kind, 4)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return _sealed(json.dumps(header).encode(), (fill * at)[:at])


def _sealed(header: bytes, numbers: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + numbers


@cache
def _sound() -> bytes:
    shapes = ((2, 1, 2, 2), (2,), (2, 2, 1, 1), (3, 8))
    entries = [(name, "F32", shape) for name, shape in zip(_NAMES[:4], shapes, strict=True)]
    return _put(entries, struct.pack("<f", 0.5))


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return draw(changed(lambda: [_sound()]))
    if kind == 1:
        (length,) = struct.unpack("<Q", _sound()[:8])
        header = json.loads(_sound()[8 : 8 + length])
        return _sealed(draw(encoded(wrong_json(header))), _sound()[8 + length :])
    one = st.tuples(
        st.sampled_from(_NAMES),
        st.sampled_from(_TYPES),
        st.sampled_from((*_SHAPES.values(), (3, 2, 2, 2), (), (0,), (1,) * 20)),
    )
    fill = draw(st.sampled_from((b"\0", b"\xff", b"\x80", struct.pack("<f", 0.5), b"\x00\x7f")))
    return _put(draw(st.lists(one, max_size=6, unique_by=lambda each: each[0])), fill)


def _read(data: bytes, folder: Path) -> None:
    path = folder / "w.safetensors"
    path.write_bytes(data)
    start = begin(open_source(str(path), folder / "runs", str), _SHAPES, ())
    assert {name: array.shape for name, array in start.values.items()}.items() <= _SHAPES.items()
    assert all(np.isfinite(array).all() for array in start.values.values())
    assert {*start.values, *(each.name for each in start.new)} == set(_SHAPES)
    said = start.lines()
    assert len(said) <= 40
    assert all(len(line) <= 600 for line in said)
    json.dumps(start.to_json(), allow_nan=False)


# Instructions of pickles: sound ones, calls of what may not run, memory, depth and size.
_SOUND = torch_files.tensor(torch_files.storage("Float", 24), 0, (3, 8), (8, 1))
_STEPS = (
    *(_SOUND, torch_files.MAPPING + b")R", torch_files.TENSOR, torch_files.PARAMETER, b"}", b"]"),
    *(b"(", b")", b"t", b"\x85", b"\x86", b"\x87", b"u", b"s", b"e", b"a", b"R", b"b", b"Q", b"N"),
    *(b"cos\nsystem\n" + torch_files.plain("touch ran") + b"\x85R", b"cbuiltins\neval\n", b"0"),
    *(b"(S'touch ran'\nios\nsystem\n", b"cnumpy\nload\n", b"\x81", b"2", b"1", b"Pkey\n", b"\x93"),
    *(b"q\x00", b"h\x00", b"r\xff\xff\xff\x7f", b"\x94", b"h\x00h\x00\x86q\x00" * 60, b"." * 3),
    *(b"](" * 4000 + b"e" * 3999, b"(" * 9000, b")\x85" + b"\x85" * 9000, b"\x8b\xff\xff\xff\x7f"),
    *(b"\x8b\x00\x10\x00\x00" + b"\x7f" * 4096, b"I" + b"9" * 5000 + b"\n", b"\x8a\xff1"),
    *(b"X\xff\xff\xff\x7f", torch_files.plain("\ud800"), b"\x82\x01", b"B\xff\xff\xff\xffx", b"}("),
)
_NUMBERS = (0, 1, 2, 8, 24, -1, 2**31, 2**48, 2**63, 2**70, True, 0.5, None, "0", (3, 8), [3])


@st.composite
def _tensors(draw: st.DrawFn) -> bytes:
    """A tensor, of whose type, count, entry, offset, shape and strides up to two are others."""
    given: list[Any] = ["Float", 24, "0", 0, (3, 8), (8, 1)]
    number = st.sampled_from(_NUMBERS)
    others = (
        *(st.sampled_from(("Half", "BFloat16", "Long", "Bool", "X")), number),
        *(st.sampled_from(("1", "../0", 0)), number),
        *(st.lists(number, max_size=4).map(tuple) | number,) * 2,
    )
    for place in draw(st.lists(st.integers(0, 5), max_size=2)):
        given[place] = draw(others[place])
    return torch_files.tensor(torch_files.storage(*given[:3]), *given[3:])


@st.composite
def _torch_files(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(changed(lambda: [torch_files.REAL.read_bytes(), _sound_torch()]))
    if kind == 1:
        steps = draw(st.lists(st.sampled_from(_STEPS) | st.binary(max_size=4), max_size=12))
        pickled = b"".join(steps)
    elif kind == 2:
        pickled = draw(changed(lambda: [torch_files.mapping(conv=_SOUND, model=b"}")]))
    else:
        pickled = torch_files.mapping(
            **{"fc.weight": draw(_tensors()), "fc.bias": draw(_tensors())}
        )
    how = draw(st.sampled_from((0,) * 9 + (zipfile.ZIP_DEFLATED,)))
    order = draw(st.sampled_from((b"little", b"big", b"?", b"\0" * 1_000_000)))
    numbers = draw(st.binary(min_size=8, max_size=8)) * 12
    entries = {"data/0": numbers, "byteorder": order}
    return torch_files.torch_file(pickled, entries, how)


@cache
def _sound_torch() -> bytes:
    pickled = torch_files.mapping(**{"fc.weight": _SOUND})
    return torch_files.torch_file(pickled, {"data/0": struct.pack("<f", 0.5) * 24})


_PIN = {"commit": "c" * 40, "sha256": "0" * 64, "bytes": 9}
_CARD = {"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.2] * 3, "input_size": [3, 64, 64]}}


def _read_said(data: bytes, folder: Path) -> None:
    """What a hub has said, as either of the files that keep it."""
    (folder / "config.json").write_bytes(data)
    known = hub.pretrained_beside(folder / "w.safetensors")
    assert known is None or np.isfinite(known.preprocessing.scale).all()
    (folder / "cache" / "weights" / "org" / "model").mkdir(parents=True)
    (folder / "cache" / "weights" / "org" / "model" / "pin.json").write_bytes(data)
    if known is None:
        hub.from_hub("org/model", Downloads(offline=True))


_SAID = Calibration("0" * 64, 0.9, 20, 0.95, (0.5, 0.4), (0.1, 0.05))


def _calibration(text: str, arrays: dict[str, np.ndarray]) -> bytes:
    """A file with the digest that belongs to it."""
    return save(arrays, {"dnnstack": text, "sha256": calibration._digest(text, arrays)})


@cache
def _sound_calibrations() -> list[bytes]:
    shapes = {"centres": (3, 4), "moments": (5,), "whitening": (4, 4)}
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return [_calibration(json.dumps(vars(_SAID)), each) for each in (arrays, {})]


@st.composite
def _calibrations(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(changed(_sound_calibrations))
    one = st.sampled_from(((3, 4), (4, 4), (5,), (0,), (0, 4), (), (2, 3, 4), (9, 4)))
    value = st.sampled_from((0.0, 1.0, -1.0, 1e38, np.nan, np.inf))
    names = st.sampled_from(("centres", "moments", "whitening", "other"))
    drawn = draw(st.dictionaries(names, st.tuples(one, value), max_size=4))
    arrays = {name: np.full(shape, each, np.float32) for name, (shape, each) in drawn.items()}
    text = draw(wrong_json(vars(_SAID)).filter(str.isascii) | st.just(json.dumps(vars(_SAID))))
    return _calibration(text, arrays)


def _read_calibration(data: bytes, folder: Path) -> None:
    calibration.trust_path(folder / "step-1.safetensors").write_bytes(data)
    found = calibration.read_trust(folder / "step-1.safetensors", "0" * 64, 3, 4)
    assert 0.05 <= found.calibration.temperature <= 20
    if found.arrays:
        pair = np.zeros((2, 4), np.float32), np.ones((2, 3), np.float32)
        assert calibration.familiarity_of(*pair, found.arrays).shape == (2,)


WEIGHT_FILES = (
    Target("weights", _read, _files(), lambda: [_sound()]),
    Target("pytorch", _read, _torch_files(), lambda: [_sound_torch()]),
    Target(
        "hub",
        _read_said,
        encoded(wrong_json(_PIN) | wrong_json(_CARD)),
        lambda: [json.dumps(_CARD).encode()],
    ),
    Target("calibration", _read_calibration, _calibrations(), _sound_calibrations),
)
