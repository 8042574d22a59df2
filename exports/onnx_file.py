"""The format ``onnx``: a file that ONNX Runtime and many others run, from pictures to answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ExportError
from ..graph.graph import Op
from ..training.inference.predict import preparation
from .format import Format, Twin
from .onnx_graph import CODE, Network, Value
from .plain import Plain

# A file of protobuf holds 2 GB; some are for all but the weights.
_MOST = 2**31 - 2**24

# Red, green and blue in the grey of a picture; Pillow computes with integers.
_GREY = np.array([19595, 38470, 7471])[:, None, None] / 2**16
_ONE = 2.0**22


class Onnx(Format):
    """An ONNX file of opset 18: preprocessing, network and classes, for any number of samples."""

    kind = "onnx"
    suffix = ".onnx"
    needs = "onnx"
    ops: ClassVar[frozenset[type[Op]]] = frozenset(CODE)
    raw: Annotated[bool, "Take (N, C, H, W) float32, pixels from 0 to 255 as they are."] = False

    def check(self, plain: Plain) -> None:
        super().check(plain)
        if find_spec("onnx") is None:
            raise ExportError("onnx is not installed: python3 -m pip install 'dnnstack[onnx]'")
        if sum(array.nbytes for array in plain.arrays.values()) > _MOST:
            raise ExportError("onnx: the weights take more than the 2 GB that such a file holds")

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        plain = plain.folded()
        of = Network(plain)
        of.known[plain.x] = self._input(of, plain)
        of.write()
        if len(plain.y.shape) != 2:
            of("Flatten", of[plain.y], axis=1)
        own = {**plain.about, "scaled": _scaled(plain) or "no", "raw": json.dumps(self.raw)}
        about = {
            "description": f"{own['name']}, trained with dnnstack",
            "author": "dnnstack",
            "version": json.loads(own["versions"]).get("dnnstack", ""),
            "task": own["task"],
            "batch": "1",
            "imgsz": str(list(plain.x.shape[2:])),
            "names": str(dict(enumerate(plain.classes))),
            "class_names": own["classes"],
            **{f"dnnstack.{key}": value for key, value in own.items()},
        }
        return {"": of.model(about)}

    def _input(self, of: Network, plain: Plain) -> Value:
        """x: (N, C, H, W) float32, of what the file is given."""
        of.at = name = "images" if plain.pixels else "values"
        shape = plain.x.shape[1:]
        if self.raw or not plain.pixels:
            x = of.input(name, np.float32, sizes := self._sizes(plain))
            x = x if sizes == shape else of("Reshape", x, np.array([-1, *shape]))
        elif way := _scaled(plain):
            pixels = of.input(name, np.uint8, ("height", "width", "channels"))
            x = _resized(of, pixels, shape, way == "whole")
        else:
            x = of("Transpose", of.input(name, np.uint8, (*shape[1:], shape[0])), perm=[0, 3, 1, 2])
        of.at = "normalise"
        scale, shift = (each[:, None, None] for each in (plain.scale, plain.shift))
        return of.cast(of.cast(x, np.float64) * scale + shift, np.float32)

    def _sizes(self, plain: Plain) -> tuple[int, ...]:
        """Of numbers that are given for a sample: those of rows and sequences have fewer sides."""
        shape = plain.x.shape[1:]
        if self.raw or shape[1] > 1:
            return shape
        return shape[:1] if shape[2] == 1 else (shape[0], shape[2])

    def twin(self, path: Path, plain: Plain) -> Twin | None:
        if find_spec("onnxruntime") is None:
            return None
        import onnxruntime

        by = f"ONNX Runtime {onnxruntime.__version__}"
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise ExportError(
                f"onnx: {by} cannot run the file; install a newer one: {why}"
            ) from None
        name = session.get_inputs()[0].name

        def answers(raw: NDArray[Any]) -> NDArray[Any]:
            if plain.pixels and not self.raw:
                given = raw.transpose(0, 2, 3, 1)
            else:
                given = raw.reshape(-1, *self._sizes(plain)).astype(np.float32)
            found: NDArray[Any] = session.run(None, {name: given})[0]
            return found

        return Twin(by, answers)


def _scaled(plain: Plain) -> str:
    """What of a picture is scaled: its ``middle``, the ``whole``, or "" where its size is fixed.

    It is for digits, which ``predict`` finds on their page, and where pictures have other channels.
    """
    if not plain.pixels or plain.x.shape[1] not in (1, 3):
        return ""
    how = preparation(plain.trained, None, False)
    if how.locates(plain.trained.input_shape):
        return ""
    return "whole" if how.raw else "middle"


def _resized(of: Network, pixels: Value, shape: tuple[int, ...], whole: bool) -> Value:
    """As ``predict`` reads pictures: grey or in colours, the whole or the middle scaled by Pillow.

    pixels: (N, H, W, 1 or 3) uint8; result: (N, *shape) float64, whole numbers.
    """
    colours = of("Expand", pixels, np.array([1, 1, 1, 3]))
    planes = of.cast(of("Transpose", colours, perm=[0, 3, 1, 2]), np.float64)
    if shape[0] == 1:
        planes = of("Floor", of("ReduceSum", planes * _GREY, np.array([1])) + 0.5)
    lengths = (of("Shape", pixels, start=axis, end=axis + 1) for axis in (1, 2))
    height, width = (of.cast(length, np.float64) for length in lengths)
    rows, columns, ratio = height, width, shape[2] / shape[1]
    if not whole:
        rows, columns = of("Min", height, width / ratio), of("Min", width, height * ratio)
    of.at = "columns"
    planes = _levels(of, of("MatMul", planes, _weights(of, width, columns, shape[2], 0)))
    of.at = "rows"
    return _levels(of, of("MatMul", _weights(of, height, rows, shape[1], 1), planes))


def _weights(of: Network, length: Value, kept: Value, count: int, axis: int) -> Value:
    """How much of each pixel, along ``axis``, enters each of those that the middle becomes.

    Bicubic, over as many pixels as become one; Pillow takes the ends of the middle as float32.
    Some versions of ONNX Runtime cannot multiply by transposed matrices of float64.
    """
    begin = (length - kept) * 0.5
    first, last = (of.cast(end, np.float32) for end in (begin, begin + kept))
    step = of.cast(last - first, np.float64) / float(count)
    centres = of.cast(first, np.float64) + step * np.expand_dims(np.arange(count) + 0.5, axis)
    pixels = of("Unsqueeze", of("Range", 0.0, of("Squeeze", length), 1.0), np.array([1 - axis]))
    apart = of("Abs", (pixels - centres + 0.5) / of("Max", step, 1.0))
    near = (apart * 1.5 - 2.5) * apart * apart + 1.0
    far = (((apart - 5.0) * apart + 8.0) * apart - 4.0) * -0.5
    outer = of("Where", of("Less", apart, 2.0), far, 0.0)
    each = of("Where", of("Less", apart, 1.0), near, outer)
    return of("Round", each / of("ReduceSum", each, np.array([axis])) * _ONE) / _ONE


def _levels(of: Network, sums: Value) -> Value:
    return of("Clip", of("Floor", sums + 0.5), 0.0, 255.0)
