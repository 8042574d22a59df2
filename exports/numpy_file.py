"""The format ``numpy``: one Python file that needs NumPy alone."""

from __future__ import annotations

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

from ..common.printable import printable
from ..graph.graph import Op
from . import numpy_functions
from .calls import CALLABLE, Calls
from .format import Format, Twin
from .plain import Plain

Array = NDArray[Any]
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
