"""An ONNX file that anybody may have written: its nodes, its arrays, what it says of its classes.

The format is protobuf (https://onnx.ai/onnx/repo-docs/IR.html); the package onnx checks it: nodes
are in order, each gives something new, and its attributes are those of its operator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from ..common.files import sha256_bytes
from ..common.options import LARGEST
from ..common.records import dataclass
from ..common.text import cut
from ..common.typed_json import Name, from_json
from ..training.records.formats.record import read_whole

_MOST_NODES, _MOST_DIMENSIONS, _WIDEST = 20_000, 8, 80
# The first in which all broadcast as NumPy does; the last whose operators were looked at.
_OPSETS = range(7, 27)
_STANDARD = ("", "ai.onnx")
# float, uint8, int8, int32, int64, bool, float16, double, bfloat16.
_TYPES, _BYTE = (1, 2, 3, 6, 7, 9, 10, 11, 16), 2
_CLASS = re.compile(r"(\d{1,9}): *(?:'([^']*)'|\"([^\"]*)\")")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Node:
    """An operation; of its outputs the first, the others are of no use to a trained network.

    ``attributes``: with the defaults of the operator; numbers are finite, and no longer than those
    of a config.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        return f"'{cut(self.name, _WIDEST)}' ({cut(self.op, _WIDEST)})"


@dataclass(frozen=True)
class Input:
    """An input of a network: the sizes of its axes, None where the file leaves them open."""

    name: str
    shape: tuple[int | None, ...]
    bytes: bool


@dataclass(frozen=True)
class OnnxFile:
    """What a file holds. ``arrays``: float32 or int64; ``weights``: the names of those that are no
    constants of nodes. ``classes``: their names, if the file has them. ``said``: its metadata."""

    path: Path
    sha256: str
    nodes: tuple[Node, ...]
    arrays: Arrays
    weights: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    classes: tuple[str, ...]
    said: Mapping[str, str]


def read_onnx(path: Path) -> OnnxFile:
    """Read the file that a user named, and those beside it that hold its arrays.

    Raises CheckpointError, also where the package onnx is not installed.
    """
    try:
        from google.protobuf.message import DecodeError
        from onnx import ModelProto, checker
    except ImportError:
        raise CheckpointError(
            f"{path}: cannot be read without the package onnx: pip install 'dnnstack[onnx]'"
        ) from None
    try:
        data = read_whole(path.resolve())
        model = ModelProto.FromString(data)
        return _read(path, sha256_bytes(data), model)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except DecodeError:
        raise CheckpointError(
            f"{path}: is damaged, or is not an ONNX file; weights without a network can begin a "
            "training (dnnstack help finetuning)"
        ) from None
    except checker.ValidationError as error:
        reason = cut(str(error).partition("\n")[0], 3 * _WIDEST)
        raise CheckpointError(f"{path}: is damaged, or is not an ONNX file: {reason}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read(path: Path, sha256: str, model: Any) -> OnnxFile:
    """Raises ValueError with what is wrong, and the checker's ValidationError."""
    from onnx import checker

    graph = model.graph
    if len(graph.node) > _MOST_NODES:
        raise ValueError(f"has {len(graph.node):,} nodes, more than {_MOST_NODES:,}")
    opset = next((o.version for o in model.opset_import if o.domain in _STANDARD), 0)
    if model.opset_import and opset not in _OPSETS:
        raise ValueError(
            f"is of opset {opset}, but those from {_OPSETS[0]} to {_OPSETS[-1]} are read; export "
            "it with one of these"
        )
    beside: dict[str, bytes] = {}
    arrays = {each.name: _array(each, path, beside) for each in graph.initializer}
    checker.check_model(model)
    weights = tuple(name for name, each in arrays.items() if each.dtype == np.float32)
    inputs = [
        Input(
            each.name,
            tuple(d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim),
            kind.elem_type == _BYTE,
        )
        for each in graph.input
        if each.name not in arrays
        for kind in (each.type.tensor_type,)
    ]
    nodes = []
    for each in graph.node:
        attributes = _attributes(each, opset, path)
        values = [value for value in attributes.values() if value is not None]
        output, op = next(iter(each.output), ""), each.op_type
        if not output:
            continue
        if op == "Constant" and len(values) == 1 and not isinstance(values[0], bytes):
            kind = np.float32 if isinstance(values[0], float) else None
            arrays[output] = np.asarray(values[0], kind)
            continue
        op = op if each.domain in _STANDARD else f"{each.domain}.{op}"
        nodes.append(Node(op, each.name or output, (*each.input,), output, attributes))
    results = tuple(each.name for each in graph.output)
    said = {each.key: each.value for each in model.metadata_props}
    found = (path, sha256, (*nodes,), arrays, weights, (*inputs,), results)
    return OnnxFile(*found, _classes(said), said)


def _attributes(node: Any, opset: int, path: Path) -> dict[str, Any]:
    """Those of a node; None is what it leaves out without a default, or what no layer needs."""
    from onnx import AttributeProto, defs, helper

    if node.domain not in _STANDARD:
        return {}
    known = defs.get_schema(node.op_type, opset).attributes.values()
    given = {a.name: a for a in node.attribute}
    found: dict[str, Any] = {}
    value: Any
    for each in known:
        attribute = given.get(each.name, each.default_value)
        kind, value = attribute.type, None
        if kind == AttributeProto.TENSOR:
            value = _array(attribute.t, path, {})
        elif kind in (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.INTS):
            value = helper.get_attribute_value(attribute)
            if any(not abs(v) <= LARGEST for v in np.atleast_1d(value).tolist()):
                shown = cut(node.name or node.op_type, _WIDEST)
                raise ValueError(f"node '{shown}': its {each.name} is too large")
            # As short as it was written.
            value = float(str(np.float32(value))) if kind == AttributeProto.FLOAT else value
        elif kind == AttributeProto.STRING:
            value = attribute.s
        found[each.name] = value
    return found


def _array(tensor: Any, path: Path, beside: dict[str, bytes]) -> NDArray[Any]:
    """float32 or int64, whatever it is in the file, in which it then has no numbers elsewhere."""
    from onnx import TensorProto, numpy_helper

    shown = f"the array '{cut(tensor.name, _WIDEST)}'"
    dims = tensor.dims
    if tensor.data_type not in _TYPES or min(dims, default=0) < 0 or len(dims) > _MOST_DIMENSIONS:
        raise ValueError(f"{shown} has a type or a shape that is not read")
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor.raw_data = _external(tensor, shown, path, beside)
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    # No number takes less than a byte.
    if prod(dims) <= tensor.ByteSize():
        try:
            found = numpy_helper.to_array(tensor)
            with np.errstate(over="ignore"):
                return found.astype(np.int64 if found.dtype.kind in "biu" else np.float32)
        except (ValueError, TypeError):
            pass
    raise ValueError(f"is damaged: {shown} has not as many numbers as its shape says")


def _external(tensor: Any, shown: str, path: Path, beside: dict[str, bytes]) -> bytes:
    """The bytes of an array in a file beside the network's, the only place that is looked at."""
    said = {each.key: each.value for each in tensor.external_data}
    name = said.get("location", "")
    if Path(name).name != name or name in ("", "..") or "\0" in name:
        raise ValueError(
            f"{shown} is in another file, '{cut(name, _WIDEST)}'; only those in the same folder "
            "are read: put it there, or export all into one file"
        )
    try:
        if name not in beside:
            beside[name] = read_whole(path.resolve().with_name(name))
        given = said.get("offset", "0"), said.get("length", "")
        begin, length = (int(text) if text.isdecimal() and len(text) < 19 else -1 for text in given)
    except OSError as error:
        raise ValueError(f"{shown} is in '{name}' beside it: {error.strerror}") from None
    content = beside[name]
    end = begin + length if length >= 0 else len(content)
    if not 0 <= begin <= end <= len(content):
        raise ValueError(f"is damaged: {shown} lies beyond the end of '{cut(name, _WIDEST)}'")
    return content[begin:end]


def _classes(said: Mapping[str, str]) -> tuple[str, ...]:
    """Their names, as JSON or as Ultralytics writes them: {0: 'cat', 1: 'dog'}; () without."""
    try:
        return tuple(from_json(said.get("class_names", ""), list[Name]))
    except ValueError:
        found = {int(f[1]): f[2] or f[3] or "" for f in _CLASS.finditer(said.get("names", ""))}
    return tuple(found.values()) if [*found] == [*range(len(found))] else ()
