"""A training step alone, compiled and timed on noise: nothing is read, nothing is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..configs import RunConfig
from ..datasets import DatasetInfo, ImageSet
from .assemble import build_network, check_declared, describe_data
from .network_size import blamed, check_memory
from .normalization import preprocessing
from .plan import make_plan
from .session import Session
from .setup import Setup
from .share import ALONE, RankShare
from .splits import foreseen

MOST = 200
"""Steps that are timed in a row, at most; a step may be measured as often again."""
_SERIES = 0.1
Agreed = Callable[[int], int]
Series = Callable[[int], float]
"""Runs so many steps in a row, and gives the seconds of one."""


@contextmanager
def made_up(
    config: RunConfig,
    file: Path,
    backend: Backend,
    notice: Callable[[str], None],
    share: RankShare = ALONE,
) -> Iterator[Session]:
    """The config's training before its first step, on noise, at rates of zero.

    ``notice`` is told what compiling has to say. Raises ShapeError, ConfigError or DatasetError if
    the config cannot be trained.
    """
    check_declared(config)
    info = describe_data(config)
    network = build_network(config, info, file)
    check_memory(network, backend)
    scaling = preprocessing(config, info)
    held = config.data.validation
    count = info.train_count or 10 * config.data.batch_size + (int(held) if held >= 1 else 0)
    parts = foreseen(config, info, count)
    data = _noise(info, sum(map(len, parts)))
    plan = make_plan(config, len(data), parts=parts)
    # With rates of zero, measuring a step does not change the parameters.
    steps = max(plan.total_steps, 2 * MOST)
    still = np.zeros(steps, np.float32)
    plan = replace(plan, total_steps=steps, rates=still, tables=dict.fromkeys(plan.tables, still))
    setup = Setup(config, network, scaling, plan, data, share=share)
    with (
        blamed(network, config.data.batch_size),
        closing(Session(setup, backend, notice=notice)) as session,
    ):
        for text in session.executable.notices:
            notice(text)
        yield session


def series(session: Session) -> Series:
    """The steps of a session that ``made_up`` gives, as training runs them."""
    executable, stretch = session.executable, session.stretches[0]
    session.initialize()
    session.run(1)

    def run(count: int) -> float:
        # The table of rates is finite.
        stretch.go_to(executable, 0)
        begin = perf_counter()
        stretch.run(executable, count)
        return (perf_counter() - begin) / count

    return run


def long_enough(run: Series, agreed: Agreed = lambda number: number) -> int:
    """How many steps in a row take a tenth of a second; else ``MOST``. agreed: see ``explain``."""
    count = 1
    while count < MOST and not agreed(count * run(count) > _SERIES):
        count = min(MOST, 2 * count)
    return count


def with_batch(config: RunConfig, size: int | None) -> RunConfig:
    """The config with another batch; None: as it is."""
    if size is None:
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"batch_size": size})})


def _noise(info: DatasetInfo, count: int) -> ImageSet:
    """A data set of noise with the right shape."""
    tile = np.random.default_rng(1).integers(0, 256, (64, *info.shape), np.uint8)
    images = np.resize(tile.astype(np.float32) if info.floats else tile, (count, *info.shape))
    labels: NDArray[Any] = np.arange(count, dtype=np.int32) % len(info.classes)
    if info.kind != "class":
        labels = np.eye(len(info.classes), dtype=np.float32)[labels]
    return ImageSet(f"{info.name}/train", images, labels, info.classes, kind=info.kind)
