"""A stand-in for cuDNN's frontend: counts graphs and plans, records launches, computes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class FakeEnd:
    """A tensor of a graph; its setters chain."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def get_uid(self) -> int:
        return self._uid

    def _set(self, _: object) -> FakeEnd:
        return self

    set_output = set_dim = set_stride = set_data_type = _set


class FakeGraph:
    """What ``pygraph`` makes: ``asked`` holds all that it was asked for."""

    def __init__(self, frontend: FakeFrontend, handle: int, asked: dict[str, Any]) -> None:
        self._frontend, self._handle, self._ends = frontend, handle, 0
        self.asked: list[tuple[str, Any]] = [("graph", asked)]
        self.built: list[int] = []
        self.barred: set[int] = set()

    def _end(self, name: str, given: Mapping[str, Any]) -> FakeEnd:
        shown = {key: each for key, each in given.items() if not isinstance(each, FakeEnd)}
        self.asked.append((name, shown))
        self._ends += 1
        # Ids of another graph must not do for this one.
        return FakeEnd(1000 * len(self._frontend.numbers) + self._ends)

    def tensor(self, **given: Any) -> FakeEnd:
        return self._end("tensor", given)

    def conv_fprop(self, **given: Any) -> FakeEnd:
        return self._end("conv_fprop", given)

    def conv_dgrad(self, **given: Any) -> FakeEnd:
        return self._end("conv_dgrad", given)

    def conv_wgrad(self, **given: Any) -> FakeEnd:
        return self._end("conv_wgrad", given)

    def bias(self, **given: Any) -> FakeEnd:
        return self._end("bias", given)

    def relu(self, **given: Any) -> FakeEnd:
        return self._end("relu", given)

    def validate(self) -> None:
        pass

    build_operation_graph = validate

    def create_execution_plans(self, modes: list[str]) -> None:
        self.asked.append(("modes", modes))

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.asked.append(("without", notes))

    def select_numeric_notes(self, notes: list[str]) -> None:
        self.barred = set(range(self._frontend.plans)) - self._frontend.noted.get(notes[0], set())

    def check_support(self) -> None:
        self._frontend.asked += 1
        if self._frontend.refusal:
            raise RuntimeError(self._frontend.refusal)

    def get_execution_plan_count(self) -> int:
        return self._frontend.plans

    def build_plan_at_index(self, index: int) -> None:
        self._frontend.tried.append(index)
        if index in self._frontend.unbuildable | self.barred:
            raise RuntimeError("no memory")
        self.built.append(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._frontend.workspace * (index + 1)

    def get_plan_name_at_index(self, index: int) -> str:
        return self._frontend.names[index] if self._frontend.names else f"engine {index}"

    def serialize(self) -> list[int]:
        if not self._frontend.serializes:
            raise RuntimeError("not supported")
        return [*b"engine ", self.built[-1]]

    def deserialize(self, handle: int, data: list[int]) -> None:
        if self._frontend.refused or bytes(data[:-1]) != b"engine ":
            raise RuntimeError("another version")
        assert handle == self._handle
        self.built = [0]

    def _execute_plan_at_index(
        self, pointers: Mapping[int, int], workspace: int, index: int, handle: int, *_: None
    ) -> None:
        assert handle == self._handle
        assert index in self.built
        self._frontend.launched.append((dict(pointers), workspace, index))


class FakeFrontend:
    """``made``: the graphs that still exist; ``numbers``: one for each that was ever made.

    ``freed``: for each handle that was destroyed, how many graphs made with it existed then.
    """

    data_type = SimpleNamespace(FLOAT="float", BFLOAT16="bfloat16")
    heur_mode = SimpleNamespace(A="a", B="b", FALLBACK="fallback")
    numerical_note = SimpleNamespace(
        TENSOR_CORE="tensor cores",
        NONDETERMINISTIC="unequal",
        __members__={name: name for name in ("FFT", "NONDETERMINISTIC", "WINOGRAD")},
    )

    def __init__(self) -> None:
        self.made = weakref.WeakSet[FakeGraph]()
        self.numbers: list[int] = []
        self.launched: list[tuple[dict[int, int], int, int]] = []
        self.tried: list[int] = []
        self.freed: list[tuple[int, int]] = []
        self.plans, self.workspace = 12, 100
        self.refusal = ""
        self.unbuildable: set[int] = set()
        # Names of plans, and by each note the plans that have it.
        self.names: list[str] = []
        self.noted: dict[str, set[int]] = {}
        # Graphs of which plans were asked for; whether plans become bytes, and these are refused.
        self.asked, self.serializes, self.refused = 0, False, False
        self._handles = 0

    def create_handle(self) -> int:
        self._handles += 1
        return self._handles

    def destroy_handle(self, handle: int) -> None:
        self.freed.append((handle, sum(graph._handle == handle for graph in self.made)))

    def set_stream(self, handle: int, stream: int) -> None:
        pass

    def pygraph(self, *, handle: int, **given: Any) -> FakeGraph:
        graph = FakeGraph(self, handle, given)
        self.numbers.append(len(self.numbers))
        self.made.add(graph)
        return graph
