"""The nodes of an ONNX file as layers, with the same numbers; operators: https://onnx.ai/onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DnnstackError, ShapeError
from ..common.records import dataclass
from ..graph.geometry import Pair
from ..graph.graph import Shape
from ..layers.build import LayerSpec, build_layers
from .onnx_file import Arrays, Node

# The layer of an operator, and the attribute of each of its options.
_ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {
    "Relu": ("relu", {}),
    "LeakyRelu": ("leaky_relu", {"negative_slope": "alpha"}),
    "Sigmoid": ("sigmoid", {}),
    "Tanh": ("tanh", {}),
    "Elu": ("elu", {"alpha": "alpha"}),
    "Softplus": ("softplus", {}),
    "Silu": ("silu", {}),
    "HardSwish": ("hardswish", {}),
    "Mish": ("mish", {}),
    "LRN": ("lrn", {"size": "size", "alpha": "alpha", "beta": "beta", "k": "bias"}),
}
_FLATTENING = ("Flatten", "Reshape", "Squeeze")


class Refused(DnnstackError):
    """What no layer computes; each line begins with the node or the operator."""


@dataclass(frozen=True)
class Piece:
    """A layer. ``path``: the words of its name in the file. ``parameters`` and ``statistics``: its
    arrays, in the order in which the layer has them."""

    kind: str
    options: Mapping[str, Any]
    parameters: tuple[NDArray[Any], ...] = ()
    statistics: tuple[NDArray[Any], ...] = ()
    path: tuple[str, ...] = ()


class Layers:
    """The layers between the tensors of a graph.

    ``sources``: what each tensor is made of: one other by the layers ``pieces``, or several by the
    operator ``joins``. Raises Refused.
    """

    def __init__(
        self, nodes: Sequence[Node], arrays: Arrays, start: str, batch: int | None, shape: Shape
    ) -> None:
        self.arrays, self.shapes, self._batch = dict(arrays), {start: shape}, batch
        self.nodes = {node.output: node for node in nodes}
        self.sources: dict[str, tuple[str, ...]] = {}
        self.pieces: dict[str, list[Piece]] = {}
        self.joins: dict[str, str] = {}
        self.readers = Counter(name for node in nodes for name in node.inputs)
        self.read_by = {(name, node.op) for node in nodes for name in node.inputs[:1]}
        for node in nodes:
            try:
                self._add(node)
            except Refused as error:
                raise error.after(f"{node}: ") from None
            except ShapeError as error:
                raise Refused(f"{node}: {str(error).rpartition('): ')[2]}") from None

    def _add(self, node: Node) -> None:
        computed = [name for name in node.inputs if name in self.shapes]
        if any(name not in self.shapes and name not in self.arrays for name in node.inputs if name):
            raise Refused("reads what a node before it gives beside its first output")
        if not computed:
            if node.op not in ("Identity", "Cast"):
                raise Refused("is computed of arrays of the file alone")
            self.arrays[node.output] = self.arrays[node.inputs[0]]
        elif len(computed) == len(node.inputs) and node.op in ("Add", "Concat"):
            self._join(node, computed)
        elif len(computed) > 1 or (node.inputs[0] != computed[0] and node.op not in ("Add", "Mul")):
            raise Refused("no layer takes what is computed in this place")
        elif node.op not in HANDLERS:
            raise Refused("no layer does this with what is computed")
        else:
            before, made = HANDLERS[node.op](self, node, computed[0])
            self._follow(node.output, before, made)

    def _follow(self, output: str, x: str, pieces: Sequence[Piece]) -> None:
        shape = self.shapes[x]
        for piece in pieces:
            (layer,) = build_layers([LayerSpec(piece.kind, "", piece.options)], shape)
            own = [each.tensor.shape for each in layer.parameters()]
            own += [each.tensor.shape for each in layer.running_statistics()]
            given = [each.shape for each in (*piece.parameters, *piece.statistics)]
            if own != given:
                raise Refused(f"its arrays have the shapes {given}, not {own}")
            shape = layer.output_shape
        self.sources[output], self.pieces[output], self.shapes[output] = (x,), [*pieces], shape

    def _join(self, node: Node, names: Sequence[str]) -> None:
        shapes, sums = [self.shapes[name] for name in names], node.op == "Add"
        if not sums and node.attributes["axis"] not in (1, -len(shapes[0])):
            raise Refused("joins along another axis than the channels")
        if len({shape if sums else shape[1:] for shape in shapes}) > 1:
            raise Refused(f"joins {', '.join(map(str, shapes))}, which no layer does")
        channels = shapes[0][0] if sums else sum(shape[0] for shape in shapes)
        self.shapes[node.output] = (channels, *shapes[0][1:])
        self.sources[node.output], self.pieces[node.output] = (*names,), []
        if len(names) > 1:
            self.joins[node.output] = node.op

    def array(self, node: Node, place: int, default: float | None = None) -> NDArray[Any]:
        """The input at this place, which must be an array of the file, not computed."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if not name and default is not None:
            return np.asarray(default)
        if name not in self.arrays or not self.arrays[name].size:
            raise Refused(f"its input {place + 1} is no array of the file")
        return self.arrays[name]

    def per_channel(self, values: NDArray[Any], shape: Shape) -> NDArray[Any]:
        """An array that broadcasts along the channels of a sample, as one number for each."""
        axes = len(shape) + 1
        padded = values.reshape((1,) * (axes - values.ndim) + values.shape)
        if padded.shape not in ((1,) * axes, (1, shape[0], *(1 for _ in shape[1:]))):
            raise Refused(f"its array of the shape {values.shape} is not one number per channel")
        return np.array(np.broadcast_to(padded.ravel(), shape[:1]), np.float32)

    def padding(self, node: Node, x: str) -> Any:
        """``same``, or [height, width]."""
        auto, pads = node.attributes["auto_pad"], node.attributes["pads"] or [0] * 4
        if len(self.shapes[x]) != 3:
            raise Refused("is not for pictures")
        if auto == b"SAME_UPPER":
            return "same"
        if auto == b"SAME_LOWER" or len(pads) != 4 or min(pads) < 0 or pads[:2] != pads[2:]:
            raise Refused(f"has the padding {pads}, not as wide at both ends")
        return pads[:2]

    # Operators: the tensor before them, and what layers lead on from there.

    def conv(self, node: Node, x: str) -> Made:
        w = self.array(node, 1)
        shape = w.shape[2:]
        groups, size = node.attributes["group"], node.attributes["kernel_shape"]
        if w.ndim != 4 or groups < 1 or (size or [*shape]) != [*shape]:
            raise Refused("its filters are not for pictures")
        options = {"filters": w.shape[0], "kernel_size": [*shape], "groups": groups}
        options |= {"stride": _pair(node, "strides"), "dilation": _pair(node, "dilations")}
        options["padding"] = self.padding(node, x)
        return x, [self._weighted(node, "conv2d", options, w, 1.0)]

    def gemm(self, node: Node, x: str) -> Made:
        w, how = self.array(node, 1), {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
        how |= node.attributes
        if w.ndim != 2 or how["transA"]:
            raise Refused("multiplies by no matrix of units and inputs")
        w = (w if how["transB"] else w.T) * np.float32(how["alpha"])
        return x, [self._weighted(node, "dense", {"units": w.shape[0]}, w, how["beta"])]

    def _weighted(
        self, node: Node, kind: str, options: Mapping[str, Any], w: NDArray[Any], factor: float
    ) -> Piece:
        has_bias = len(node.inputs) > 2 and node.inputs[2] != ""
        arrays = [w]
        if has_bias:
            arrays.append(self.per_channel(self.array(node, 2), w.shape[:1]) * np.float32(factor))
        return Piece(kind, {**options, "use_bias": has_bias}, (*arrays,), path=_path(node))

    def batch_norm(self, node: Node, x: str) -> Made:
        if node.attributes.get("training_mode") or node.attributes.get("spatial") == 0:
            raise Refused("normalises by the batch, or each pixel by itself")
        weight, bias, mean, variance = (self.array(node, place) for place in range(1, 5))
        # There the share of the old value, here of the new one.
        momentum = round(1 - node.attributes["momentum"], 7)
        options = {"eps": node.attributes["epsilon"]}
        options |= {"momentum": momentum} if 0 < momentum <= 1 else {}
        return x, [Piece("batch_norm", options, (weight, bias), (mean, variance), _path(node))]

    def pool(self, node: Node, x: str) -> Made:
        if {*(node.attributes.get("dilations") or ())} > {1}:
            raise Refused("is dilated, which poolings here are not")
        padding, kind = self.padding(node, x), "max_pool2d"
        if node.op == "AveragePool":
            kind = "avg_pool2d"
            if node.attributes["count_include_pad"] and padding != [0, 0]:
                raise Refused("counts its padding in its means (count_include_pad)")
        options = {"pool_size": _pair(node, "kernel_shape"), "stride": _pair(node, "strides")}
        ceil = bool(node.attributes.get("ceil_mode"))
        return x, [Piece(kind, {**options, "padding": padding, "ceil_mode": ceil})]

    def whole_mean(self, node: Node, x: str) -> Made:
        shape = self.shapes[x]
        flat = any((node.output, op) in self.read_by for op in _FLATTENING)
        if node.op == "ReduceMean":
            flat = flat or not node.attributes["keepdims"]
            if len(shape) != 3 or self.axes(node, 1) != [2, 3]:
                raise Refused("is not the mean over height and width")
        if flat:
            return x, [Piece("global_avg_pool2d", {})]
        return x, [Piece("avg_pool2d", {"pool_size": [*shape[1:]]})]

    def axes(self, node: Node, place: int) -> list[int]:
        """Those of an attribute or, in later opsets, of an input; negative ones of pictures."""
        given = node.attributes.get("axes") or self.array(node, place).ravel().tolist()
        return sorted(axis + 4 if axis < 0 else axis for axis in given)

    def flatten(self, node: Node, x: str) -> Made:
        shape = self.shapes[x]
        if node.op == "Flatten":
            fits = node.attributes["axis"] in (1, -3 if len(shape) == 3 else 1)
        elif node.op == "Squeeze":
            fits = shape[1:] in ((), (1, 1)) and self.axes(node, 1) == [2, 3]
        else:
            wanted = self.array(node, 1).ravel().tolist()
            # The batch is 1 where sizes are computed.
            fits = len(wanted) == 2 and wanted[0] in (-1, 0, 1, self._batch)
            fits = fits and wanted[1] in (-1, prod(shape))
        if not fits:
            raise Refused("does not make one row of each sample")
        return x, [] if len(shape) == 1 else [Piece("flatten", {})]

    def activation(self, node: Node, x: str) -> Made:
        kind, options = _ACTIVATIONS[node.op]
        return x, [Piece(kind, {ours: node.attributes[key] for ours, key in options.items()})]

    def gelu(self, node: Node, x: str) -> Made:
        return x, [Piece("gelu", {"approximate": node.attributes.get("approximate") == b"tanh"})]

    def softmax(self, node: Node, x: str) -> Made:
        last = node.op == "Softmax" or not self.readers[node.output]
        if not last or node.attributes["axis"] not in (1, -1):
            raise Refused("is not along the classes, or a logarithm before other layers")
        return x, [Piece("softmax", {})]

    def prelu(self, node: Node, x: str) -> Made:
        slope = self.per_channel(self.array(node, 1), self.shapes[x])
        return x, [Piece("prelu", {}, (slope,), path=_path(node))]

    def dropout(self, node: Node, x: str) -> Made:
        rate = self.array(node, 1, node.attributes.get("ratio", 0.5)).ravel()[0]
        return x, [Piece("dropout", {"rate": float(str(rate))})]

    def same(self, node: Node, x: str) -> Made:
        if node.attributes.get("to", 1) != 1:
            raise Refused("converts to another type than float32")
        return x, []

    def arithmetic(self, node: Node, x: str) -> Made:
        """Add, Mul, Div with an array: a bias or a factor."""
        values = self.array(node, 1 if node.inputs[0] == x else 0)
        if node.op == "Add" and values.size == 1 and not values.any():
            return x, []
        shape, before = self.shapes[x], self.pieces.get(x, [])
        last = before[-1] if before else Piece("", {})
        if node.op == "Add" and last.options.get("use_bias") is False and self.readers[x] == 1:
            arrays = (*last.parameters, self.per_channel(values, shape))
            changed = Piece(last.kind, {**last.options, "use_bias": True}, arrays, path=last.path)
            return self.sources[x][0], [*before[:-1], changed]
        single = node.op != "Add" and values.size == 1 and values.ndim <= len(shape) + 1
        if not single or (node.op == "Div" and not values.all()):
            raise Refused("computes with an array or divides by 0, as no layer does here")
        factor = float(values.ravel()[0]) ** (-1 if node.op == "Div" else 1)
        return x, [Piece("scale", {"factor": float(str(np.float32(factor)))})]


def _pair(node: Node, key: str) -> Pair:
    found = node.attributes[key] or [1, 1]
    if len(found) != 2 or min(found) < 1:
        raise Refused(f"its {key} are {found}, not two numbers above 0")
    return found[0], found[1]


def _path(node: Node) -> tuple[str, ...]:
    """The words of a layer's name: of its weights, as PyTorch calls them, or of the node."""
    prefix, dot, _ = node.inputs[1].removesuffix(".folded").rpartition(".")
    if not dot or "::" in prefix:
        # PyTorch writes /layer1/layer1.0/conv1/Conv.
        scopes = node.name.strip("/").split("/")[:-1]
        prefix = ".".join(a for a, b in pairwise([*scopes, ""]) if not b.startswith(f"{a}."))
    return tuple(word for word in prefix.split(".") if word)


Made = tuple[str, list[Piece]]
HANDLERS: dict[str, Callable[[Layers, Node, str], Made]] = {
    **dict.fromkeys(_ACTIVATIONS, Layers.activation),
    **dict.fromkeys(_FLATTENING, Layers.flatten),
    **dict.fromkeys(("Add", "Mul", "Div"), Layers.arithmetic),
    **dict.fromkeys(("MaxPool", "AveragePool"), Layers.pool),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), Layers.whole_mean),
    **dict.fromkeys(("Gemm", "MatMul"), Layers.gemm),
    **dict.fromkeys(("Softmax", "LogSoftmax"), Layers.softmax),
    **dict.fromkeys(("Identity", "Cast"), Layers.same),
    "BatchNormalization": Layers.batch_norm,
    "Conv": Layers.conv,
    "Dropout": Layers.dropout,
    "Gelu": Layers.gelu,
    "PRelu": Layers.prelu,
}
