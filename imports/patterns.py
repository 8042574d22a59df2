"""Groups of nodes of an ONNX file that are one layer, and what our own exports begin with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import sqrt

import numpy as np

from ..common.typed_json import from_json
from ..graph.graph import Shape
from ..training.records.formats.provenance import Side
from .onnx_file import Node, OnnxFile


def needed(file: OnnxFile, start: str, output: str) -> list[Node]:
    """The nodes between two tensors that the second depends on, in their order.

    x sigmoid(x) is one, a Silu, and so is x / 2 (1 + erf(x / sqrt(2))), a Gelu. What joins more
    than a node before it, as in a DenseNet, joins that node and the rest.
    """
    readers = Counter(name for node in file.nodes for name in node.inputs)
    made = {node.output: node for node in file.nodes if readers[node.output] == 1}
    wanted, found = {output}, []
    joined: dict[tuple[str, ...], str] = {}
    nodes = [_rest(node, joined) for node in file.nodes]
    for node in reversed(nodes):
        if node.output not in wanted or node.output == start:
            continue
        if node.op == "Mul":
            for gate, x in zip(node.inputs, node.inputs[::-1], strict=True):
                if gate in made and made[gate].op == "Sigmoid" and made[gate].inputs[0] == x:
                    node = replace(node, op="Silu", inputs=(x,))
        if node.op == "Mul" and (x := _of_gelu(file, made, node)):
            node = replace(node, op="Gelu", inputs=(x,))
        if node.op == "Sum" and len(node.inputs) == 2:
            node = replace(node, op="Add")
        wanted.update(node.inputs)
        found.append(node)
    return found[::-1]


def _rest(node: Node, joined: dict[tuple[str, ...], str]) -> Node:
    if node.op != "Concat":
        return node
    known = [count for count in range(1, len(node.inputs)) if node.inputs[:count] in joined]
    joined[node.inputs] = node.output
    if not known:
        return node
    first = joined[node.inputs[: known[-1]]]
    return replace(node, inputs=(first, *node.inputs[known[-1] :]))


def _of_gelu(file: OnnxFile, made: Mapping[str, Node], node: Node) -> str:
    """x, of a product of x, 1/2 and 1 + erf(x / sqrt(2)) in any order; else ""."""

    def is_near(name: str, value: float) -> bool:
        array = file.arrays.get(name)
        return array is not None and array.size == 1 and abs(array.item() - value) < 1e-6

    def beside(name: str, op: str, value: float) -> str:
        """What this operator computes the tensor of, with a number; else ""."""
        if name not in made or made[name].op != op:
            return ""
        one, other = made[name].inputs
        if is_near(other, value):
            return one
        return other if is_near(one, value) and op != "Div" else ""

    for inner, last in zip(node.inputs, node.inputs[::-1], strict=True):
        product = made.get(inner)
        three = [last, *product.inputs] if product is not None and product.op == "Mul" else []
        halves = [name for name in three if is_near(name, 0.5)]
        for name in three if halves else ():
            erf = made.get(beside(name, "Add", 1.0))
            if erf is not None and erf.op == "Erf":
                given = erf.inputs[0]
                x = beside(given, "Div", sqrt(2)) or beside(given, "Mul", sqrt(0.5))
                if x and Counter(three) == Counter((x, name, halves[0])):
                    return x
    return ""


def prepared(file: OnnxFile) -> tuple[str, Shape, list[float], list[float]] | None:
    """Of pictures in a file of ``dnnstack export``: the tensor that its layers begin with, its
    (C, H, W), and what it normalises with, mean and deviation of pixels / 255; else None."""
    by = {node.name: node for node in file.nodes}
    end, *both = (by.get(f"normalise.{name}") for name in ("Cast_", "Mul", "Add"))
    names = [node.inputs[1] for node in both if node is not None and len(node.inputs) == 2]
    if end is None or len(names) < 2 or not {*names} <= file.arrays.keys():
        return None
    try:
        shape = from_json(file.said["dnnstack.input"], tuple[Side, Side, Side])
    except (KeyError, ValueError):
        return None
    scale, shift = (file.arrays[name].astype(np.float64).ravel() for name in names)
    if file.inputs[0].name != "images" or not {scale.size, shift.size} <= {1, shape[0]}:
        return None
    if not (scale > 0).all():
        return None
    return end.output, shape, (-shift / scale / 255).tolist(), (1 / scale / 255).tolist()
