"""Convolutions by graphs of cuDNN's frontend: one operation, a plan, bound pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ....common.errors import CudnnError
from ....graph.geometry import Window
from ...known import Kind
from .candidates import Candidates
from .conv_check import OUTPUT, Run, addresses, is_exact, is_right
from .conv_plans import ConvPlans, ConvSpec
from .cudnn_library import Cudnn
from .operand import Operand
from .plan_files import RestoredPlan
from .runtime import address_of, cuda_api, cupy_on
from .timing import gives_equal_bits


class ConvGraph(Candidates):
    """One convolution operation with its candidate plans: the one chosen, and what it works on.

    The arguments are those of ``ConvSpec``. Precision and equal bits are asked for, then verified
    by running, once for each plan as long as the library knows the result. Raises CudnnError, with
    the geometry, if no engine takes it.
    """

    def __init__(
        self,
        library: Cudnn,
        kind: Kind,
        operands: Mapping[str, Operand],
        window: Window,
        *,
        relu: bool = False,
        exact: bool = False,
        deterministic: bool = True,
    ) -> None:
        given = (kind, tuple(operands.items()), window)
        spec = ConvSpec(*given, relu=relu, exact=exact, deterministic=deterministic)
        # First, so that they are freed before the library, with which the handle may go.
        self._made: ConvPlans | None = None
        self._restored: RestoredPlan | None = None
        self._spec = spec
        self._wanted: int | None = None
        self._library, self.stream = library, library.stream
        self._verdicts = library.verdicts_of(spec)
        self._failed: set[int] = set()
        self._operands = dict(operands)
        self.shown = spec.shown()
        self.plan_name = ""
        self._ends: dict[str, int] = {}
        self._workspace = 0

    @property
    def _plans(self) -> ConvPlans:
        """All plans: made when they are asked for, since the one that is wanted may be restored.

        Raises CudnnError, with the geometry, if no engine takes the convolution.
        """
        if self._made is None:
            self._made = self._library.conv_plans(self._spec)
        return self._made

    def plans(self) -> int:
        return self._plans.count()

    def build(self, index: int) -> bool:
        if index in self._failed:
            return False
        ready = self._plans.build(index)
        self._library.let_go(self._plans)
        if not ready:
            self._failed.add(index)
        return ready

    def name(self, index: int) -> str:
        return self._plans.name(index)

    def choose(self, index: int | None = None, like: str = "") -> None:
        """Take a candidate: the one given, else the first that can be built and is verified, before
        others one of the name ``like``.

        Raises CudnnError if there is none, as with an index that no longer exists.
        """
        self._wanted = index
        self._restored = self._library.restored_plan(self._spec, index)
        if self._restored is not None:
            facts = self._restored.facts
            self.plan, self.plan_name = facts.plan, facts.name
            return
        if index is None:
            index = self._first(like)
        elif not 0 <= index < self.plans() or not self.build(index):
            raise self._refused(f"plan {index} of the tuning cannot be built")
        self.plan, self.plan_name = index, self.name(index)
        self._keep()

    def _keep(self) -> None:
        verified = self._verdicts.get(self.plan, False)
        self._library.files.keep(self._plans, self._wanted, self.plan, verified)

    def _first(self, like: str) -> int:
        workspace, every = None, range(self.plans())
        for index in sorted(every, key=lambda each: self.name(each) != like) if like else every:
            known = self._verdicts.get(index)
            if known is False or not self.build(index):
                continue
            if known:
                return index
            size = max(self._plans.workspace_bytes(index), 16)
            if workspace is None or workspace.size < size:
                workspace = cuda_api().empty(size, "uint8")
            if self.verified(index, address_of(workspace)):
                return index
        raise self._refused("no plan can be built that keeps its promises")

    @property
    def workspace_bytes(self) -> int:
        if self._restored is not None:
            return self._restored.facts.workspace
        return self._plans.workspace_bytes(self.plan)

    def bind(self, pointers: Mapping[str, int], workspace: int) -> None:
        """Fix the device pointers of x, w, y and bias, and of the workspace."""
        self._ends, self._workspace = dict(pointers), workspace

    def run(self) -> None:
        """Launch the chosen plan on its stream."""
        self.launch(self.plan, self._workspace)()

    def _by_id(self, pointers: Mapping[str, int]) -> dict[int, int]:
        return {self._plans.ids[name]: pointer for name, pointer in pointers.items()}

    def _execute(self, pointers: Mapping[int, int], workspace: int, plan: int) -> None:
        self._plans.execute(pointers, workspace, plan)

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        if self._restored is not None and index == self.plan:
            ids = self._restored.facts.ids
            pointers = {ids[name]: pointer for name, pointer in self._ends.items()}
            return partial(self._restored.execute, pointers, workspace)
        return partial(self._execute, self._by_id(self._ends), workspace, index)

    def verified(self, index: int, workspace: int) -> bool:
        """Whether a candidate is right and keeps what was asked for: equal bits twice, no operand
        rounded. That it does not run is not remembered: the next trial may have the memory."""
        if index not in self._verdicts:
            try:
                self._verdicts[index] = self._verify(index, workspace)
            except CudnnError:
                return False
        return self._verdicts[index]

    def keeps_promises(self) -> bool:
        """Whether the plan taken is verified, by another process or now."""
        if self._restored is not None and self._restored.facts.verified:
            return True
        if not (self.build(self.plan) and self.verified(self.plan, self._workspace)):
            return False
        self._keep()
        return True

    def _verify(self, index: int, workspace: int) -> bool:
        run = partial(self._try, index, workspace)
        memory = (workspace, self._plans.workspace_bytes(index))
        with cupy_on(self.stream):
            return (
                is_right(self._spec.kind, self._operands, self._spec.window, run, memory)
                and (not self._spec.deterministic or self._repeats(run))
                and (not self._spec.exact or self._is_exact(run))
            )

    def _try(self, index: int, workspace: int, pointers: Mapping[str, int]) -> None:
        self._execute(self._by_id(pointers), workspace, index)

    def _repeats(self, run: Run) -> bool:
        arrays = {name: operand.noise() for name, operand in self._operands.items()}
        return gives_equal_bits(partial(run, addresses(arrays)), arrays[OUTPUT[self._spec.kind]])

    def _is_exact(self, run: Run) -> bool:
        spec = self._spec
        return is_exact(spec.kind, self._operands, spec.window, run, spec.relu)

    def _refused(self, reason: str) -> CudnnError:
        return self._spec.refusal(RuntimeError(reason))


def best_first(times: Mapping[int, float]) -> Sequence[int]:
    """Candidates, the fastest first."""
    return sorted(times, key=times.__getitem__)
