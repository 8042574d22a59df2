"""What a section leaves behind, for tests that compare several executables of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnnstack.backends.base import Array, Executable
from dnnstack.graph.graph import Tensor


def outcome(
    executable: Executable, values: Mapping[Tensor, Array], wanted: Iterable[Tensor], steps: int = 1
) -> dict[str, Array]:
    """What the first section makes of values, by the names of tensors; it is closed then."""
    for tensor, value in values.items():
        executable.write(tensor, value.copy())
    executable.run(next(iter(executable.graphs)), steps)
    found = {tensor.name: executable.read(tensor) for tensor in wanted}
    executable.close()
    return found
