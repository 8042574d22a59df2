"""In which order the pictures are trained on, epoch by epoch."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ..common.random import key, permutation
from ..datasets import balanced_order, epoch_order
from .plan import Plan


class EpochOrders:
    """Every epoch's own order; while one trains, a thread draws that of the next.

    labels: those of the training set, if every class is to be drawn equally often. shuffle: whether
    the order is another than that of the samples. paired: behind every so many samples their
    partners follow, which are the samples in another order; 0: there are none.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        labels: NDArray[np.int32] | None = None,
        shuffle: bool = True,
        paired: int = 0,
    ) -> None:
        self._paired = paired
        self._labels, self._shuffle, self._plan, self._seed = labels, shuffle, plan, seed
        self._worker = ThreadPoolExecutor(1, "dnnstack-order")
        self._ahead: dict[int, Future[NDArray[np.int32]]] = {}

    def of(self, epoch: int) -> NDArray[np.int32]:
        """Indices into the training set, of all steps and partners: (places,) int32."""
        order = self._single(epoch)
        if not self._paired:
            return order
        # All samples: those that the last partial batch leaves out depend on the batch size.
        every = order if self._labels is not None else self._plan.train
        shuffled = permutation(key(self._seed, "partners"), epoch, len(every))
        partners = every[shuffled[: len(order)]]
        pairs = [each.reshape(-1, self._paired) for each in (order, partners)]
        return np.stack(pairs, 1).reshape(-1)

    def _single(self, epoch: int) -> NDArray[np.int32]:
        plan, labels = self._plan, self._labels
        if labels is not None:
            return balanced_order(plan.train, labels, self._seed, epoch, plan.batch_size)
        if not self._shuffle:
            return plan.train[: plan.steps_per_epoch * plan.batch_size]
        return epoch_order(plan.train, self._seed, epoch, plan.batch_size)

    def begin(self, epoch: int) -> NDArray[np.int32]:
        """The same for an epoch that begins now, so that the next is asked for soon."""
        ahead, following = self._ahead.pop(epoch, None), epoch + 1
        order = self.of(epoch) if ahead is None else ahead.result()
        self._ahead.clear()
        if following * self._plan.steps_per_epoch < self._plan.total_steps:
            self._ahead[following] = self._worker.submit(self.of, following)
        return order

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(cancel_futures=True)
