"""A network as a graph of layers, and its training step as one of operations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..backends.base import Backend
from ..common.printable import paragraph, printable
from ..common.records import dataclass
from ..common.text import shape_text
from ..configs import RunConfig
from ..datasets import DatasetInfo
from ..layers.composite import Composite, Sequential
from ..layers.layer import Layer
from ..training.assemble import build_network, describe_data
from .explain import explain
from .explain_text import part_text
from .network_drawing import Box, network_drawing
from .summary import summarize
from .svg import written
from .units import quantity


@dataclass(frozen=True)
class NetworkGraph:
    """Boxes, and edges from the number of one to that of another, with the shape that passes."""

    title: str
    boxes: list[Box]
    edges: list[tuple[int, int, str]]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "boxes": [vars(box) for box in self.boxes]}

    def as_text(self) -> str:
        """Each box, with what it is and from where it gets what."""
        lines = [self.title]
        for number, box in enumerate(self.boxes):
            lines += ["", box.title, f"  {'; '.join(box.lines)}"]
            lines += [f"  <- {self.boxes[a].title}: {s}" for a, b, s in self.edges if b == number]
        return paragraph(lines)

    def as_svg(self) -> str:
        return written(network_drawing(self.boxes, self.edges, self.title))

    __str__, _repr_svg_ = as_text, as_svg

    def as_dot(self) -> str:
        """The text that Graphviz reads."""
        texts = ["\n".join(map(printable, (box.title, *box.lines))) for box in self.boxes]
        quoted = [json.dumps(text, ensure_ascii=False) for text in (self.title, *texts)]
        lines = [f"n{n} [shape=box label={text}]" for n, text in enumerate(quoted[1:])]
        lines += [f'n{a} -> n{b} [label="{shape}"]' for a, b, shape in self.edges]
        return "\n".join([f"digraph {quoted[0]} {{", *lines, "}"])


def layer_graph(config: RunConfig, file: Path, name: str, info: DatasetInfo | None) -> NetworkGraph:
    """The layers with the figures of ``summarize``, to which ``info`` goes; raises what that does.

    Branches join in a box with the name of the composite; a sequential layer has none.
    """
    info = info or describe_data(config)
    first, *rows, last = summarize(config, file, info=info).rows
    known, shapes = {row.name: row for row in rows}, list[str]()
    found = NetworkGraph(f"{name}: {info.name}", [], [])

    def reach(layer: str, ends: Sequence[int]) -> int:
        row = known.get(layer, last) if ends else first
        found.edges.extend((end, len(shapes), shapes[end]) for end in dict.fromkeys(ends))
        shapes.append(shape_text(row.output_shape))
        costs = f"{row.parameters:,} parameters, {quantity(row.forward_flops, 'FLOP')}"
        found.boxes.append(Box(row.name, (f"{row.type} {shapes[-1]}".strip(), costs)))
        return len(shapes) - 1

    def joined(layers: Sequence[Layer], end: int) -> int:
        for layer in layers:
            paths = layer.paths if isinstance(layer, Composite) else ((),)
            ends = [joined(path, end) for path in paths]
            end = ends[0] if isinstance(layer, Sequential) else reach(layer.name, ends)
        return end

    reach("", [joined(build_network(config, info, file).layers, reach("", []))])
    return found


def operation_graph(config: RunConfig, file: Path, title: str, backend: Backend) -> NetworkGraph:
    """The operations of forward and backward as a backend runs them; raises what ``explain`` does.

    What updates, and the edges of parameters and of the target, are left out.
    """
    told, makers = explain(config, file, backend, False, lambda text: None), dict[Any, int]()
    found = NetworkGraph(f"{title}: a training step, {backend.name}", [], [])
    for each in (each for each in told.operations if each.origin.phase != "update"):
        number, made = len(found.boxes), each.op.writes()
        for tensor in dict.fromkeys(each.op.reads()):
            if tensor in makers and tensor != told.plain["target"]:
                found.edges.append((makers[tensor], number, shape_text(tensor.shape)))
        makers |= dict.fromkeys(made, number)
        parts = [part_text(each.op, part) for part in each.replaced]
        # A single part was only moved.
        lines = [shape_text(made[0].shape), *parts[len(parts) == 1 :]]
        lines.append(quantity(each.op.flops(), "FLOP"))
        found.boxes.append(Box(each.title, (*lines,), rises=each.origin.phase == "backward"))
    return found
