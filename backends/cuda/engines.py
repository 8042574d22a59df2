"""Every engine that cuDNN has for a convolution, with the notes on its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...common.errors import CudnnError
from ...graph.ops import Conv2d
from ..base import Array, Engine
from .libraries.conv_plans import ConvPlans, ConvSpec
from .libraries.cudnn_library import Cudnn
from .libraries.layout import Layout
from .libraries.operand import Operand
from .libraries.runtime import address_of, cuda_api, frontend
from .libraries.timing import captured_seconds


def engines(cudnn: Cudnn, op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
    """Of each engine the first plan that can be built, for pictures as NCHW, then as NHWC."""
    every, stream = {"x": op.x.shape, "w": op.w.shape, "y": op.y.shape}, cudnn.stream
    for order in ("nchw", "nhwc"):
        lie = {name: Layout(shape, shape, order == "nhwc") for name, shape in every.items()}
        operands = tuple((name, Operand.of(layout)) for name, layout in lie.items())
        spec = ConvSpec("forward", operands, op.window, deterministic=False)
        with suppress(CudnnError):
            plans, first = ConvPlans(cudnn.handle, spec), dict[str, int]()
            for index in range(plans.count()):
                engine = plans.name(index).partition("_")[0]
                if engine not in first and plans.build(index):
                    first[engine] = index
            noted = _noted(cudnn, spec, first)
            with stream:
                arrays = {k: cuda_api().asarray(lie[k].pack(v)) for k, v in (("x", x), ("w", w))}
                arrays["y"] = cuda_api().zeros(op.y.size, "float32")
            pointers = {plans.ids[name]: address_of(array) for name, array in arrays.items()}
            for engine, index in first.items():
                size = plans.workspace_bytes(index)
                with stream:
                    space = cuda_api().empty(max(size, 16), "uint8")
                launch = partial(plans.execute, pointers, address_of(space), index)
                run = partial(_run, launch, stream, lie["y"], arrays["y"])
                # By these two it computes less than the formula, and cuDNN does not tell how much.
                fast = {"FFT", "WINOGRAD"} & set(noted[engine])
                told = (noted[engine], None if fast else op.flops(), size)
                seconds = partial(captured_seconds, launch, stream, 5)
                yield Engine("cuDNN", f"{engine} {order}", *told, run, seconds)


def _run(launch: Callable[[], None], stream: Any, layout: Layout, y: Any) -> Array:
    with stream:
        launch()
        return layout.unpack(y.get())


def _noted(cudnn: Cudnn, spec: ConvSpec, first: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The notes of each engine: those with which its plan can still be built, if all others are
    left out. The frontend filters by notes, but has no function that tells them."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(first, ())
    for note in frontend().numerical_note.__members__:
        with suppress(CudnnError):
            plans = ConvPlans(cudnn.handle, spec, note)
            for engine in (engine for engine, index in first.items() if plans.build(index)):
                found[engine] += (note,)
    return found
