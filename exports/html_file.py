"""The format ``html``: one page that needs a browser alone, and no connection."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..graph.graph import Op
from ..training.inference.predict import preparation
from . import numpy_functions
from .format import Format, Twin
from .numpy_file import CALLABLE, Calls
from .plain import Plain

Array = NDArray[Any]


class Html(Format):
    """One page: it draws or takes a sample, and shows what the network answers and each layer."""

    kind = "html"
    suffix = ".html"
    ops: ClassVar[frozenset[type[Op]]] = CALLABLE
    weights: Annotated[
        Literal["fp16", "fp32"], "How weights are stored; computed with in floats."
    ] = "fp16"

    @property
    def rounding(self) -> float:
        return 0.005 if self.weights == "fp16" else 0.0

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        calls = Calls(plain.folded())
        stored = [(name, a.shape, *self._stored(a)) for name, a in calls.arrays.items()]
        model = model_of(plain) | {
            "arrays": [(name, kind, shape) for name, shape, kind, _ in stored],
            "calls": [(call.layers, call.y, call.chain) for call in calls.calls],
            "result": calls.result,
        }
        return {"": page(model, b"".join(data for *_, data in stored)).encode()}

    def _stored(self, array: Array) -> tuple[str, bytes]:
        """The kind and the bytes of an array; vectors are not rounded."""
        if array.ndim > 1 and array.dtype != np.int8 and self.weights == "fp16":
            array = array.clip(-65504, 65504).astype(np.float16)
        return str(array.dtype), _bytes(array)

    def twin(self, path: Path, plain: Plain) -> Twin:
        model, arrays = read_page(path.read_text("utf-8"))
        answers = partial(run, model, arrays)
        return Twin(f"NumPy {np.__version__}, as the page computes", answers)


def page(model: Mapping[str, Any], weights: bytes = b"", server: str | None = None) -> str:
    """The whole page. ``server``: the address to ask, of ``dnnstack serve``; then ``model`` is that
    of ``model_of``."""
    # Huffman codes alone: nothing repeats in weights, and the bytes depend less on zlib's version.
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    packed = packer.compress(weights) + packer.flush()
    texts = {
        "TITLE": html.escape(model["about"]["name"]),
        "COUNT": str(prod(model["input"])),
        "CONNECT": "; connect-src 'self'" if server else "",
        "MODEL": _json(model),
        "WEIGHTS": base64.b64encode(packed).decode(),
    }
    here = files(__package__)
    text, *code = (
        here.joinpath(name).read_text("utf-8")
        for name in ("page.html", "engine.js", "pictures.js", "page.js")
    )
    # Without indentation and lines of comments.
    texts["CODE"] = re.sub(r"^ *(//.*\n)?", "", "\n".join(code), flags=re.MULTILINE).replace(
        "const SERVER = null", f"const SERVER = {_json(server)}"
    )
    return re.sub(r"@([A-Z]+)@", lambda found: texts[found[1]], text)


def read_page(text: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The model and the arrays of a page, which computes in float32 whatever it stores."""
    data = re.findall(r'<script type="[a-z/-]+" id="\w+">(.*?)</script>', text, re.DOTALL)
    model, packed = json.loads(data[0]), zlib.decompress(base64.b64decode(data[1]), -15)
    arrays, at = {}, 0

    def take(kind: Any, shape: Any) -> Array:
        nonlocal at
        dtype, begin = np.dtype(kind), at
        at += prod(shape) * dtype.itemsize
        places = np.frombuffer(packed[begin:at], np.uint8).reshape(dtype.itemsize, -1)
        found: Array = np.ascontiguousarray(places.T).view(dtype).reshape(shape)
        return found

    for name, kind, shape in model["arrays"]:
        found = take(kind, shape)
        arrays[name] = found if kind == "float64" else found.astype(np.float32)
    return model, arrays


def run(model: Mapping[str, Any], arrays: Mapping[str, Array], raw: Array) -> Array:
    """What the page answers: raw (N, C, H, W) -> (N, K)."""
    scale, shift = (np.array(model[name])[:, None, None] for name in ("scale", "shift"))
    known: dict[str, Array] = {**arrays, "x": (raw * scale + shift).astype(np.float32)}
    for _, y, chain in model["calls"]:
        for at, (name, *given) in enumerate(chain):
            own = [known[each] if isinstance(each, str) else each for each in given]
            known[y] = getattr(numpy_functions, name)(*([known[y]] if at else []), *own)
    return known[model["result"]].reshape(len(raw), -1)


def _json(value: object) -> str:
    """No text of it ends a script."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _bytes(array: Array) -> bytes:
    """The first bytes of all numbers, little-endian, then the second ones: easier to compress."""
    numbers = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1, 1)
    return numbers.view(np.uint8).T.tobytes()


def model_of(plain: Plain) -> dict[str, Any]:
    """What a page is told of a network, without ``arrays`` and ``calls``."""
    trained = plain.trained
    try:
        how = preparation(trained, None, False)
        picture = {"digits": how.locates(trained.input_shape), "whole": how.raw}
    except DatasetError:
        picture = None
    return {
        "about": dict(plain.about),
        "kind": trained.data.kind,
        "classes": plain.classes,
        "input": plain.x.shape[1:],
        "scale": plain.scale.tolist(),
        "shift": plain.shift.tolist(),
        "threshold": trained.config.evaluate.yes_above,
        "picture": picture,
    }
