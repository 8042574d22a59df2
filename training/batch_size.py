"""``data.batch_size: auto``: batch sizes that are really run, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..backends.base import Backend
from ..common.errors import ConfigError
from ..common.machine import main_memory
from ..common.text import samples_of
from ..configs import RunConfig
from ..datasets import Downloads
from .assemble import Load, describe_data, load_data
from .splits import foreseen
from .timing import long_enough, made_up, series, with_batch

SIZES = tuple(1 << power for power in range(4, 13))
# The share of the highest rate that is enough, and the seconds of a step that is long.
_ENOUGH, _LONG = 0.95, 1.0
_SERIES = 5


def sized(
    config: RunConfig,
    file: Path,
    backend: Backend,
    root: Path,
    downloads: Downloads | None,
    load: Load | None,
    notice: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> RunConfig:
    """The config with the batch size that is chosen where ``auto`` leaves it open.

    It is the smallest whose rate, in samples a second, is at least 95% of the highest. Powers of
    two from 16 to 4096 are compiled and run on noise, while a batch fits into the training set and
    into memory, and a step takes no more than a second. ``notice`` is told all rates; what
    ``check`` raises ends the search. The data set is read where only that says how large it is.
    Raises DnnstackError if no size can be run.
    """
    if config.data.batch_size:
        return config
    info = describe_data(config, root)
    count, known = info.train_count, info.train_count is not None
    if count is None:
        data = (load or load_data)(config, "train", root, downloads, None)
        count = len(data) if data.held is None else int((~data.held).sum())
    most, parts = len(foreseen(config, info, count)[0]) if known else count, config.train.accumulate
    rates: dict[int, float] = {}
    for size in (size for size in SIZES if size <= most and size % parts == 0):
        check()
        try:
            # What compiling says of one size it says of all.
            told = (lambda text: None) if rates else notice
            rates[size], goes_on = _rate(with_batch(config, size), file, backend, told)
        except (MemoryError, ConfigError):
            if not rates:
                raise
            break
        if not goes_on:
            break
    if not rates:
        raise ConfigError(
            f"data.batch_size: auto tries powers of two from {SIZES[0]} to {SIZES[-1]}, of which "
            f"none fits {most} training samples and train.accumulate: {parts}; give a number"
        )
    best = next(size for size in rates if rates[size] >= _ENOUGH * max(rates.values()))
    name = samples_of(info.shape)
    others = "; ".join(f"{size}: {rate:,.0f}" for size, rate in rates.items() if size != best)
    notice(
        f"batch size {best}: {rates[best]:,.0f} {name}/s{others and '; '}{others}; the smallest "
        f"within 5% of the fastest is taken, and optimizer.lr stays {config.optimizer.lr:g}"
    )
    return with_batch(config, best)


def _rate(
    config: RunConfig, file: Path, backend: Backend, notice: Callable[[str], None]
) -> tuple[float, bool]:
    """Samples a second, and whether a batch of double the size may fit, and be run soon."""
    with made_up(config, file, backend, notice) as session:
        run = series(session)
        count = long_enough(run)
        # Other programs only ever slow a step down.
        seconds = min(run(count) for _ in range(_SERIES))
        tensors = {t for graph in session.executable.graphs.values() for t in graph.tensors()}
    held = sum(t.nbytes for t in tensors if t.role != "data")
    # What a GPU has is known to its backend, which refuses more.
    fits = backend.name == "cuda" or 4 * held < main_memory()
    return config.data.batch_size / seconds, fits and seconds <= _LONG
