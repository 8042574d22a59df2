"""A convolution's graph of cuDNN's frontend and its candidate plans: what equal ones share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....common.errors import CudnnError
from ....common.records import dataclass
from ....common.typed_json import Count, Name
from ....graph.geometry import Window
from ...known import Kind
from .conv_check import OUTPUT
from .layout import BFLOAT
from .operand import Operand
from .runtime import frontend

# A plan that needs more is not worth the memory on nets of this size.
WORKSPACE_LIMIT = 256 << 20


@dataclass(frozen=True)
class ConvSpec:
    """All that a convolution's graph and its plans depend on, but for the handle.

    kind: "forward", "data" or "filter". operands: x, w, y and perhaps bias. ``exact``: no operand
    may be rounded to TF32. ``deterministic``: only plans that repeat.
    """

    kind: Kind
    operands: tuple[tuple[str, Operand], ...]
    window: Window
    relu: bool = False
    exact: bool = False
    deterministic: bool = True

    def shown(self) -> dict[str, object]:
        """What an error message and ``explain`` show."""
        return {"kind": self.kind, **dict(self.operands), "window": str(self.window)}

    def refusal(self, error: Exception) -> CudnnError:
        """What the frontend's error becomes."""
        text = " ".join(str(error).split())
        return CudnnError("cuDNN frontend", "pygraph", text[:300], self.shown())


@dataclass(frozen=True)
class PlanFacts:
    """A plan's number, name, bytes of workspace, and the ids of its tensors by name.

    ``verified``: whether it is known to keep its promises.
    """

    plan: Count
    name: Name
    workspace: Count
    ids: Mapping[str, int]
    verified: bool = False


class ConvPlans:
    """A convolution as a frontend graph, with the plans that have been built of it.

    It has neither pointers nor a plan of its own: these are given with every launch, and the
    frontend keeps nothing of them. So convolutions of one spec on one handle share it. Held are the
    graph's descriptors on the host and, of each plan that was built, its kernels on the device; no
    tensors and no workspace. ``note``: one of cuDNN's on numbers; plans without it cannot be
    built. Raises CudnnError, with the geometry, if no engine takes it.
    """

    def __init__(self, handle: int, spec: ConvSpec, note: str | None = None) -> None:
        self._handle, self.spec = handle, spec
        operands = dict(spec.operands)
        cudnn = frontend()
        graph = self._graph = cudnn.pygraph(
            io_data_type=_type(operands["x"].dtype),
            intermediate_data_type=_type("float32"),
            compute_data_type=_type("float32"),
            handle=handle,
        )
        output = OUTPUT[spec.kind]
        ends = {
            name: graph.tensor(
                name=name,
                dim=list(operand.sizes),
                stride=list(operand.strides),
                data_type=_type(operand.dtype),
            )
            for name, operand in operands.items()
            if name != output
        }
        ends[output] = self._emit(ends, operands[output])
        try:
            graph.validate()
            graph.build_operation_graph()
            modes = cudnn.heur_mode
            graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            if note is not None:
                graph.select_numeric_notes([cudnn.numerical_note.__members__[note]])
            if spec.exact:
                graph.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
            if spec.deterministic:
                graph.deselect_numeric_notes([cudnn.numerical_note.NONDETERMINISTIC])
            graph.check_support()
        except Exception as error:
            raise spec.refusal(error) from None
        self.ids = {name: int(end.get_uid()) for name, end in ends.items()}
        # Bytes of workspace of the plans that have been built, and which was built last.
        self._sizes: dict[int, int] = {}
        self._last = -1

    def _emit(self, ends: Mapping[str, Any], result: Operand) -> Any:
        graph, window = self._graph, self.spec.window
        top, bottom, left, right = window.padding
        slide = {
            "pre_padding": [top, left],
            "post_padding": [bottom, right],
            "stride": list(window.stride),
            "dilation": list(window.dilation),
        }
        if self.spec.kind == "forward":
            out = graph.conv_fprop(image=ends["x"], weight=ends["w"], **slide)
            if "bias" in ends:
                out.set_data_type(_type("float32"))
                out = graph.bias(input=out, bias=ends["bias"])
            if self.spec.relu:
                out.set_data_type(_type("float32"))
                out = graph.relu(input=out)
        elif self.spec.kind == "data":
            out = graph.conv_dgrad(loss=ends["y"], filter=ends["w"], **slide)
        else:
            out = graph.conv_wgrad(image=ends["x"], loss=ends["y"], **slide)
        out.set_output(True).set_dim(list(result.sizes)).set_stride(list(result.strides))
        out.set_data_type(_type(result.dtype))
        return out

    def count(self) -> int:
        """How many plans there are."""
        return int(self._graph.get_execution_plan_count())

    @property
    def built(self) -> int:
        """How many plans have been built, and take memory of the device."""
        return len(self._sizes)

    def build(self, index: int) -> bool:
        """Make a plan ready; False if it cannot be built, or takes too large a workspace.

        One that cannot be built is tried again by the next call, which may have the memory.
        """
        if index not in self._sizes:
            try:
                self._last = -1
                self._graph.build_plan_at_index(index)
                self._last = index
                size = int(self._graph.get_workspace_size_plan_at_index(index))
            except Exception:  # the frontend raises a type of its own for each reason
                return False
            self._sizes[index] = size
        return self._sizes[index] <= WORKSPACE_LIMIT

    def workspace_bytes(self, index: int) -> int:
        """What a plan that was built works in."""
        return self._sizes[index]

    def name(self, index: int) -> str:
        """The engine of a plan and its settings, as cuDNN names them."""
        return str(self._graph.get_plan_name_at_index(index))

    def facts(self, index: int) -> PlanFacts:
        """What is known of a plan that was built."""
        return PlanFacts(index, self.name(index), self.workspace_bytes(index), self.ids)

    def serialized(self, index: int) -> bytes | None:
        """A plan as bytes for another process; None unless it was built last, or cuDNN can not."""
        if index != self._last:
            return None
        try:
            return bytes(self._graph.serialize())
        except Exception:  # not every engine can
            return None

    def execute(self, pointers: Mapping[int, int], workspace: int, index: int) -> None:
        """Launch a plan that was built. pointers: of the device, by ``ids``. Raises CudnnError."""
        run = self._graph._execute_plan_at_index
        try:
            run(pointers, workspace, index, self._handle, None, None, None)
        except Exception as error:
            raise self.spec.refusal(error) from None


def _type(dtype: str) -> Any:
    types = frontend().data_type
    return {"float32": types.FLOAT, BFLOAT: types.BFLOAT16}[dtype]
