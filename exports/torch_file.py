"""The format ``torch``: a module of PyTorch as a Python file, and its weights beside it."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ExportError
from ..common.records import dataclass
from ..graph import ops
from ..graph.graph import Op
from ..layers.composite import Composite, ConcatLayer, Residual, Sequential, walk
from ..layers.layer import Layer
from ..training.records.formats.pytorch_names import their_names
from .format import INTEGERS, Format, Twin, able
from .numpy_file import Numpy, about, quoted
from .plain import Plain
from .torch_modules import MODULES, RESERVED, SOURCES, Arrays

Array = NDArray[Any]
_MADE_OF_LAYERS = {each.kind for each in (Sequential, Residual, ConcatLayer)}


@dataclass(frozen=True, eq=False)
class _Module:
    """A module of PyTorch: the call that makes it, and its state by name."""

    text: str
    state: Arrays


Named = dict[str, _Module]


class Writer:
    """The modules of a network, called as its layers, or as torchvision calls them."""

    def __init__(self, layers: Sequence[Layer], arrays: Arrays) -> None:
        self._arrays, self._theirs = arrays, their_names(arrays)
        if numbered := any(name.startswith("features.") for name in self._theirs.values()):
            self._theirs = {}
        flat = bool(layers) and len(layers[0].input_shape) == 1
        row = {"row": _Module("nn.Flatten()", {})} if flat else {}
        modules = row | self._named(layers)
        parts = [*modules.values()]
        at = next((at for at, part in enumerate(parts) if part.text == "nn.Flatten()"), 0)
        if numbered and at:
            ends = {"features": parts[:at], "classifier": parts[at + 1 :]}
            one, other = (
                {name: _called("Layers", {str(n): part for n, part in enumerate(end)})}
                for name, end in ends.items()
            )
            modules = one | {"flatten": parts[at]} | other
        self.net = _called("Layers", modules)

    def _named(self, layers: Sequence[Layer]) -> Named:
        found: Named = {}
        for layer in layers:
            name = self._name(layer)
            *before, last = self._modules(layer)
            found |= {f"{name}_{at}": each for at, each in enumerate(before)}
            found[name] = last
        return found

    def _name(self, layer: Layer) -> str:
        """The last word of its name, as torchvision has it, of which PyTorch makes no other use."""
        names = (theirs for own, theirs in self._theirs.items() if own.startswith(f"{layer.name}."))
        name = next(names, layer.name).split(".")[layer.name.count(".")]
        taken = name in RESERVED.split() or re.match("_|register_", name)
        return f"{name}_" if taken else name

    def _modules(self, layer: Layer) -> Sequence[_Module]:
        if not isinstance(layer, Composite):
            return [_Module(*each) for each in MODULES[layer.kind](layer, self._arrays)]
        ways = [*map(self._named, layer.paths)]
        if isinstance(layer, ConcatLayer):
            each = [_called("Layers", way) if way else _Module("nn.Identity()", {}) for way in ways]
            return [_called("Concat", {f"branch{at}": way for at, way in enumerate(each, 1)})]
        return [_called("Residual" if isinstance(layer, Residual) else "Layers", *ways)]


def _called(name: str, *given: Named) -> _Module:
    texts, state = [], dict[str, Array]()
    for each in given:
        lines = "".join(f"{quoted(key)}: {module.text},\n" for key, module in each.items())
        texts.append(f"{{\n{textwrap.indent(lines, '    ')}}}")
        for own, module in each.items():
            state |= {f"{own}.{key}": array for key, array in module.state.items()}
    return _Module(f"{name}({', '.join(texts)})", state)


def is_written(layer: Layer) -> bool:
    """Whether a layer has a module, which those of plugins have not."""
    return layer.kind in MODULES or layer.kind in _MADE_OF_LAYERS


class Torch(Format):
    """A Python file with a module of PyTorch, and its weights in a .safetensors file beside it."""

    kind = "torch"
    suffix = ".py"
    outer = True
    ops: ClassVar[frozenset[type[Op]]] = frozenset(op for op in Numpy.ops if op not in INTEGERS)

    def check(self, plain: Plain) -> None:
        super().check(plain)
        for layer in walk(plain.layers):
            if not is_written(layer):
                names = {name for op in plain.ops for name in able(type(op))} - {self.kind}
                raise ExportError(
                    f"layer '{layer.name}' ({layer.kind}): {self.kind} knows the layers of "
                    f"dnnstack alone; formats that have it: {', '.join(sorted(names))}"
                )

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        from safetensors.numpy import save

        net = Writer(plain.layers, plain.arrays).net
        shape, end = (", ".join(map(str, t.shape[1:])) for t in (plain.x, plain.y))
        modules = textwrap.indent(net.text.removeprefix("Layers("), " " * 8).lstrip()
        body = f'''
class Net(Layers):
    """(N, {shape}), as ``preprocess`` gives it -> (N, {end}) scores."""

    def __init__(self):
        super().__init__({modules}
'''
        used = {name for name in SOURCES if f" {name}(" in body} | {"Layers"}
        named = [SOURCES[each] for each in SOURCES if each in used]
        text = "\n\n\n".join(part.strip("\n") for part in (*named, body, _functions(plain)))
        functional = "import torch.nn.functional as F\n" if re.search(r"\bF\.", text) else ""
        text = f'''"""{plain.name}, a network for PyTorch, written by dnnstack."""

from pathlib import Path

import torch
{functional}from safetensors.torch import load_file
from torch import nn

{_constants(plain)}


{text}
'''
        state = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in net.state.items()}
        return {".safetensors": save(state, {"format": "pt"}), "": text.encode()}

    def twin(self, path: Path, plain: Plain) -> Twin | None:
        if importlib.util.find_spec("torch") is None:
            return None
        module: dict[str, Any] = {"__file__": str(path), "__name__": "exported"}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module)
        net = module["load"]()

        def answers(raw: Array) -> Array:
            found: Array = module["predict"](net, raw).numpy().reshape(len(raw), -1)
            return found

        return Twin(f"PyTorch {module['torch'].__version__}", answers)


def _functions(plain: Plain) -> str:
    """What is around the network: preprocessing, weights, answers."""
    known = {layer.name for layer in walk(plain.layers)} | {"data"}
    answer = "net(preprocess(raw))"
    for op in [op for op in plain.ops if op.origin[0].layer not in known]:
        if isinstance(op, ops.Scale):
            answer = f"({answer} * {op.factor!r})"
        elif isinstance(op, ops.Softmax):
            answer += ".softmax(1)"
        elif isinstance(op, ops.Activation) and op.kind == "sigmoid":
            answer += ".sigmoid()"
        else:
            raise ExportError(f"torch has no {op.name} after the scores; formats: numpy")
    shape = ", ".join(map(str, plain.x.shape[1:]))
    what = "pixels from 0 to 255" if plain.pixels else "numbers"
    return f'''
def preprocess(raw):
    """raw: (N, {shape}) {what} -> what the network takes."""
    return torch.as_tensor(raw, dtype=torch.float32) * SCALE + SHIFT


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
    lines.append(f"CLASSES = [{', '.join(map(quoted, plain.classes))}]")
    for name, values in (("SCALE", plain.scale), ("SHIFT", plain.shift)):
        lines.append(f"{name} = torch.tensor({values.tolist()})[:, None, None]")
    return "\n".join(lines)
