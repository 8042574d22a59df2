"""The format ``numpy``: one Python file that needs NumPy alone."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.quantized import quantized_weights, scales_and_sums
from ..graph import ops
from ..graph.geometry import Window
from ..graph.graph import Op, Tensor
from . import numpy_functions
from .format import Format, Twin
from .plain import Plain
from .python_text import about, listed, quoted, wrapped

Array = NDArray[Any]


class _Writer:
    """The lines of a network's operations, and the arrays that they name."""

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self.lines: list[str] = []
        self.arrays: dict[str, Array] = {}
        self._names: dict[Tensor, str] = {plain.x: "x"}

    def write(self) -> None:
        for op in self.plain.ops:
            code = _CODE[type(op)](op, self)
            if name := getattr(op, "activation", None):
                code = _activated(name, code, getattr(op, "activation_alpha", 0.0))
            y = op.writes()[0]
            self._names[y] = name = _identifier(y.name.removesuffix(".y"))
            self.lines.append(f"{name} = {code}")
        self.lines.append(f"return {self(self.plain.y)}.reshape(len(x), -1)")

    def __call__(self, tensor: Tensor | None) -> str:
        """The expression of a tensor."""
        if tensor is None:
            return "None"
        if tensor.role in ("parameter", "state"):
            name = tensor.name.replace(".running_mean.folded", ".shift").removesuffix(".folded")
            return self.stored(name, self.plain.constant(tensor))
        return self._names[tensor]

    def stored(self, name: str, array: Array) -> str:
        self.arrays[name] = array
        return f'W["{name}"]'


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if found.isidentifier() else f"t_{found}"


def _call(name: str, *given: object, **options: object) -> str:
    texts = [*map(str, given), *(f"{key}={value}" for key, value in options.items())]
    return f"{name}({', '.join(texts)})"


def _activated(kind: str, x: str, alpha: float) -> str:
    return _call(kind, x, *([repr(alpha)] if kind in ("leaky_relu", "elu") else []))


def _pool(op: Any, of: _Writer) -> str:
    window, padding = op.window, _changed(op.window, "padding")
    return _call(f"{op.kind}_pool", of(op.x), window.kernel, window.stride, **padding)


def _changed(window: Window, *names: str) -> dict[str, object]:
    """What of a window is not as usual."""
    usual = Window(window.kernel)
    each = {name: getattr(window, name) for name in names}
    return {name: value for name, value in each.items() if value != getattr(usual, name)}


def _product(op: ops.MatMul, of: _Writer) -> str:
    a, b = of(op.a), of(op.b)
    code = f"{a}{'.T' * op.transpose_a} @ {b}{'.T' * op.transpose_b}"
    return code if op.bias is None else f"{code} + {of(op.bias)}"


def _norm(op: Any, of: _Writer) -> str:
    return _call(_NORMS[type(op)], of(op.x), op.size, op.alpha, op.beta, op.k)


def _integers(op: Any, of: _Writer) -> str:
    weights = of.plain.constant(op.w)
    values = [None if t is None else of.plain.constant(t) for t in op.parameters[1:]]
    whole, scales = quantized_weights(weights)
    s, b = scales_and_sums(op, scales, *values)
    name = op.w.name
    w = f"{of.stored(name, whole.astype(np.int8))}.astype(float)"
    x = f"{of(op.x)}.astype(float)"
    if isinstance(op, ops.QuantizedConv2d):
        total = _conv(x, w, "None", op)
    else:
        total = f"{x} @ {w}.T"
    s_b = of.stored(f"{name}.s", op.given.scale * s), of.stored(f"{name}.b", b)
    y = _call("scaled", total, *s_b, op.relu)
    return y if op.to is None else _quantized(y, op.to)


def _quantized(x: str, to: ops.Quantization) -> str:
    return _call("quantize", x, repr(to.scale), *to.bounds)


def _conv(x: str, w: str, b: str, op: Any) -> str:
    given = [each for each in (x, w, b) if each != "None"]
    groups = {"groups": op.groups} if op.groups > 1 else {}
    return _call("conv2d", *given, **_changed(op.window, "stride", "padding", "dilation"), **groups)


_NORMS: dict[type[Op], str] = {ops.Lrn: "lrn", ops.DivisiveNorm: "divisive_norm"}
_CODE: dict[type[Op], Callable[[Any, _Writer], str]] = {
    ops.Activation: lambda op, of: _activated(op.kind, of(op.x), op.alpha),
    ops.Add: lambda op, of: " + ".join(map(of, op.terms)),
    ops.BatchNormInference: lambda op, of: _call(
        "batch_norm", *(of(getattr(op, name)) for name in op.inputs), op.eps
    ),
    ops.BiasAdd: lambda op, of: f"{of(op.x)} + along({of(op.b)}, {of(op.x)})",
    ops.ChannelScale: lambda op, of: f"{of(op.x)} * along({op.factor!r} * {of(op.s)}, {of(op.x)})",
    ops.Concat: lambda op, of: f"np.concatenate([{', '.join(map(of, op.parts))}], 1)",
    ops.Conv2d: lambda op, of: _conv(of(op.x), of(op.w), of(op.bias), op),
    ops.DivisiveNorm: _norm,
    ops.Heaviside: lambda op, of: f"({of(op.x)} > 0).astype(np.float32)",
    ops.Lrn: _norm,
    ops.MatMul: _product,
    ops.Pad2d: lambda op, of: _call("pad", of(op.x), op.padding, op.value),
    ops.PadChannels: lambda op, of: _call("pad_channels", of(op.x), op.y.shape[1]),
    ops.Pool2d: _pool,
    ops.Quantize: lambda op, of: _quantized(of(op.x), op.to),
    ops.QuantizedConv2d: _integers,
    ops.QuantizedMatMul: _integers,
    ops.Rbf: lambda op, of: _call(
        "rbf", of(op.x), of.stored(f"{op.y.name}.centres", np.array(op.centres, np.float32))
    ),
    ops.Reshape: lambda op, of: _call(f"{of(op.x)}.reshape", -1, *op.y.shape[1:]),
    ops.Scale: lambda op, of: f"{of(op.x)} * np.float32({op.factor!r})",
    ops.Slice: lambda op, of: f"{of(op.x)}[:, {op.begin}:{op.begin + op.y.shape[1]}]",
    ops.Softmax: lambda op, of: _call("log_softmax" if op.log else "softmax", of(op.x)),
}


class Numpy(Format):
    """A Python file that needs NumPy alone: functions, the network as a list of calls, weights."""

    kind = "numpy"
    suffix = ".py"
    ops: ClassVar[frozenset[type[Op]]] = frozenset(_CODE)

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        plain = plain.folded()
        writer = _Writer(plain)
        writer.write()
        body = "\n".join(wrapped(f"    {line}") for line in writer.lines)
        arrays = "\n".join(_encoded(name, array) for name, array in writer.arrays.items())
        shape = ", ".join(map(str, plain.x.shape[1:]))
        said = "\n".join(f"    {quoted(k)}: {quoted(v)}," for k, v in about(plain.about).items())
        units = [
            listed(f"{name} = np.array(", [*map(repr, values.tolist())], ")[:, None, None]")
            for name, values in (("SCALE", plain.scale), ("SHIFT", plain.shift))
        ]
        text = f"""import numpy as np

ABOUT = {{
{said}
}}
{listed("CLASSES = ", [*map(quoted, plain.classes)])}
{units[0]}
{units[1]}
W = {{}}


{_functions(body)}def predict(raw):
    \"\"\"raw: (N, {shape}) {"pixels from 0 to 255" if plain.pixels else "numbers"} -> (N, K).\"\"\"
    x = (raw * SCALE + SHIFT).astype(np.float32)
{body}


def stored(name, kind, shape, text):
    W[name] = np.frombuffer(base64.b64decode(text), kind).reshape(shape)


# fmt: off
{arrays}
"""
        head = f'"""{plain.name}: {plain.about["task"]}, written by dnnstack; needs NumPy alone."""'
        math = "import math\n" if "math." in text else ""
        return {"": f"{head}\n\nimport base64\n{math}\n{text}".encode()}

    def twin(self, path: Path, plain: Plain) -> Twin:
        module: dict[str, Any] = {}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module)

        def answers(raw: Array) -> Array:
            return np.concatenate(
                [module["predict"](raw[first : first + 100]) for first in range(0, len(raw), 100)]
            )

        return Twin(f"NumPy {np.__version__}", answers)


def _functions(body: str) -> str:
    """The functions that are called, also by each other, as they stand."""
    known = {
        name: inspect.getsource(f)
        for name, f in vars(numpy_functions).items()
        if inspect.isfunction(f)
    }
    called, waiting = set[str](), [body]
    while waiting:
        names = set(re.findall(r"(?<!\.)\b(\w+)\(", waiting.pop())) & known.keys() - called
        called |= names
        waiting += [known[name] for name in names]
    return "".join(f"{text}\n\n" for name, text in known.items() if name in called)


def _encoded(name: str, array: Array) -> str:
    """A call of ``stored``; little-endian."""
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(data.tobytes()).decode()
    return f'stored({quoted(name)}, "{data.dtype.str}", {array.shape}, "{text}")'
