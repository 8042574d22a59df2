"""The numbers of one training step: every tensor, forward and backward, with formula and call."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend, BoundCall
from ..common.errors import UsageError
from ..common.printable import paragraph, printable
from ..common.records import dataclass
from ..common.text import shape_text
from ..datasets.loader import Index
from ..graph.graph import EXTERNAL, Op
from ..graph.ops import Reshape
from ..training.one_batch import first_samples, on_batch
from ..training.setup import Setup
from .contact_sheet import write

AFTER = "after/"
"""Before the name of a tensor that the step has changed."""
_WIDTH = 79
# The most numbers that are printed, and of larger tensors the first rows and columns.
_MOST, _CORNER = 128, 3


@dataclass(frozen=True)
class Step:
    """A training step as its plain operations compute it.

    ``operations``: in order; ``calls``: those of the device for them; ``tensors``: all by name,
    what the step changes a second time as ``after/NAME``. samples: those of the batch, by number;
    ``rate``: lr of the formulas.
    """

    config: str
    backend: str
    samples: tuple[int, ...]
    rate: float
    operations: tuple[Op, ...]
    calls: tuple[BoundCall, ...]
    tensors: Mapping[str, NDArray[Any]]

    def to_json(self) -> dict[str, Any]:
        """Of tensors of more than 128 numbers the values are left out; None is no number."""
        listed = [
            {
                "op": op.name,
                "layer": op.origin[0].layer,
                "phase": op.origin[0].phase,
                "formula": _formula(op),
                "calls": self._called(op),
                "reads": _named(op, (*op.inputs, *op.updates)),
                "writes": _named(op, (*op.outputs, *op.updates)),
            }
            for op in self.operations
        ]
        tensors = {name: _figures(array) for name, array in self.tensors.items()}
        head = {key: getattr(self, key) for key in ("config", "backend", "samples", "rate")}
        return {**head, "operations": listed, "tensors": tensors}

    def as_text(self) -> str:
        """Each tensor is printed where it first occurs, and where the step has changed it."""
        batch = ", ".join(map(str, self.samples[:8])) + ", ..." * (len(self.samples) > 8)
        head = f"A training step of {printable(self.config)} on {self.backend}"
        lines = [f"{head}: sample {batch}, lr {self.rate:.4g}"]
        place, shown = None, set[str]()
        for op in self.operations:
            if op.origin[0] != place:
                place = op.origin[0]
                lines += ["", f"{place.layer}, {place.phase}"]
            title = f"{op.name} {getattr(op, 'kind', '')}".rstrip()
            lines += ["", f"  {title}: {_formula(op)}"]
            lines += [f"    {called}" for called in self._called(op)]
            fields = (("", (*op.inputs, *op.outputs, *op.updates)), (AFTER, op.updates))
            for when, names in fields:
                for field, tensors in _named(op, names).items():
                    for tensor in tensors:
                        lines += self._tensor(field, f"{when}{tensor}", shown)
        return paragraph(lines)

    def save(self, path: Path) -> None:
        """Write every tensor to an .npz file, under the names that are printed."""
        buffer = io.BytesIO()
        np.savez(buffer, **dict[str, Any](self.tensors))
        write(buffer.getvalue(), path)

    def _called(self, op: Op) -> list[str]:
        found = [call for call in self.calls if call.op == op]
        return [" ".join(filter(None, (c.library, c.function, c.implementation))) for c in found]

    def _tensor(self, field: str, name: str, shown: set[str]) -> list[str]:
        # Of a gradient that is clipped in place there is nothing else.
        name = name if name in self.tensors else f"{AFTER}{name}"
        if name not in self.tensors:
            return []
        array, known = self.tensors[name], name in shown
        shown.add(name)
        head = f"    {field} = {name}  {shape_text(array.shape)}"
        return [f"{head}, as above"] if known else [head, *(f"      {r}" for r in _rows(array))]


def take_step(config: str, setup: Setup, backend: Backend, sample: int | None = None) -> Step:
    """The first step, on the batch of the training or this sample. Raises DnnstackError."""
    if sample is not None and not 0 <= sample < len(setup.data):
        raise UsageError(
            f"sample {sample}: the training set has {len(setup.data)} samples, counted from 0"
        )
    rows = first_samples(setup, setup.plan.batch_size)
    return step_on(config, setup, backend, rows if sample is None else np.array([sample], np.int32))


def step_on(config: str, setup: Setup, backend: Backend, rows: Index) -> Step:
    """One step on the samples ``rows``, from the first weights."""
    with closing(on_batch(setup, rows, backend, setup.fresh(), whole=True)) as session:
        executable, graph = session.executable, session.stretches[0].train
        graph = executable.graphs[graph.name]
        # Of whole data sets and tables of rates nothing is shown.
        used = [tensor for tensor in graph.tensors() if tensor.role != "data"]
        changed = {t for op in graph.ops for t in op.tensors(op.updates)}
        tensors = {t.name: executable.read(t) for t in used if t.role in EXTERNAL}
        # A view has the memory of what it views, such as weights that the step then moves.
        views = [op for op in graph.ops if isinstance(op, Reshape)]
        tensors |= {
            v.y.name: tensors[v.x.name].reshape(v.y.shape) for v in views if v.x.name in tensors
        }
        changed |= {view.x for view in views if view.y in changed}
        session.run(1)
        computed = (t for t in used if t.name not in tensors and t not in changed)
        tensors |= {t.name: executable.read(t) for t in computed}
        tensors |= {f"{AFTER}{t.name}": executable.read(t) for t in used if t in changed}
        samples = tuple(int(row) for row in rows)
        what = (session.rate, tuple(graph.ops), tuple(executable.calls(graph.name)))
        return Step(config, backend.name, samples, *what, tensors)


def _formula(op: Op) -> str:
    """The first line of what describes the operation, and of the formula that it shares."""
    described = (type(each) for each in (op, getattr(op, "formula", None)) if each is not None)
    found = " ".join((each.__doc__ or "").strip().partition("\n")[0] for each in described)
    return found.replace("``", "")


def _named(op: Op, fields: Sequence[str]) -> dict[str, list[str]]:
    return {field: [t.name for t in op.tensors((field,))] for field in fields}


def _figures(array: NDArray[Any]) -> dict[str, Any]:
    told = finite(dict(zip(("mean", "deviation"), _spread(array), strict=True)))
    if array.size <= _MOST:
        values = array.astype(object)
        values[~np.isfinite(array)] = None
        told["values"] = values.tolist()
    return {"shape": array.shape, "dtype": str(array.dtype), **told}


def finite(figures: Mapping[str, float]) -> dict[str, Any]:
    """For JSON, which has no word for what is no number."""
    return {key: value if isfinite(value) else None for key, value in figures.items()}


def _spread(array: NDArray[Any]) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        return float(array.mean(dtype=np.float64)), float(array.std(dtype=np.float64))


def _rows(array: NDArray[Any]) -> list[str]:
    """The numbers, matrices side by side; of many their mean, deviation and first corner."""
    more = []
    if array.size > _MOST:
        mean, deviation = _spread(array)
        more = [f"mean {mean:.4g}, deviation {deviation:.4g}; it begins with"]
        array = array[(0,) * (array.ndim - 2)]
        array = array[tuple(slice(_CORNER) for _ in array.shape)]
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    cells = np.vectorize(lambda number: f"{number:.4g}", otypes=[object])(array)
    width = max(map(len, cells.flat))
    room = max(1, _WIDTH // (array.shape[3] * (width + 1) + 2))
    lines = [
        "   ".join(" ".join(f"{cell:>{width}}" for cell in matrix[row]) for matrix in beside)
        for sample in cells
        for beside in (sample[at : at + room] for at in range(0, len(sample), room))
        for row in range(array.shape[2])
    ]
    return [*more, *lines]
