"""Values that are not finite: detecting them early and cheaply, and finding their origin.

After every chunk of steps the sums of the loss are checked, which costs nothing; they stay nan or
infinite once a loss is. A bad gradient may not affect the loss, but it affects the parameters.
Therefore these and the optimizer's state are also checked: before every checkpoint, and
periodically, in at most a hundredth of the time. The last state that was finite is the last good
state. From there the same steps are repeated one by one to find the first bad step. The reference
backend, which keeps every tensor, then repeats that step to find the first bad tensor in the order
of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from time import perf_counter

import numpy as np

from ..backends.base import Array, Executable
from ..common.errors import NonFiniteError
from ..common.records import dataclass
from ..graph.graph import Graph, Op, Tensor
from .records.formats.state import Snapshot
from .session import Section, Session

_SHARE = 0.01


@dataclass(frozen=True)
class Finding:
    """The first tensor that is not finite at ``step`` (the number of updates after it)."""

    step: int
    layer: str
    tensor: str
    text: str


class Watch:
    """Watches a session from ``start`` on; ``good`` is the last state known to be finite."""

    good: Snapshot

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cost = 0.0
        self._looked = perf_counter()

    def start(self) -> None:
        """Start with the session's state. Raises NonFiniteError if that is not finite."""
        self.good = self._session.snapshot()
        for name, array in self.good.arrays.items():
            if not np.isfinite(array).all():
                raise NonFiniteError(
                    f"before step {self.good.step + 1}: '{name}' has values that are not finite "
                    f"({_counts(array)}); check the initialiser of layer '{_owner(name)}'"
                )

    def look(self, again: bool = False) -> bool:
        """Whether the whole state is finite; if so, it becomes the last good state.

        A state that was already read at the same step is not read again, except for the sums of the
        metrics, which a line of the log resets between two steps; ``again``: it is nevertheless.
        """
        if self._session.step == self.good.step and not again:
            self.good = replace(self.good, sums=self._session.sums())
            return True
        began = perf_counter()
        now = self._session.snapshot()
        sound = _finite(now)
        if sound:
            self.good = now
        self._looked = perf_counter()
        self._cost = self._looked - began
        return sound

    def glance(self) -> bool:
        """``look`` if the last one was long enough ago; else check only the loss."""
        if perf_counter() - self._looked < self._cost / _SHARE:
            return bool(np.isfinite(self._session.sums()).all())
        return self.look()

    def find(self, stop_requested: Callable[[], bool]) -> Finding | None:
        """Find the origin of the first bad value; None if it does not recur, or on a stop.

        Afterwards the session is at that step.
        """
        session, end = self._session, self._session.step
        session.put(self.good)
        while session.step < end and not stop_requested():
            before = self.good
            session.run(1)
            now = session.snapshot()
            if not _finite(now):
                return self._locate("train", before, 0, f"step {session.step}")
            self.good = now
        return None

    def find_in_validation(self) -> Finding | None:
        """The same for a validation whose loss is not finite."""
        batch = self._session.bad_evaluation_batch()
        if batch is None:
            return None
        now = self._session.snapshot()
        where = f"step {self._session.step}, batch {batch + 1} of the validation"
        return self._locate("evaluate", now, batch, where)

    def _locate(self, section: Section, at: Snapshot, batch: int, where: str) -> Finding | None:
        from ..backends.reference.backend import ReferenceBackend

        session = self._session
        found, names = None, []
        with closing(session.repeat(ReferenceBackend(1), section, at, batch)) as again:
            for executable, graph in again:
                names.append(graph.name)
                if found := _first_bad(executable, graph):
                    break
        if found is None:
            # Near the limits of float32 the result depends on the order of a sum. The device's own
            # values are less useful: many were overwritten by later ones.
            for name in dict.fromkeys(names):
                found = found or _first_bad(session.executable, session.executable.graphs[name])
        if found is None:
            return None
        op, tensor, array = found
        layer = _layer(op, tensor)
        owner = f"layer '{layer}'" if layer in self._layers() else f"the {layer}"
        text = (
            f"{where}: {op.name} of {owner} ({op.origin[0].phase}) gave the "
            f"first values that are not finite: {_counts(array)} in '{tensor.name}' {tensor.shape}"
        )
        return Finding(session.step, layer, tensor.name, text)

    def _layers(self) -> set[str]:
        return {layer.name for layer in self._session.network.every_layer()}


def _finite(snapshot: Snapshot) -> bool:
    if not np.isfinite(snapshot.sums).all():
        return False
    return all(bool(np.isfinite(array).all()) for array in snapshot.arrays.values())


def _first_bad(executable: Executable, graph: Graph) -> tuple[Op, Tensor, Array] | None:
    for op in graph.ops:
        for tensor in op.writes():
            if tensor.dtype not in ("float32", "float64"):
                continue
            try:
                array = executable.read(tensor)
            except KeyError:
                continue  # its memory was given to a later tensor
            if not np.isfinite(array).all():
                return op, tensor, array
    return None


def _layer(op: Op, tensor: Tensor) -> str:
    """The layer that a tensor belongs to; an update handles all layers at once."""
    if tensor.role == "parameter" or "/" in tensor.name:
        return _owner(tensor.name)
    return op.origin[0].layer


def _owner(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]


def _counts(array: Array) -> str:
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    parts = [f"{count} {what}" for count, what in ((nan, "nan"), (inf, "inf")) if count]
    return f"{' and '.join(parts)} of {array.size}"
