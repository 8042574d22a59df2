"""Seconds on the device: of launches, of work on the host between them, and of a GPU in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from ....common.errors import LibraryError
from .runtime import captured, copy_flat, cuda_api, device, device_errors, synchronize

# Launches in one timing of what is short; and seconds from which the host's time to launch is
# nothing beside a launch.
CALLS, LONG = 10, 5e-4
# Seconds that a small copy may take, with the wait for it, on a GPU that no other program uses. On
# an H200 it takes 0.014 ms, with all cores busy 0.02 ms, but 0.31 ms and more while another program
# keeps the GPU busy, since the two take turns.
ALONE_SECONDS = 2e-4
PROBE_SECONDS = 0.02


def fastest(work: Callable[[], object], stream: Any, repeats: int) -> float:
    """Device seconds between begin and end of what ``work`` launches, the least of ``repeats``."""
    event, best = cuda_api().Event, float("inf")
    for _ in range(repeats):
        start, stop = event(timing=True), event(timing=True)
        start.record(stream)
        work()
        stop.record(stream)
        stop.synchronize()
        best = min(best, start.seconds_until(stop))
    return best


def crowded() -> bool:
    """Whether another program keeps the GPU busy now, by the median time of small copies.

    Programs that share it through MPS do not take turns, and are not noticed.
    """
    stream = device().stream
    times: list[float] = []
    with stream:
        source = cuda_api().zeros(1024, "float32")
        target = source.copy()
        stream.synchronize()
        begin = now = time.perf_counter()
        while now < begin + PROBE_SECONDS:
            copy_flat(source, target, stream)
            stream.synchronize()
            before, now = now, time.perf_counter()
            times.append(now - before)
    return median(times) > ALONE_SECONDS


def captured_seconds(launch: Callable[[], None], stream: Any, repeats: int) -> float:
    """Device seconds of one launch: the fastest of ``repeats`` runs of a graph of CALLS launches.

    The host launches a small kernel slower than the device runs it, so a bare loop would time the
    host. A long one is the fastest of ``repeats`` by itself: of large networks a search would time
    every launch for seconds. Raises what ``launch`` raises.
    """
    with stream:
        launch()
        stream.synchronize()
        if fastest(launch, stream, 1) > LONG:
            # Once more, for something else may have kept the device busy.
            seconds = fastest(launch, stream, repeats)
            if seconds > LONG:
                return seconds
        graph = captured([launch] * CALLS, stream)
        graph.launch(stream)
        return fastest(lambda: graph.launch(stream), stream, repeats) / CALLS


def host_seconds(work: Callable[[], None], repeats: int) -> float:
    """Median seconds of work on the host, with its copies, behind an idle device."""
    times = []
    for _ in range(repeats):
        synchronize()
        begin = time.perf_counter()
        work()
        synchronize()
        times.append(time.perf_counter() - begin)
    return median(times)


def trial_seconds(launch: Callable[[], None], stream: Any, repeats: int) -> float:
    """``captured_seconds``; infinite for a launch that fails."""
    try:
        return captured_seconds(launch, stream, repeats)
    except (LibraryError, *device_errors()):
        return float("inf")


def gives_equal_bits(launch: Callable[[], None], output: Any) -> bool:
    """Whether a launch leaves equal bits in one of CuPy's arrays twice."""
    results = []
    for _ in range(2):
        launch()
        results.append(output.copy().view("uint8"))
    return bool((results[0] == results[1]).all())
