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
from .onnx_pictures import resized
from .plain import Plain

# A file of protobuf holds 2 GB; some are for all but the weights.
_MOST = 2**31 - 2**24


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
            x = resized(of, pixels, shape, way == "whole")
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
