"""Convolutions as graphs of cuDNN's frontend: one operation, a plan, bound pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ....common.errors import CudnnError
from ....graph.geometry import Window
from ...known import Kind
from .candidates import Candidates
from .conv_check import OUTPUT, Run, addresses, is_right
from .cudnn_library import Cudnn
from .layout import BFLOAT
from .operand import Operand
from .runtime import address_of, cupy, frontend, gives_equal_bits

# A plan that needs more is not worth the memory on nets of this size.
WORKSPACE_LIMIT = 256 << 20
# TF32 keeps 10 bits behind the point: it loses this, float32 does not.
BEYOND_TF32 = 2.0**-12


class ConvGraph(Candidates):
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
        # Kept: with the library its handle would go.
        self._library, self._handle, self.stream = library, library.handle, library.stream
        self._kind, self._window = kind, window
        self._operands = dict(operands)
        self._exact = exact
        self._deterministic = deterministic
        self.shown: dict[str, object] = {"kind": kind, **operands, "window": str(window)}
        cudnn = frontend()
        graph = self._graph = cudnn.pygraph(
            io_data_type=_type(operands["x"].dtype),
            intermediate_data_type=_type("float32"),
            compute_data_type=_type("float32"),
            handle=self._handle,
        )
        self.output = OUTPUT[kind]
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
        ends[self.output] = self._emit(ends, relu)
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
        self.plan_name = ""
        self._pointers: dict[int, int] = {}
        self._workspace = 0

    def _emit(self, ends: Mapping[str, Any], relu: bool) -> Any:
        graph, window = self._graph, self._window
        top, bottom, left, right = window.padding
        slide = {
            "pre_padding": [top, left],
            "post_padding": [bottom, right],
            "stride": list(window.stride),
            "dilation": list(window.dilation),
        }
        if self._kind == "forward":
            out = graph.conv_fprop(image=ends["x"], weight=ends["w"], **slide)
            if "bias" in ends:
                out.set_data_type(_type("float32"))
                out = graph.bias(input=out, bias=ends["bias"])
            if relu:
                out.set_data_type(_type("float32"))
                out = graph.relu(input=out)
        elif self._kind == "data":
            out = graph.conv_dgrad(loss=ends["y"], filter=ends["w"], **slide)
        else:
            out = graph.conv_wgrad(image=ends["x"], loss=ends["y"], **slide)
        result = self._operands[self.output]
        out.set_output(True).set_dim(list(result.sizes)).set_stride(list(result.strides))
        out.set_data_type(_type(result.dtype))
        return out

    def plans(self) -> int:
        return int(self._graph.get_execution_plan_count())

    def build(self, index: int) -> bool:
        if index not in self._built:
            try:
                self._graph.build_plan_at_index(index)
                size = int(self._graph.get_workspace_size_plan_at_index(index))
            except Exception:  # the frontend raises a type of its own for each reason
                size = WORKSPACE_LIMIT + 1
            self._built[index] = size
        return self._built[index] <= WORKSPACE_LIMIT

    def name(self, index: int) -> str:
        return str(self._graph.get_plan_name_at_index(index))

    def choose(self, index: int | None = None) -> None:
        """Take a candidate: the one given, else the first that can be built and is verified.

        Raises CudnnError if there is none, as with an index that no longer exists.
        """
        if index is None:
            index = self._first()
        elif not 0 <= index < self.plans() or not self.build(index):
            raise self._refused(RuntimeError(f"plan {index} of the tuning cannot be built"))
        self.plan, self.plan_name = index, self.name(index)

    def _first(self) -> int:
        workspace = None
        for index in filter(self.build, range(self.plans())):
            size = max(self._built[index], 16)
            if workspace is None or workspace.size < size:
                workspace = cupy().empty(size, "uint8")
            if self.verified(index, address_of(workspace)):
                return index
        raise self._refused(RuntimeError("no plan can be built that keeps its promises"))

    @property
    def workspace_bytes(self) -> int:
        return self._built[self.plan]

    def bind(self, pointers: Mapping[str, int], workspace: int) -> None:
        """Fix the device pointers of x, w, y and bias, and of the workspace."""
        self._pointers = self._by_id(pointers)
        self._workspace = workspace

    def run(self) -> None:
        """Launch the chosen plan on its stream."""
        self._execute(self._pointers, self._workspace, self.plan)

    def _by_id(self, pointers: Mapping[str, int]) -> dict[int, int]:
        return {self._ids[name]: pointer for name, pointer in pointers.items()}

    def _execute(self, pointers: Mapping[int, int], workspace: int, plan: int) -> None:
        run = self._graph._execute_plan_at_index
        try:
            run(pointers, workspace, plan, self._handle, None, None, None)
        except Exception as error:
            raise self._refused(error) from None

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        return partial(self._execute, self._pointers, workspace, index)

    def verified(self, index: int, workspace: int) -> bool:
        """Whether a candidate is right and keeps what was asked for: equal bits twice, no operand
        rounded."""
        run, memory = partial(self._try, index, workspace), (workspace, self._built[index])
        try:
            with self.stream:
                return (
                    is_right(self._kind, self._operands, self._window, run, memory)
                    and (not self._deterministic or self._repeats(run))
                    and (not self._exact or self._is_exact(index, workspace))
                )
        except CudnnError:
            return False

    def _try(self, index: int, workspace: int, pointers: Mapping[str, int]) -> None:
        self._execute(self._by_id(pointers), workspace, index)

    def _repeats(self, run: Run) -> bool:
        arrays = {name: operand.noise() for name, operand in self._operands.items()}
        return gives_equal_bits(partial(run, addresses(arrays)), arrays[self.output])

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
            self._try(index, workspace, addresses(arrays))
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
