"""Convolutions as graphs of cuDNN's frontend: one operation, a plan, bound pointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....common.errors import CudnnError
from ....graph.geometry import Window
from ...known import Kind
from .conv_check import is_right
from .cudnn_library import Cudnn
from .layout import BFLOAT
from .operand import Operand
from .runtime import captured_seconds, cupy, device_errors, frontend

# A plan that needs more is not worth the memory on nets of this size.
WORKSPACE_LIMIT = 256 << 20
# TF32 keeps 10 bits behind the point: it loses this, float32 does not.
BEYOND_TF32 = 2.0**-12


class ConvGraph:
    """One convolution operation as a frontend graph with its candidate plans.

    kind: "forward", "data" or "filter". ``exact``: no operand may be rounded to TF32.
    ``deterministic``: only plans that repeat. Both are asked for, then verified by running.
    Raises CudnnError, with the geometry, if no engine takes it.
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
        self._library = library
        self._kind, self._window = kind, window
        self._operands = dict(operands)
        self._exact = exact
        self._deterministic = deterministic
        self.shown: dict[str, object] = {"kind": kind, **operands, "window": str(window)}
        cudnn = frontend()
        float32 = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=_type(operands["x"].dtype),
            intermediate_data_type=float32,
            compute_data_type=float32,
            handle=library.handle,
        )
        self._graph = graph
        self.output = {"forward": "y", "data": "x", "filter": "w"}[kind]
        ends = {
            name: graph.tensor(
                name=name,
                dim=list(operand.sizes),
                stride=list(operand.strides),
                data_type=_type(operand.dtype),
            )
            for name, operand in operands.items()
            if name != self.output
        }
        ends[self.output] = self._emit(graph, kind, ends, window, relu)
        try:
            graph.validate()
            graph.build_operation_graph()
            modes = cudnn.heur_mode
            graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            if exact:
                graph.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
            if deterministic:
                graph.deselect_numeric_notes([cudnn.numerical_note.NONDETERMINISTIC])
            graph.check_support()
        except Exception as error:
            raise self._refused(error) from None
        self._ids = {name: int(end.get_uid()) for name, end in ends.items()}
        self._built: dict[int, int] = {}
        self.plan = -1
        self.plan_name = ""
        self._pointers: dict[int, int] = {}
        self._workspace = 0

    def _emit(
        self, graph: Any, kind: str, ends: Mapping[str, Any], window: Window, relu: bool
    ) -> Any:
        top, bottom, left, right = window.padding
        slide = {
            "pre_padding": [top, left],
            "post_padding": [bottom, right],
            "stride": list(window.stride),
            "dilation": list(window.dilation),
        }
        float32 = frontend().data_type.FLOAT
        if kind == "forward":
            out = graph.conv_fprop(image=ends["x"], weight=ends["w"], **slide)
            if "bias" in ends:
                out.set_data_type(float32)
                out = graph.bias(input=out, bias=ends["bias"])
            if relu:
                out.set_data_type(float32)
                out = graph.relu(input=out)
        elif kind == "data":
            out = graph.conv_dgrad(loss=ends["y"], filter=ends["w"], **slide)
        else:
            out = graph.conv_wgrad(image=ends["x"], loss=ends["y"], **slide)
        result = self._operands[self.output]
        out.set_output(True).set_dim(list(result.sizes)).set_stride(list(result.strides))
        out.set_data_type(_type(result.dtype))
        return out

    def plans(self) -> int:
        """How many candidates there are, the heuristics' first choice first."""
        return int(self._graph.get_execution_plan_count())

    def build(self, index: int) -> bool:
        """Build a candidate; False if it cannot be built, or needs too much workspace."""
        if index not in self._built:
            try:
                self._graph.build_plan_at_index(index)
                size = int(self._graph.get_workspace_size_plan_at_index(index))
            except Exception:  # the frontend raises a type of its own for each reason
                size = WORKSPACE_LIMIT + 1
            self._built[index] = size
        return self._built[index] <= WORKSPACE_LIMIT

    def name(self, index: int) -> str:
        """The engine of a candidate and its knobs, as cuDNN writes them."""
        return str(self._graph.get_plan_name_at_index(index))

    def choose(self, index: int | None = None) -> None:
        """Take a candidate: the one given, else the first that can be built and is verified.

        Raises CudnnError if there is none, as with an index that no longer exists.
        """
        if index is not None:
            if not 0 <= index < self.plans() or not self.build(index):
                raise self._refused(RuntimeError(f"plan {index} of the tuning cannot be built"))
            self.plan, self.plan_name = index, self.name(index)
            return
        workspace = None
        for candidate in range(self.plans()):
            if not self.build(candidate):
                continue
            size = max(self._built[candidate], 16)
            if workspace is None or workspace.size < size:
                workspace = cupy().empty(size, "uint8")
            if self.verified(candidate, int(workspace.data.ptr)):
                self.plan, self.plan_name = candidate, self.name(candidate)
                return
        raise self._refused(RuntimeError("no plan can be built that keeps its promises"))

    @property
    def workspace_bytes(self) -> int:
        return self._built[self.plan]

    def bind(self, pointers: Mapping[str, int], workspace: int) -> None:
        """Fix the device pointers of x, w, y and bias, and of the workspace."""
        self._pointers = {self._ids[name]: pointer for name, pointer in pointers.items()}
        self._workspace = workspace

    def run(self) -> None:
        """Launch the chosen plan on its stream."""
        self._execute(self._pointers, self._workspace, self.plan)

    def _execute(self, pointers: Mapping[int, int], workspace: int, plan: int) -> None:
        handle = self._library.handle
        try:
            self._graph._execute_plan_at_index(pointers, workspace, plan, handle, None, None, None)
        except Exception as error:
            raise self._refused(error) from None

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        """Device seconds of one candidate, the fastest of ``repeats`` after a warm-up.

        workspace: a device pointer to WORKSPACE_LIMIT bytes. Infinite for a candidate that fails.
        """

        def launch() -> None:
            self._execute(self._pointers, workspace, index)

        try:
            return captured_seconds(launch, self._library.stream, repeats)
        except (CudnnError, *device_errors()):
            return float("inf")

    def verified(self, index: int, workspace: int) -> bool:
        """Whether a candidate is right and keeps what was asked for: equal bits twice, no operand
        rounded."""
        try:
            with self._library.stream:
                if not self._is_right(index, workspace):
                    return False
                repeats = not self._deterministic or self._repeats(index, workspace)
                return repeats and (not self._exact or self._is_exact(index, workspace))
        except CudnnError:
            return False

    def _is_right(self, index: int, workspace: int) -> bool:
        def run(pointers: Mapping[str, int]) -> None:
            self._execute({self._ids[n]: p for n, p in pointers.items()}, workspace, index)

        memory = (workspace, self._built[index])
        return is_right(self._kind, self._operands, self._window, run, memory)

    def _repeats(self, index: int, workspace: int) -> bool:
        arrays = {name: operand.noise() for name, operand in self._operands.items()}
        output = arrays[self.output]
        pointers = {self._ids[name]: int(array.data.ptr) for name, array in arrays.items()}
        results = []
        for _ in range(2):
            self._execute(pointers, workspace, index)
            results.append(output.copy())
        bits = [result.view("uint8") for result in results]
        return bool((bits[0] == bits[1]).all())

    def _is_exact(self, index: int, workspace: int) -> bool:
        """Every output is a count of products of 1 and 1 + BEYOND_TF32, and must show it.

        Of the batch one sample is not zero, so that a count stays far below what float32 holds.
        """
        inputs = [name for name in ("x", "w", "y") if name != self.output]
        for fine in inputs:
            arrays = {name: op.array(0.0) for name, op in self._operands.items()}
            for name in inputs:
                array, operand = arrays[name], self._operands[name]
                value = 1.0 + BEYOND_TF32 if name == fine else 1.0
                one = operand.count if name == "w" else operand.count // operand.sizes[0]
                array[:one] = value
            self._execute(
                {self._ids[name]: int(array.data.ptr) for name, array in arrays.items()},
                workspace,
                index,
            )
            found = arrays[self.output].astype("float64")
            counts = cupy().rint(found / (1.0 + BEYOND_TF32))
            gap = cupy().abs(found - counts * (1.0 + BEYOND_TF32))
            if bool((gap > counts * BEYOND_TF32 / 4).any()):
                return False
        return True

    def _refused(self, error: Exception) -> CudnnError:
        text = " ".join(str(error).split())
        return CudnnError("cuDNN frontend", "pygraph", text[:300], self.shown)


def best_first(times: Mapping[int, float]) -> Sequence[int]:
    """Candidates, the fastest first."""
    return sorted(times, key=times.__getitem__)


def _type(dtype: str) -> Any:
    types = frontend().data_type
    return {"float32": types.FLOAT, BFLOAT: types.BFLOAT16}[dtype]
