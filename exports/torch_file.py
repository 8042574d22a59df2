"""The format ``torch``: a module of PyTorch as a Python file, and its weights beside it."""

from __future__ import annotations

import importlib.util
import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ExportError
from ..graph import ops
from ..graph.graph import Op
from ..layers.activation import ActivationLayer
from ..layers.composite import Composite, ConcatLayer, Residual, Sequential, walk
from ..layers.layer import Layer
from ..training.records.formats.pytorch_names import their_names
from .format import INTEGERS, Format, Twin, able
from .numpy_file import Numpy
from .plain import Plain
from .python_text import about, listed, quoted, wrapped
from .torch_modules import MODULES, Module, call
from .torch_sources import RESERVED, SOURCES

Array = NDArray[Any]
_MADE_OF_LAYERS = (Sequential, Residual, ConcatLayer)
_NUMBER = re.compile("\1(.*?):(.*?)\2")
# A line of ``forward`` begins with one of these.
_FIRST = re.compile(r"(nn\.(Conv2d|Linear|Sequential)|ConnectedConv2d|Block|Branches)\b")


class _Attributes:
    """Modules as attributes of a class; those that are equal and have no state are one."""

    def __init__(self, *paths: Sequence[Module]) -> None:
        self.lines: list[str] = []
        self.state: dict[str, Array] = {}
        self._names: dict[Any, str] = {}
        modules = [module for path in paths for module in path]
        taken = {*RESERVED, *keyword.kwlist, *(m.name for m in modules if m.named)}
        for module in modules:
            key = module if module.state else module.text
            if key in self._names:
                continue
            name = self._free(module, taken)
            taken.add(name)
            self._names[key] = name
            self.lines.append(f"self.{name} = {module.text}")
            self.state |= {f"{name}.{key}": array for key, array in module.state.items()}

    def _free(self, module: Module, taken: set[str]) -> str:
        own = module.name
        if module.named and own not in {*self._names.values(), *RESERVED, *keyword.kwlist}:
            return own
        first = [own] if not module.state else [f"{own}1"]
        numbered = (f"{own}{at}" for at in range(2, len(taken) + 3))
        return next(name for name in (*first, *numbered) if name not in taken)

    def chain(self, path: Sequence[Module], result: str) -> tuple[list[str], str]:
        """Lines that apply modules to x, and the expression of what is left."""
        lines, made = [], "x"
        for module in path:
            name = self._names[module if module.state else module.text]
            if made.endswith(")") and _FIRST.match(module.text):
                lines.append(f"{result} = {made}")
                made = result
            made = f"self.{name}({made})"
        return lines, made


class _Writer:
    """The classes of a network."""

    def __init__(self, plain: Plain) -> None:
        self._arrays = plain.arrays
        self.classes: list[str] = []
        self._blocks: dict[str, Module] = {}
        layers = plain.layers
        every = [layer for layer in walk(layers) if isinstance(layer, Composite)]
        # What follows a block at once is a part of it.
        self._after = {
            one.name: after
            for path in (layers, *(path for each in every for path in each.paths))
            for one, after in pairwise(path)
            if isinstance(one, Residual) and isinstance(after, ActivationLayer)
        }
        blocks = [each for each in every if not isinstance(each, Sequential)]
        height: dict[str, int] = {}
        for block in reversed(blocks):
            inner = [height[each.name] for each in walk(block.children) if each.name in height]
            height[block.name] = 1 + max(inner, default=0)
        for level in sorted(set(height.values())):
            self._share([each for each in blocks if height[each.name] == level])
        before = [Module("flatten", "nn.Flatten()", {})]
        flat = bool(layers) and len(layers[0].input_shape) == 1
        modules = [*before * flat, *self._sequence(layers)]
        init, forward, self.state = self._network(modules, [*their_names(plain.arrays).values()])
        shape, end = (", ".join(map(str, t.shape[1:])) for t in (plain.x, plain.y))
        text = f'"""(N, {shape}), as ``preprocess`` gives it -> (N, {end}) scores."""'
        self.classes.append(_class("Net", "", init, forward, text))

    def _share(self, blocks: Sequence[Composite]) -> None:
        """Classes for blocks: those that differ in numbers alone have one, with arguments."""
        kinds: dict[str, list[tuple[Composite, list[tuple[str, str]], _Attributes]]] = {}
        for block in blocks:
            attributes, forward = self._block(block)
            text = _class("\3", "\4", attributes.lines, forward)
            key = _NUMBER.sub(lambda found: f"\1{found[1]}\2", text)
            kinds.setdefault(key, []).append((block, _NUMBER.findall(text), attributes))
        for key, found in kinds.items():
            columns = [*zip(*([n for _, n in numbers] for _, numbers, _ in found), strict=True)]
            names: dict[tuple[str, ...], str] = {}
            for (role, _), column in zip(found[0][1], columns, strict=True):
                if len(set(column)) > 1 and column not in names:
                    same = sum(re.sub(r"\d", "", name) == role for name in names.values())
                    names[column] = f"{role}{same + 1}" if same else role
            if len(names) == 1:
                names = dict.fromkeys(names, "channels")
            values = iter(columns)
            # Called at once, so that what it binds is of this turn.
            text = re.sub("\1.*?\2", lambda _: names.get(c := next(values), c[0]), key)  # noqa: B023
            kind = "Block" if isinstance(found[0][0], Residual) else "Branches"
            count = sum(each.startswith(f"class {kind}") for each in self.classes)
            kind += str(count + 1) * bool(count)
            given = "".join(f", {name}" for name in names.values())
            self.classes.append(text.replace("\3", kind).replace("\4", given))
            for at, (block, numbers, attributes) in enumerate(found):
                roles = {column: role for (role, _), column in zip(numbers, columns, strict=True)}
                marked = [f"\1{roles[column]}:{column[at]}\2" for column in names]
                module = Module("block", call(kind, *marked), attributes.state)
                self._blocks[block.name] = module.of(block)

    def _block(self, block: Composite) -> tuple[_Attributes, list[str]]:
        if isinstance(block, ConcatLayer):
            branches = map(self._sequence, block.paths)
            paths = [[_one("branch", branch)] if branch else [] for branch in branches]
            attributes = _Attributes(*paths)
            ends = [attributes.chain(path, "y")[1] for path in paths]
            return attributes, [f"return torch.cat([{', '.join(ends)}], 1)"]
        body, way = map(self._sequence, block.paths)
        after = [*self._modules(self._after[block.name])] if block.name in self._after else []
        attributes = _Attributes(body, way, after)
        lines, y = attributes.chain(body, "y")
        more, shortcut = attributes.chain(way, "shortcut")
        total = f"{y} + {shortcut}"
        if after:
            total = attributes.chain(after, "")[1].replace("(x)", f"({total})")
        return attributes, [*lines, *more, f"return {total}"]

    def _sequence(self, layers: Sequence[Layer]) -> list[Module]:
        after = {id(layer) for layer in self._after.values()}
        kept = [layer for layer in layers if id(layer) not in after]
        return [module for layer in kept for module in self._modules(layer)]

    def _modules(self, layer: Layer) -> Iterator[Module]:
        if isinstance(layer, Sequential):
            yield _sequential("layers", self._sequence(layer.children)).of(layer)
        elif layer.name in self._blocks:
            yield self._blocks[layer.name]
        else:
            *before, last = MODULES[layer.kind](layer, self._arrays)
            yield from (*before, last.of(layer))

    def _network(
        self, modules: Sequence[Module], theirs: Sequence[str]
    ) -> tuple[list[str], list[str], dict[str, Array]]:
        """Attributes if a config names them, else the two parts before and after flatten."""
        numbered = any(name.startswith("features.") for name in theirs)
        if not numbered and all(m.named for m in modules if m.state):
            attributes = _Attributes(modules)
            lines, end = attributes.chain(modules, "x")
            return attributes.lines, [*lines, f"return {end}"], attributes.state
        texts = [m.text for m in modules]
        at = texts.index("nn.Flatten()") if "nn.Flatten()" in texts else 0
        if 0 < at < len(texts) - 1:
            parts = {"features": modules[:at], "classifier": modules[at + 1 :]}
            end = "self.classifier(self.features(x).flatten(1))"
        else:
            parts, end = {"layers": modules}, "self.layers(x)"
        ones = {name: _one(name, part) for name, part in parts.items()}
        state = {f"{name}.{key}": a for name, m in ones.items() for key, a in m.state.items()}
        return [f"self.{name} = {m.text}" for name, m in ones.items()], [f"return {end}"], state


def _one(name: str, modules: Sequence[Module]) -> Module:
    return modules[0] if len(modules) == 1 else _sequential(name, modules)


def _sequential(name: str, modules: Sequence[Module]) -> Module:
    state = {f"{at}.{key}": a for at, m in enumerate(modules) for key, a in m.state.items()}
    inside = textwrap.indent("".join(f"{m.text},\n" for m in modules), "    ")
    return Module(name, f"nn.Sequential(\n{inside})", state)


def _class(
    name: str, given: str, init: Sequence[str], forward: Sequence[str], about: str = ""
) -> str:
    lines = [f"class {name}(nn.Module):", *([f"    {about}", ""] if about else [])]
    lines += [f"    def __init__(self{given}):", "        super().__init__()"]
    lines += [textwrap.indent(line, " " * 8) for line in init]
    lines += ["", "    def forward(self, x):", *(f"        {line}" for line in forward)]
    return "\n".join(lines) + "\n"


class Torch(Format):
    """A Python file with a module of PyTorch, and its weights in a .safetensors file beside it."""

    kind = "torch"
    suffix = ".py"
    ops: ClassVar[frozenset[type[Op]]] = frozenset(op for op in Numpy.ops if op not in INTEGERS)

    def check(self, plain: Plain) -> None:
        super().check(plain)
        for layer in walk(plain.layers):
            if layer.kind not in {*MODULES, *(each.kind for each in _MADE_OF_LAYERS)}:
                names = {name for op in plain.ops for name in able(type(op))} - {self.kind}
                raise ExportError(
                    f"layer '{layer.name}' ({layer.kind}): {self.kind} knows the layers of "
                    f"dnnstack alone; formats that have it: {', '.join(sorted(names))}"
                )

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        from safetensors.numpy import save

        writer = _Writer(plain)
        body = _NUMBER.sub(r"\2", "\n\n".join(writer.classes))
        named = [SOURCES[each] for each in SOURCES if re.search(rf"\b(?<!\.){each}\(", body)]
        text = "\n\n\n".join(part.strip("\n") for part in (*named, body, _functions(plain)))
        text = f"{_constants(plain)}\n\n\n{text}\n"
        functional = "import torch.nn.functional as F\n" if re.search(r"\bF\.", text) else ""
        head = f'"""{plain.name}, a network for PyTorch, written by dnnstack."""'
        imports = (
            f"from pathlib import Path\n\nimport torch\n{functional}"
            "from safetensors.torch import load_file\nfrom torch import nn"
        )
        text = "\n".join(map(wrapped, f"{head}\n\n{imports}\n\n{text}".split("\n")))
        state = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in writer.state.items()}
        return {".safetensors": save(state, {"format": "pt"}), "": text.encode()}

    def twin(self, path: Path, plain: Plain) -> Twin | None:
        if importlib.util.find_spec("torch") is None:
            return None
        module: dict[str, Any] = {"__file__": str(path), "__name__": "exported"}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module)
        net = module["load"]()

        def answers(raw: Array) -> Array:
            parts = (raw[first : first + 100] for first in range(0, len(raw), 100))
            found = [module["predict"](net, part).numpy() for part in parts]
            return np.concatenate(found).reshape(len(raw), -1)

        return Twin(f"PyTorch {module['torch'].__version__}", answers)


def _functions(plain: Plain) -> str:
    """What is around the network: preprocessing, weights, answers."""
    known = {layer.name for layer in walk(plain.layers)} | {"data"}
    answer = "net(preprocess(raw))"
    for op in plain.ops:
        if op.origin[0].layer in known:
            continue
        if isinstance(op, ops.Scale):
            answer = f"({answer} / {_short(1 / op.factor)!r})"
        elif isinstance(op, ops.Softmax):
            answer += ".softmax(1)"
        elif isinstance(op, ops.Activation) and op.kind == "sigmoid":
            answer += ".sigmoid()"
        else:
            raise ExportError(f"torch has no {op.name} after the scores; formats: numpy")
    shape, what = ", ".join(map(str, plain.x.shape[1:])), "numbers"
    divided = ""
    if plain.pixels:
        what, divided = "pixels from 0 to 255", " / 255"
    return f'''
def preprocess(raw):
    """raw: (N, {shape}) {what} -> what the network takes."""
    return (torch.as_tensor(raw, dtype=torch.float32){divided} - MEAN) / STD


def load():
    """The trained network."""
    net = Net()
    net.load_state_dict(load_file(Path(__file__).with_suffix(".safetensors")))
    return net.eval()


@torch.no_grad()
def predict(net, raw):
    """What dnnstack predict answers to raw."""
    return {answer}
'''


def _constants(plain: Plain) -> str:
    lines = [f"# {key}: {value}" for key, value in about(plain.about).items()]
    lines.append(listed("CLASSES = ", [*map(quoted, plain.classes)]))
    unit = 255.0 if plain.pixels else 1.0
    values = {"MEAN": -plain.shift / plain.scale / unit, "STD": 1 / plain.scale / unit}
    for name, each in values.items():
        numbers = [repr(_short(v)) for v in each]
        lines.append(listed(f"{name} = torch.tensor(", numbers, ")[:, None, None]"))
    return "\n".join(lines)


def _short(value: float) -> float:
    return float(f"{value:.9g}") + 0.0
