"""Pictures of several requests, computed together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Batches:
    """Computes pictures of many threads in one, those that wait at a time as one batch.

    Batches have one of three sizes, 1, the root of ``most`` and ``most``: as many stay compiled.
    ``counted`` is told how many pictures each had.
    """

    def __init__(self, compute: Callable[[Any], Any], most: int, counted: Callable[[int], None]):
        self.sizes = (1, math.isqrt(most), most)
        self.waiting: deque[tuple[NDArray[Any], Future[Any]]] = deque()
        self._compute, self._counted = compute, counted
        self._thread = ThreadPoolExecutor(1, "compute")

    def __call__(self, pictures: Sequence[NDArray[Any]]) -> list[Any]:
        """What is computed of each (C, H, W), at its turn; raises what computing does."""
        answers: list[Future[Any]] = [Future() for _ in pictures]
        self.waiting.extend(zip(pictures, answers, strict=True))
        self._thread.submit(self._run)
        return [answer.result() for answer in answers]

    def _run(self) -> None:
        one, some, most = self.sizes
        # No other thread takes any away.
        while count := len(self.waiting):
            # The middle size may be half empty.
            size = most if count >= most else some if 2 * count > some else one
            batch = [self.waiting.popleft() for _ in range(min(size, count))]
            self._counted(len(batch))
            pictures = np.stack([picture for picture, _ in batch])
            try:
                found = self._compute(np.resize(pictures, (size, *pictures.shape[1:])))
                for (_, answer), row in zip(batch, found, strict=False):
                    answer.set_result(row)
            except Exception as error:
                for _, answer in batch:
                    answer.set_exception(error)
