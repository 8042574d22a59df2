"""A worker of an asynchronous training: a batch, its gradient, and what other workers changed."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ...configs import RunConfig
from ...optimizers.rules import state_of
from ...passes.parts import SUM
from ..session import Session
from .post import Post
from .shard import pieces, statistics_of, trained

# Tags of messages: what rank 0 says to a worker and to a server, parameters, a worker's news, and
# its gradient, statistics and metrics.
WORK, ORDER, PULLED, NEWS, PUSHED, STATISTICS, METRICS, STATE = range(1, 9)
END = -1


class Worker:
    """Computes the batches that rank 0 names, each with the parameters that the servers have."""

    def __init__(self, session: Session, post: Post, servers: int, delay: float) -> None:
        self._session, self._post, self._delay = session, post, delay
        self._stretch = session.stretches[0]
        self._trained = trained(session.setup)
        sizes = [
            sum(piece.end - piece.begin for piece in pieces(self._trained, server, servers))
            for server in range(servers)
        ]
        self._shares = [np.zeros(size, np.float32) for size in sizes]
        self._kept = statistics_of(self._stretch.train)
        self._epoch = -1

    def work(self) -> None:
        """Until rank 0 says that it is enough. Raises Lost."""
        post, told = self._post, np.zeros(2, np.int64)
        while True:
            post.receive(0, WORK, told, patient=True)
            if told[0] == END:
                return
            for server, share in enumerate(self._shares):
                post.receive(server, PULLED, share)
            self._take(np.concatenate(self._shares))
            gradient, metrics = self._computed(int(told[0]))
            time.sleep(self._delay)
            post.send(0, NEWS, told)
            begin = 0
            for server, share in enumerate(self._shares):
                post.send(server, PUSHED, gradient[begin : begin + share.size])
                begin += share.size
                if server == 0:
                    post.send(0, METRICS, metrics)
                    if self._kept is not None:
                        post.send(0, STATISTICS, self._session.executable.read(self._kept))

    def _take(self, values: NDArray[np.float32]) -> None:
        at = 0
        for tensor in (parameter.tensor for parameter in self._trained):
            own = values[at : at + tensor.size].reshape(tensor.shape)
            self._session.executable.write(tensor, own)
            at += tensor.size

    def _computed(self, batch: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """The gradient of a batch, counted from the start of the training, and its metrics."""
        session, stretch = self._session, self._stretch
        executable, epoch = session.executable, batch // session.plan.steps_per_epoch
        if epoch != self._epoch:
            executable.write(stretch.train["order"], session.orders.of(epoch))
            self._epoch = epoch
        stretch.go_to(executable, batch)
        session.set_sums(np.zeros(3))
        executable.run(stretch.train.name, stretch.own)
        sums = [executable.read(state_of(p.tensor, SUM)).reshape(-1) for p in self._trained]
        return np.concatenate(sums), session.sums()


def delay_of(config: RunConfig, worker: int) -> float:
    """The seconds that a worker, counted from 0, waits after each batch."""
    delays = (config.parallel.delays if config.parallel is not None else None) or ()
    return delays[worker] if worker < len(delays) else 0.0
