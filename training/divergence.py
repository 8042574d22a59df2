"""Values that are not finite: noticing them soon and cheaply, and finding where they came from.

After every chunk of steps the sums of loss are looked at, which costs nothing; a loss that is nan
or infinite stays in them. A gradient need not reach the loss, but it reaches the parameters: they
and the optimizer's state are read now and then, so that it takes at most a hundredth of the time,
and before every checkpoint. What was read and is finite is the last good state. From there the same
steps are done again, one by one, to find the first bad one; and that step again by the reference
backend, which keeps every tensor, to name the first bad one in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from ..backends.base import Array, Executable
from ..common.errors import NonFiniteError
from ..graph.graph import Graph, Op, Tensor
from .session import Section, Session, Snapshot

_SHARE = 0.01


@dataclass(frozen=True)
class Finding:
    """The first tensor that is not finite at ``step`` (the number of updates after it)."""

    step: int
    layer: str
    tensor: str
    text: str


class Watch:
    """Looks after a session, from ``start`` on; ``good`` is the last state seen to be finite."""

    good: Snapshot

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cost = 0.0
        self._looked = perf_counter()

    def start(self) -> None:
        """From the session's state on. Raises NonFiniteError where that is bad already."""
        self.good = self._session.snapshot()
        for name, array in self.good.arrays.items():
            if not np.isfinite(array).all():
                raise NonFiniteError(
                    f"before step {self.good.step + 1}: '{name}' holds values that are not finite "
                    f"({_counts(array)}); look at the initialiser of layer '{_owner(name)}'"
                )

    def loss_is_finite(self) -> bool:
        return bool(np.isfinite(self._session.sums()).all())

    def look(self) -> bool:
        """Whether the whole state is finite; reads it, so that it is the last good one.

        A state that was read already, at the same step, is not read again: only the sums of the
        metrics, which a line of the log sets to zero between two steps.
        """
        if self._session.step == self.good.step:
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
        """``look``, if the last one was long enough ago; else whether the loss is finite."""
        if perf_counter() - self._looked < self._cost / _SHARE:
            return self.loss_is_finite()
        return self.look()

    def find(self, stop_requested: Callable[[], bool]) -> Finding | None:
        """Where the first bad value came from; None if it does not come again, or on a stop.

        The session is then at that step.
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
            # At the edge of what float32 holds the order of a sum decides. The device's own values
            # say less: many have been overwritten by later ones.
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
    """The layer that a tensor belongs to; an update works for all of them at once."""
    if tensor.role == "parameter" or "/" in tensor.name:
        return _owner(tensor.name)
    return op.origin[0].layer


def _owner(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]


def _counts(array: Array) -> str:
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    parts = [f"{count} {what}" for count, what in ((nan, "nan"), (inf, "inf")) if count]
    return f"{' and '.join(parts)} of {array.size}"
