"""A kernel in CUDA of a user's own, compiled by NVRTC and called on arrays of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....common.errors import LibraryError
from ...base import Array
from ..libraries.kernels import f32, i32
from ..libraries.modules import Module
from ..libraries.runtime import cuda_api, device, device_errors
from ..libraries.timing import captured_seconds

# Words of NaN on either side of each array: what is read there shows, and what is written.
_FENCE = 1 << 18


class OwnKernel:
    """The kernel ``name`` of a source, and name_launch, which says how it is launched.

    numbers: the type of each number that both get, int or float; timed: whether a call is followed
    by more, which are timed. Raises LibraryError.
    """

    def __init__(
        self, file: str, source: str, name: str, numbers: Sequence[str], timed: bool
    ) -> None:
        self._module, self._name = Module(file, source, ("-std=c++17",)), name
        self._timed = timed
        self._types = [i32 if number == "int" else f32 for number in numbers]

    def call(self, arrays: Mapping[str, Array], numbers: Sequence[float]) -> tuple[float, bool]:
        """Device seconds, 0 unless timed, and whether it takes the numbers.

        Arrays that can be written are. Raises LibraryError for what is written elsewhere, and for
        faults of the device.
        """
        given = [kind(number) for kind, number in zip(self._types, numbers, strict=True)]
        try:
            with device().stream as stream:
                return self._called(stream, arrays, given)
        except device_errors() as error:
            raise LibraryError("CUDA", self._name, str(error)) from None

    def _called(
        self, stream: Any, arrays: Mapping[str, Array], given: Sequence[Any]
    ) -> tuple[float, bool]:
        plan = cuda_api().asarray(np.array([0, 1, 1, 1, 1, 1, 0], np.int32))
        self._module.function(f"{self._name}_launch").launch(stream, [1], [1], (plan, *given), 0)()
        sizes = [int(size) for size in plan.get()]
        if not sizes[0]:
            return 0.0, False
        fenced = {name: _fenced(array) for name, array in arrays.items()}
        held = {name: cuda_api().asarray(array) for name, array in fenced.items()}
        inner = [each[_FENCE : len(each) - _FENCE] for each in held.values()]
        kernel, shared = self._module.function(self._name, sizes[6]), sizes[6]
        launch = kernel.launch(stream, sizes[:3], sizes[3:6], (*inner, *given), shared)
        launch()
        for name, array in arrays.items():
            found, before = held[name].get(), fenced[name]
            touched = np.flatnonzero(found.view(np.int32) != before.view(np.int32)) - _FENCE
            if array.flags.writeable:
                touched = touched[(touched < 0) | (touched >= array.size)]
                array[...] = found[_FENCE:-_FENCE].reshape(array.shape)
            if touched.size:
                text = f"writes {name}[{touched[0]}] of {array.size}"
                raise LibraryError("CUDA", self._name, text)
        return captured_seconds(launch, stream, 1) if self._timed else 0.0, True


def _fenced(array: Array) -> Array:
    """A flat copy between fences; numbers of four bytes."""
    found = np.full(array.size + 2 * _FENCE, np.nan, np.float32).view(array.dtype)
    found[_FENCE:-_FENCE] = array.reshape(-1)
    return found
