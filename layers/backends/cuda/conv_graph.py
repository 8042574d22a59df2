"""Convolutions as graphs of cuDNN's frontend: one operation, a plan, bound pointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....common.errors import CudnnError
from ...geometry import Window
from ...graph import Shape
from .cudnn_library import Cudnn
from .runtime import cupy, device, frontend

# A plan that wants more is not worth the memory on nets of this size.
WORKSPACE_LIMIT = 256 << 20
# Launches in one timing: enough to hide that the host launches slower than the device runs.
CALLS = 8


def strides(shape: Shape, layout: str) -> Shape:
    """Strides in elements of (N, C, H, W) for "nchw" or "nhwc"."""
    _, c, h, w = shape
    return (c * h * w, h * w, w, 1) if layout == "nchw" else (h * w * c, 1, w * c, c)


class ConvGraph:
    """One convolution operation as a frontend graph with its candidate plans.

    ``exact``: no tensor cores, so no operand is rounded to TF32. ``deterministic``: only engines
    that say they repeat. Raises CudnnError, with the geometry, where no engine takes it.
    """

    def __init__(
        self,
        library: Cudnn,
        kind: str,
        x: Shape,
        w: Shape,
        y: Shape,
        window: Window,
        layout: str,
        *,
        bias: bool = False,
        relu: bool = False,
        exact: bool = False,
        deterministic: bool = True,
    ) -> None:
        self._library = library
        self.shown: dict[str, object] = {
            "kind": kind,
            "x": x,
            "w": w,
            "y": y,
            "window": str(window),
            "layout": layout,
        }
        cudnn = frontend()
        float32 = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=float32,
            intermediate_data_type=float32,
            compute_data_type=float32,
            handle=library.handle,
        )
        self._graph = graph

        def tensor(name: str, shape: Shape) -> Any:
            stride = list(strides(shape, layout))
            return graph.tensor(name=name, dim=list(shape), stride=stride, data_type=float32)

        top, bottom, left, right = window.padding
        slide = {
            "pre_padding": [top, left],
            "post_padding": [bottom, right],
            "stride": list(window.stride),
            "dilation": list(window.dilation),
        }
        if kind == "forward":
            ends = {"x": tensor("x", x), "w": tensor("w", w)}
            out, out_name, out_shape = (
                graph.conv_fprop(image=ends["x"], weight=ends["w"], **slide),
                "y",
                y,
            )
            if bias:
                ends["bias"] = tensor("bias", (1, y[1], 1, 1))
                out.set_data_type(float32)
                out = graph.bias(input=out, bias=ends["bias"])
            if relu:
                out.set_data_type(float32)
                out = graph.relu(input=out)
        elif kind == "data":
            ends = {"y": tensor("y", y), "w": tensor("w", w)}
            out, out_name, out_shape = (
                graph.conv_dgrad(loss=ends["y"], filter=ends["w"], **slide),
                "x",
                x,
            )
        else:
            ends = {"x": tensor("x", x), "y": tensor("y", y)}
            out, out_name, out_shape = (
                graph.conv_wgrad(image=ends["x"], loss=ends["y"], **slide),
                "w",
                w,
            )
        out.set_output(True).set_dim(list(out_shape)).set_data_type(float32)
        out.set_stride(list(strides(out_shape, layout)))
        ends[out_name] = out
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
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

    def plans(self) -> int:
        """How many candidates there are, the heuristics' first choice first."""
        return int(self._graph.get_execution_plan_count())

    def build(self, index: int) -> bool:
        """Build a candidate; False where it cannot be, or wants too much workspace."""
        if index not in self._built:
            try:
                self._graph.build_plan_at_index(index)
                size = int(self._graph.get_workspace_size_plan_at_index(index))
            except Exception:  # the frontend raises a type of its own for each reason
                size = WORKSPACE_LIMIT + 1
            self._built[index] = size
        return self._built[index] <= WORKSPACE_LIMIT

    def choose(self, index: int | None = None) -> None:
        """Take a candidate: the one given, or the first that can be built."""
        order: Sequence[int] = range(self.plans()) if index is None else (index,)
        for candidate in order:
            if self.build(candidate):
                self.plan = candidate
                self.plan_name = str(self._graph.get_plan_name_at_index(candidate))
                return
        raise self._refused(RuntimeError("no plan could be built"))

    @property
    def workspace_bytes(self) -> int:
        return self._built[self.plan]

    def bind(self, pointers: Mapping[str, int], workspace: int) -> None:
        """Fix the device pointers of x, w, y and bias, and of the workspace."""
        self._pointers = {self._ids[name]: pointer for name, pointer in pointers.items()}
        self._workspace = workspace

    def run(self) -> None:
        """Launch the chosen plan on our stream."""
        try:
            self._graph._execute_plan_at_index(
                self._pointers, self._workspace, self.plan, self._library.handle, None, None, None
            )
        except Exception as error:
            raise self._refused(error) from None

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        """Device seconds of one candidate, the fastest of ``repeats`` after a warm-up.

        workspace: a device pointer to WORKSPACE_LIMIT bytes. Infinite for a candidate that fails.
        """
        cp, stream = cupy(), device().stream
        before = self.plan, self._workspace
        self.plan, self._workspace = index, workspace
        try:
            self.run()
            best = float("inf")
            for _ in range(repeats):
                start, stop = cp.cuda.Event(), cp.cuda.Event()
                start.record(stream)
                for _ in range(CALLS):
                    self.run()
                stop.record(stream)
                stop.synchronize()
                best = min(best, cp.cuda.get_elapsed_time(start, stop) / 1e3 / CALLS)
            return best
        except CudnnError:
            return float("inf")
        finally:
            self.plan, self._workspace = before

    def repeats_itself(self, index: int, workspace: int, output: Any) -> bool:
        """Whether a candidate gives equal bits twice. output: the device array that it writes."""
        before = self.plan, self._workspace
        self.plan, self._workspace = index, workspace
        try:
            results = []
            for _ in range(2):
                self.run()
                results.append(output.copy())
            return bool((results[0].view("uint32") == results[1].view("uint32")).all())
        finally:
            self.plan, self._workspace = before

    def _refused(self, error: Exception) -> CudnnError:
        text = " ".join(str(error).split())
        return CudnnError("cuDNN frontend", "pygraph", text[:300], self.shown)
