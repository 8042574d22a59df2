"""The nodes of a graph that count, and what exporters write as several of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from .onnx_file import Node


def needed(nodes: Sequence[Node], output: str) -> list[Node]:
    """The nodes that the output depends on, in their order; x * sigmoid(x) is one, a Silu."""
    readers = Counter(name for node in nodes for name in node.inputs)
    gates = {
        node.output: node.inputs[0]
        for node in nodes
        if node.op == "Sigmoid" and readers[node.output] == 1
    }
    wanted, found = {output}, []
    for node in reversed(nodes):
        if node.output not in wanted:
            continue
        for gate, x in zip(node.inputs, node.inputs[::-1], strict=True):
            if node.op == "Mul" and x == gates.get(gate):
                node = replace(node, op="Silu", inputs=(x,))
        wanted.update(node.inputs)
        found.append(node)
    return found[::-1]
