"""ONNX files: changed bytes, and messages with values that do not belong there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from dnnstack.imports.onnx_run import Wishes, import_network
from dnnstack.training.inference.trained import find_trained
from hypothesis import strategies as st

from .drawing import changed
from .harness import Target

_FOLDER = Path(__file__).resolve().parents[1] / "imports" / "onnx"
_NUMBERS = (0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**60, -(2**63), 2**63 - 1)
_WORDS = (
    *("", "x", "\x1b[31m", "../w", "/etc/passwd", "..", "SAME_UPPER", "SAME_LOWER", "VALID"),
    *("Add", "Concat", "Conv", "Identity", "Shape", "Gather", "Reshape", "Flatten", "Pad", "Cast"),
    *("Gemm", "MatMul", "MaxPool", "AveragePool", "ReduceMean", "Sub", "Softmax", "y" * 5000),
)


@cache
def _sound() -> list[bytes]:
    files = sorted(_FOLDER.glob("*.onnx"))
    return [path.read_bytes() for path in files if not path.with_suffix(".onnx.data").exists()]


def _places(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a message and of those in it, with the message that it is of."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                yield from _places(each)


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(changed(_sound))
    model = onnx.ModelProto.FromString(draw(st.sampled_from(_sound())))
    for _ in range(draw(st.integers(1, 4))):
        message, field = draw(st.sampled_from(list(_places(model))))
        held = getattr(message, field.name)
        floats = field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE)
        known: Any = (0.0, -1.0, 1e-40, 3e38, float("nan"), float("inf")) if floats else _NUMBERS
        known = _WORDS if field.type == field.TYPE_STRING else known
        known = [w.encode() for w in _WORDS] if field.type == field.TYPE_BYTES else known
        try:
            if not field.is_repeated:
                if field.message_type is None:
                    setattr(message, field.name, draw(st.sampled_from(known)))
            elif draw(st.booleans()):
                del held[draw(st.integers(0, len(held) - 1))]
            elif field.message_type is not None:
                held.add().CopyFrom(held[draw(st.integers(0, len(held) - 2))])
            else:
                held[draw(st.integers(0, len(held) - 1))] = draw(st.sampled_from(known))
        except (ValueError, IndexError):
            # No field of this type has the value.
            continue
    return model.SerializeToString()


def _read(data: bytes, folder: Path) -> None:
    path = folder / "net.onnx"
    path.write_bytes(data)
    found = import_network(path, Wishes(), folder / "runs", str)
    found.as_text()
    if found.run is not None:
        find_trained(str(found.run), None, folder, str)


ONNX_FILES = (Target("onnx", _read, _files(), _sound),)
