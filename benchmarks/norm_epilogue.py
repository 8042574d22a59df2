"""Sums of batch norm in the epilogue of a convolution: what cuDNN's way costs, and could save.

    python3 benchmarks/norm_epilogue.py

For each convolution of airbench that batch norm follows at once: microseconds of the fastest of
cuDNN's first plans for the convolution alone, in bfloat16, and of its fastest that also adds up the
channels and their squares (GenStats), in bfloat16 and in float16, or why cuDNN refuses that. What
lies between is to be compared with what batch norm's own sums take: ``dnnstack explain --config
cifar10-airbench-muon.yaml --device cuda --measure``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.backends.cuda.libraries.runtime import address_of, cuda_api, device, frontend
from dnnstack.backends.cuda.libraries.timing import captured_seconds

# Channels in and out, rows and columns.
CONVOLUTIONS = ((64, 64, 15), (256, 256, 7), (256, 256, 3))
BATCH, REPEATS = 2000, 20
# Plans that are timed, in the order of cuDNN's heuristics; to build one takes half a second.
MOST_PLANS = 12


def graph_of(
    handle: int, inputs: int, filters: int, size: int, sums: bool, half: bool
) -> tuple[Any, Any]:
    """A graph of cuDNN's frontend, and its tensors: x, w, y and perhaps both sums."""
    cudnn = frontend()
    types = cudnn.data_type
    number = types.HALF if half else types.BFLOAT16
    graph = cudnn.pygraph(
        io_data_type=number,
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        handle=handle,
    )

    def channels_last(n: int, c: int, h: int) -> dict[str, list[int]]:
        return {"dim": [n, c, h, h], "stride": [c * h * h, 1, c * h, c]}

    x = graph.tensor(name="x", data_type=number, **channels_last(BATCH, inputs, size))
    w = graph.tensor(name="w", data_type=number, **channels_last(filters, inputs, 3))
    slide = {"pre_padding": [1, 1], "post_padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    y = graph.conv_fprop(image=x, weight=w, **slide)
    shape = channels_last(BATCH, filters, size)
    y.set_output(True).set_data_type(number)
    y.set_dim(shape["dim"]).set_stride(shape["stride"])
    found = []
    if sums:
        found = list(graph.genstats(input=y, name="sums", compute_data_type=types.FLOAT))
        for each in found:
            each.set_output(True).set_data_type(types.FLOAT)
            each.set_dim([1, filters, 1, 1]).set_stride([filters, 1, filters, filters])
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    return graph, (x, w, y, *found)


def fastest(
    handle: int, inputs: int, filters: int, size: int, sums: bool, half: bool
) -> tuple[float, int]:
    """Microseconds of the fastest plan, and how many ran. Raises the frontend's errors."""
    graph, ends = graph_of(handle, inputs, filters, size, sums, half)
    cuda = cuda_api()
    counts = (BATCH * inputs * size**2, filters * inputs * 9, BATCH * filters * size**2)
    arrays = [cuda.zeros(count, "uint16") for count in counts]
    arrays += [cuda.zeros(filters, "float32") for _ in ends[3:]]
    pairs = zip(ends, arrays, strict=True)
    pointers = {int(end.get_uid()): address_of(array) for end, array in pairs}
    times = []
    for index in range(min(MOST_PLANS, int(graph.get_execution_plan_count()))):
        try:
            graph.build_plan_at_index(index)
            size_of = int(graph.get_workspace_size_plan_at_index(index))
            workspace = cuda.empty(max(size_of, 16), "uint8")
            rest = (address_of(workspace), index, handle, None, None, None)
            run: Callable[[], Any] = partial(graph._execute_plan_at_index, pointers, *rest)
            times.append(1e6 * captured_seconds(run, device().stream, REPEATS))
        except Exception as error:  # the frontend raises a type of its own for each reason
            print(f"  plan {index}: {' '.join(str(error).split())[:100]}")
    return min(times, default=float("nan")), len(times)


def main() -> None:
    library = Cudnn(device().stream)
    for inputs, filters, size in CONVOLUTIONS:
        told = []
        for sums, half in ((False, False), (True, False), (True, True)):
            try:
                time, plans = fastest(int(library.handle), inputs, filters, size, sums, half)
                told.append(f"{time:.1f} us ({plans} plans)")
            except Exception as error:
                told.append(f"refused: {' '.join(str(error).split())[:160]}")
        name = f"{inputs} to {filters}, {size}x{size}, {BATCH} pictures"
        print(f"{name}: alone {told[0]}; with sums {told[1]}; in float16 {told[2]}", flush=True)


if __name__ == "__main__":
    main()
