"""The format ``numpy``: calls of the functions in ``numpy_functions``, which a file holds too."""

from __future__ import annotations

import base64
import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.printable import printable
from ..common.records import dataclass
from ..graph import ops
from ..graph.graph import Op, Tensor
from . import numpy_functions
from .format import Format, Twin
from .plain import AFFINE, Plain

Array = NDArray[Any]
Chain: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Call:
    """y = the last of a chain of (function, *arguments): each but the first takes the result of
    that before as its first argument. A text among the arguments names an array, or the ``y`` of an
    earlier call, or "x". ``layers``: whose work it is."""

    layers: tuple[str, ...]
    y: str
    chain: Chain


class Calls:
    """All calls of a network in order, ``result``: the name of its answer, ``arrays`` by name."""

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self.arrays: dict[str, Array] = {}
        self.calls = [self._call(op) for op in plain.ops]
        self.result = str(self(plain.y))

    def _call(self, op: Op) -> Call:
        chain = _CHAINS[type(op)](op, self)
        return Call(tuple(dict.fromkeys(o.layer for o in op.origin)), op.writes()[0].name, chain)

    def __call__(self, tensor: Tensor | None) -> str | None:
        """The name of a tensor."""
        if tensor is None:
            return None
        if tensor == self.plain.x:
            return "x"
        if tensor.role in ("parameter", "state"):
            name = tensor.name.replace(".running_mean.folded", ".shift").removesuffix(".folded")
            return self.stored(name, self.plain.constant(tensor))
        return tensor.name

    def stored(self, name: str, array: Array) -> str:
        self.arrays[name] = array
        return name


def _affine(op: Any, of: Calls) -> Chain:
    name, both = op.y.name, of.plain.affine(op)
    given = [
        of.stored(f"{name}.{key}", v.astype(np.float32))
        for key, v in zip(("scale", "shift"), both, strict=True)
    ]
    return [("affine", of(op.x), *given)]


def _pool(op: Any, of: Calls) -> Chain:
    window = op.window
    return [(f"{op.kind}_pool", of(op.x), window.kernel, window.stride, window.padding)]


def _norm(op: Any, of: Calls) -> Chain:
    name = "lrn" if isinstance(op, ops.Lrn) else "divisive_norm"
    return [(name, of(op.x), op.size, op.alpha, op.beta, op.k)]


def _geometry(op: Any) -> tuple[Any, ...]:
    return op.window.stride, op.window.padding, op.window.dilation, op.groups


def _integers(op: Any, of: Calls) -> Chain:
    (whole, s, b), name = of.plain.integers(op), op.w.name
    w = of.stored(name, whole.astype(np.int8))
    s_b = of.stored(f"{name}.s", op.given.scale * s), of.stored(f"{name}.b", b)
    product = ("matmul", w, None)
    if isinstance(op, ops.QuantizedConv2d):
        product = ("conv2d", w, None, *_geometry(op))
    chain: Chain = [("wide", of(op.x)), product, ("scaled", *s_b, op.relu)]
    return chain if op.to is None else [*chain, _quantize(op.to)]


def _quantize(to: ops.Quantization, *x: object) -> tuple[Any, ...]:
    return ("quantize", *x, to.scale, *to.bounds)


_CHAINS: dict[type[Op], Callable[[Any, Calls], Chain]] = {
    **dict.fromkeys(AFFINE, _affine),
    ops.Activation: lambda op, of: [
        (op.kind, of(op.x), *([op.alpha] if op.kind in ("leaky_relu", "elu") else []))
    ],
    ops.Add: lambda op, of: [("add", *map(of, op.terms))],
    ops.Concat: lambda op, of: [("concat", *map(of, op.parts))],
    ops.Conv2d: lambda op, of: [("conv2d", of(op.x), of(op.w), of(op.bias), *_geometry(op))],
    ops.DivisiveNorm: _norm,
    ops.Heaviside: lambda op, of: [("heaviside", of(op.x))],
    ops.Lrn: _norm,
    ops.MatMul: lambda op, of: [
        ("matmul", of(op.a), of.stored(str(of(op.b)), of.plain.matrix(op)), of(op.bias))
    ],
    ops.Pad2d: lambda op, of: [("pad", of(op.x), op.padding, op.value)],
    ops.PadChannels: lambda op, of: [("pad_channels", of(op.x), op.y.shape[1])],
    ops.Pool2d: _pool,
    ops.Quantize: lambda op, of: [_quantize(op.to, of(op.x))],
    ops.QuantizedConv2d: _integers,
    ops.QuantizedMatMul: _integers,
    ops.Rbf: lambda op, of: [
        ("rbf", of(op.x), of.stored(f"{op.y.name}.centres", np.array(op.centres, np.float32)))
    ],
    ops.Reshape: lambda op, of: [("reshape", of(op.x), op.y.shape[1:])],
    ops.Slice: lambda op, of: [("part", of(op.x), op.begin, op.begin + op.y.shape[1])],
    ops.Softmax: lambda op, of: [("log_softmax" if op.log else "softmax", of(op.x))],
}
CALLABLE = frozenset(_CHAINS)

# What files say in code.
_IN_CODE = ("classes", "input", "preprocessing")


def _lines(calls: Calls) -> list[str]:
    """The network's calls as code, without arguments that have their defaults."""
    taken = {*keyword.kwlist, *vars(numpy_functions), *dir(builtins), "W", "np", "raw", "x"}
    names = {"x": "x"}

    def shown(value: object) -> str:
        if not isinstance(value, str):
            return repr(value)
        return f"W[{quoted(value)}]" if value in calls.arrays else names[value]

    lines = []
    for call in calls.calls:
        code = ""
        for name, *given in call.chain:
            parameters = [*inspect.signature(getattr(numpy_functions, name)).parameters.values()]
            own = parameters[1:] if code else parameters
            while given and len(given) <= len(own) and given[-1] == own[len(given) - 1].default:
                given.pop()
            code = f"{name}({', '.join([code] * bool(code) + [*map(shown, given)])})"
        y = re.sub(r"\W", "_", call.y.removesuffix(".y"), flags=re.ASCII)
        while y in taken or not y.isidentifier():
            y = f"t_{y}"
        taken.add(y)
        names[call.y] = y
        lines.append(f"{y} = {code}")
    return [*lines, f"return {names[calls.result]}.reshape(len(x), -1)"]


def quoted(text: str) -> str:
    """A string, in the quotes that need no escapes."""
    plain = repr(text)
    return plain if '"' in plain else f'"{plain[1:-1]}"'


def about(entries: Mapping[str, str]) -> dict[str, str]:
    """What a file says of itself, each in one line."""
    kept = {key: value for key, value in entries.items() if key not in _IN_CODE}
    return {key: printable(" ".join(value.split())) for key, value in kept.items()}


class Numpy(Format):
    """A Python file that needs NumPy alone: functions, the network as a list of calls, weights."""

    kind = "numpy"
    suffix = ".py"
    ops: ClassVar[frozenset[type[Op]]] = CALLABLE

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        plain = plain.folded()
        calls = Calls(plain)
        body = "\n".join(f"    {line}" for line in _lines(calls))
        arrays = "\n".join(_encoded(name, array) for name, array in calls.arrays.items())
        shape = ", ".join(map(str, plain.x.shape[1:]))
        said = "\n".join(f"    {quoted(k)}: {quoted(v)}," for k, v in about(plain.about).items())
        text = f"""import numpy as np

ABOUT = {{
{said}
}}
CLASSES = [{", ".join(map(quoted, plain.classes))}]
SCALE = np.array({plain.scale.tolist()})[:, None, None]
SHIFT = np.array({plain.shift.tolist()})[:, None, None]
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
        return Twin(f"NumPy {np.__version__}", module["predict"])


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
