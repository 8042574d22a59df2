"""The format ``numpy``: one Python file that needs NumPy alone."""

from __future__ import annotations

import ast
import base64
import builtins
import inspect
import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import Op
from . import numpy_functions
from .calls import CALLABLE, Calls
from .format import Format, Twin
from .plain import Plain

Array = NDArray[Any]


def _lines(calls: Calls) -> list[str]:
    """The network's calls as code."""
    taken = {*keyword.kwlist, *vars(numpy_functions), *dir(builtins), "W", "np", "raw", "x"}
    names = {"x": "x"}

    def shown(value: object) -> str:
        if not isinstance(value, str):
            return repr(value)
        return f"W[{value!r}]" if value in calls.arrays else names[value]

    lines = []
    for call in calls.calls:
        code = ""
        for name, *given in call.chain:
            code = f"{name}({', '.join([code] * bool(code) + [*map(shown, given)])})"
        own = re.sub(r"\W", "_", call.y.removesuffix(".y"), flags=re.ASCII)
        while own in taken or not own.isidentifier():
            own = f"t_{own}"
        taken.add(own)
        names[call.y] = own
        lines.append(f"{own} = {code}")
    return [*lines, f"return {names[calls.result]}.reshape(len(x), -1)"]


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
        head = f'"""{plain.name}: {plain.about["task"]}, written by dnnstack; needs NumPy alone."""'
        about = "\n".join(f"    {key!r}: {value!r}," for key, value in plain.about.items())
        text = f"""{head}

import base64
import math

import numpy as np

ABOUT = {{
{about}
}}
CLASSES = {list(plain.classes)!r}
SCALE = np.array({plain.scale.tolist()!r})[:, None, None]
SHIFT = np.array({plain.shift.tolist()!r})[:, None, None]
W = {{}}


{_functions(body)}
def predict(raw):
    \"\"\"raw: (N, {shape}) {"pixels from 0 to 255" if plain.pixels else "numbers"} -> (N, K).\"\"\"
    x = (raw * SCALE + SHIFT).astype(np.float32)
{body}


def stored(name, kind, shape, text):
    W[name] = np.frombuffer(base64.b64decode(text), kind).reshape(shape)


{arrays}
"""
        return {"": text.encode()}

    def twin(self, path: Path, plain: Plain) -> Twin:
        module: dict[str, Any] = {}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module)

        def answers(raw: Array) -> Array:
            return np.concatenate(
                [module["predict"](raw[first : first + 100]) for first in range(0, len(raw), 100)]
            )

        return Twin(f"NumPy {np.__version__}", answers)


def _functions(body: str) -> str:
    """The functions that are called, also by each other, as they stand, without types."""
    known = {name: f for name, f in vars(numpy_functions).items() if inspect.isfunction(f)}
    called, waiting = set[str](), [body]
    while waiting:
        names = {name for name in re.findall(r"(\w+)\(", waiting.pop()) if name in known} - called
        called |= names
        waiting += [inspect.getsource(known[name]) for name in names]
    found = []
    for name in known:
        if name in called:
            tree: Any = ast.parse(inspect.getsource(known[name])).body[0]
            tree.returns = None
            for argument in (*tree.args.args, tree.args.vararg):
                if argument is not None:
                    argument.annotation = None
            found.append(f"{ast.unparse(tree)}\n\n\n")
    return "".join(found)


def _encoded(name: str, array: Array) -> str:
    """A call of ``stored``; little-endian."""
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(data.tobytes()).decode()
    return f'stored({name!r}, "{data.dtype.str}", {array.shape}, "{text}")'
