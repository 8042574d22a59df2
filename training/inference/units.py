"""The pictures that excite units of a layer most, and what the units see of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from ...backends.base import Backend
from ...graph.graph import Tensor
from .inspect import Array, compiled
from .trained import Trained

_BATCH, COUNT = 64, 9


def excited(
    trained: Trained,
    backend: Backend,
    pictures: Array,
    rows: Array,
    layer: str,
    units: Sequence[int],
) -> tuple[Array, Array, Array]:
    """For each unit or map of a layer the nine of pictures[rows] with its highest outputs.

    (units, 9) each: rows, outputs, and the place of the output in its map; the highest first.
    """
    values, places = [], []
    graph, executable = compiled(trained, backend, _BATCH, slopes=False)
    with closing(executable):
        run = executable.function(graph.name, graph["x"], graph["scores"])
        for part in np.split(rows, range(_BATCH, len(rows), _BATCH)):
            full = np.resize(pictures[part], (_BATCH, *trained.input_shape))
            run(trained.checkpoint.provenance.preprocessing(full))
            maps = executable.read(graph.outputs[layer])[: len(part), list(units)]
            maps = maps.reshape(len(part), len(units), -1)
            values.append(maps.max(2).T)
            places.append(maps.argmax(2).T)
    found, where = np.hstack(values), np.hstack(places)
    best = np.argsort(-found, 1, "stable")[:, :COUNT]
    return rows[best], np.take_along_axis(found, best, 1), np.take_along_axis(where, best, 1)


def field(trained: Trained, layer: str, place: int) -> tuple[int, int, int, int]:
    """The pixels that an output of a layer depends on: first row, row after the last, columns.

    place: of the output in its map. An output of a layer without maps sees the whole picture.
    """
    graph = trained.network.infer_graph(1)
    size, output = np.array(trained.input_shape[1:]), graph.outputs[layer]
    if len(output.shape) != 4:
        return 0, int(size[0]), 0, int(size[1])
    zero = np.zeros(2, int)
    # For each tensor: the first and last pixel of its output at (0, 0), and the step to the next.
    seen: dict[Tensor, tuple[Array, Array, Array]] = {graph["x"]: (zero, zero, zero + 1)}
    for op in graph.ops:
        known = [seen[t] for t in op.reads() if t in seen] or [*seen.values()][:1]
        firsts, lasts, steps = zip(*known, strict=True)
        first, last, step = np.min(firsts, 0), np.max(lasts, 0), steps[0]
        window = getattr(op, "window", None)
        if window is not None:
            first = first - step * window.padding[::2]
            last = last + step * (np.array(window.extent) - 1 - window.padding[::2])
            step = step * window.stride
        seen |= dict.fromkeys(op.writes(), (first, last, step))
    first, last, step = seen[output]
    at = step * np.unravel_index(place, output.shape[2:])
    (top, left), (bottom, right) = np.maximum(first + at, 0), np.minimum(last + at + 1, size)
    return int(top), int(bottom), int(left), int(right)
