"""The convolutions of a network, each computed in every way that there is, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..backends.base import Array, Backend, Engine
from ..backends.reference.algorithms import ALGORITHMS, direct
from ..backends.reference.backend import ReferenceBackend
from ..common.errors import LibraryError
from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.text import shape_text
from ..configs import RunConfig
from ..graph.ops import Conv2d
from ..training.assemble import build_network, check_declared, describe_data
from ..training.network_size import blamed, check_memory
from .tables import fitted
from .units import bytes_text, quantity, time_text

_HEAD = ("algorithm", "time", "workspace", "error", "FLOP", "repeats", "notes")
Shown = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The convolutions of a network in the order of forward, as JSON has them.

    ``error``: the largest difference from the direct sums in float64, as a share of the largest of
    these. ``repeats``: whether two runs gave equal bits, and the library does not deny it.
    """

    config: str
    backend: str
    batch_size: int
    convolutions: tuple[Shown, ...]

    def to_json(self) -> Shown:
        return vars(self)

    def as_text(self, width: int | None = None) -> str:
        """A table for each convolution, the fastest way first."""
        lines = [f"The convolutions of {self.config}, batch {self.batch_size}, forward, in float32"]
        for each in self.convolutions:
            x, w, y = (shape_text(each[name]) for name in "xwy")
            rows = sorted(each["algorithms"], key=lambda way: float(way["seconds"]))
            lines += ["", f"{each['layer']}  {x}, {w} -> {y}, window {each['window']}"]
            lines += fitted([_HEAD, *map(_cells, rows)], "<>>>><", width, (6, 5, 4))
            lines += [f"refused: {text}" for text in each["refused"]]
        if not self.convolutions:
            lines.append("There are none.")
        return paragraph(lines)


def _cells(way: Shown) -> tuple[str, ...]:
    flops = "-" if way["flops"] is None else quantity(way["flops"])
    costs = time_text(way["seconds"]), bytes_text(way["workspace"]), f"{way['error']:.1e}", flops
    repeats = "yes" if way["repeats"] else "no"
    return f"{way['library']} {way['name']}", *costs, repeats, " ".join(way["notes"])


def compare(config: RunConfig, file: Path, backend: Backend) -> Comparison:
    """Run every way of every convolution on noise: ours in NumPy, and the backend's.

    Raises ShapeError, ConfigError or DatasetError if the config cannot be trained.
    """
    check_declared(config)
    network = build_network(config, describe_data(config), file)
    check_memory(network, backend)
    size, found, known = config.data.batch_size, list[Shown](), dict[str, Shown]()
    with blamed(network, size):
        for op in network.infer_graph(size).ops:
            if isinstance(op, Conv2d):
                shapes = {name: getattr(op, name).shape for name in "xwy"}
                own = {**shapes, "window": str(op.window), "groups": op.groups}
                known[str(own)] = known.get(str(own)) or _computed(op, backend)
                found.append({"layer": op.origin[0].layer, **own, **known[str(own)]})
    return Comparison(str(file), backend.name, size, tuple(found))


def _computed(op: Conv2d, backend: Backend) -> Shown:
    draw = np.random.default_rng(1).standard_normal
    x, w = (draw(tensor.shape, np.float32) for tensor in (op.x, op.w))
    exact = direct(op, x.astype(np.float64), w.astype(np.float64))
    ours = ReferenceBackend(1)
    ways, refused = list[Shown](), [*filter(None, (each.refusal(op.window) for each in ALGORITHMS))]
    for each in [ours] if backend.name == ours.name else [ours, backend]:
        for engine in each.engines(op, x, w):
            try:
                ways.append(_tried(engine, exact))
            except LibraryError as error:
                refused.append(f"{engine.library} {engine.name}: {error}")
    return {"algorithms": ways, "refused": refused}


def _tried(engine: Engine, exact: Array) -> Shown:
    first, again = engine.run(), engine.run()
    told = {key: getattr(engine, key) for key in ("library", "name", "notes", "workspace", "flops")}
    return {
        **told,
        "seconds": engine.seconds(),
        "error": float(np.abs(first - exact).max() / np.abs(exact).max()),
        "repeats": bool((first == again).all()) and "NONDETERMINISTIC" not in engine.notes,
    }
