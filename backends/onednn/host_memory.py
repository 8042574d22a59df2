"""Whether the memory that a network is bound to is there, before any of it is touched."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ...common import limits
from ...common.errors import ConfigError, DnnlError
from ...graph.graph import Graph
from ...graph.ops import Reshape
from ..batch import batch_key, parts_of
from .memory import allowance

MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")
# Of the free memory, for the batch that is named: the needs of tensors and of memories differ so.
SHARE = 0.6


def free_bytes() -> int:
    """What this process may still allocate: free memory and swap, within the limits set for it."""
    return min(_of_the_machine(), limits.memory()[1], _of_the_process())


def _of_the_machine() -> int:
    try:
        lines = (line.split() for line in MEMINFO.read_text("utf-8").splitlines())
        amounts = {words[0]: int(words[1]) << 10 for words in lines}
        return amounts["MemAvailable:"] + amounts["SwapFree:"]
    except (OSError, ValueError, KeyError, IndexError):
        return limits.UNLIMITED


def _of_the_process() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return limits.UNLIMITED
    held = 0
    with suppress(OSError, ValueError, IndexError):
        held = int(STATM.read_text("utf-8").split()[0]) * resource.getpagesize()
    return max(most - held, 0)


@contextmanager
def enough_for(graphs: Mapping[str, Graph]) -> Iterator[None]:
    """Inside this block the memories that are made are counted; the system gives each at once, and
    kills the process when it is used.

    Raises ConfigError, naming a batch that should do, if they are more than is free.
    """
    free = free_bytes()
    counted, allowance.left = allowance.left, free
    try:
        yield
    except MemoryError:
        raise _refusal(graphs, free) from None
    except DnnlError as error:
        if error.status != "out_of_memory":
            raise
        raise _refusal(graphs, free) from None
    finally:
        allowance.left = counted


def _refusal(graphs: Mapping[str, Graph], free: int) -> ConfigError:
    needs = {name: _bytes(graph) for name, graph in graphs.items()}
    name = max(needs, key=needs.__getitem__)
    graph, own = graphs[name], max(needs[name], 1)
    key = batch_key(name)
    rest = SHARE * (free - sum(needs.values()) + own)
    largest = min(int(rest * graph.batch_size / own), graph.batch_size - 1) * parts_of(graph)
    advice = f"{key} of {largest} should fit: --set {key}={largest}"
    if largest < 1:
        advice = f"lower {key}, or use a smaller network or a machine with more memory"
    return ConfigError(
        f"device 'cpu': the network needs more memory than is free, {free / 1e9:.2f} GB; the most "
        f"is needed by '{name}' with a batch of {graph.batch_size}; {advice}"
    )


def _bytes(graph: Graph) -> int:
    """Of all that a section writes: some share a place, copies in other layouts are apart."""
    written = {t for op in graph.ops if not isinstance(op, Reshape) for t in op.writes()}
    return sum(tensor.nbytes for tensor in written)
