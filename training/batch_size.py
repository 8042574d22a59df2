"""``data.batch_size: auto``: batch sizes that are really run, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from ..backends.base import Backend
from ..common.errors import ConfigError
from ..common.locks import lock
from ..common.machine import main_memory
from ..common.text import samples_of
from ..configs import RunConfig, effective_yaml, parse_config
from .assemble import describe_data
from .records.group import is_group, read_group, write_group
from .splits import foreseen, settled
from .timing import long_enough, made_up, series, with_batch

SIZES = tuple(1 << power for power in range(4, 13))
# The share of the highest rate that is enough, the seconds of a step that is long, how often a size
# is timed, and how often a run of a group asks whether another one has chosen.
_ENOUGH, _LONG, _SERIES, _TRIES = 0.95, 1.0, 5, 60_000


def sized(
    config: RunConfig,
    file: Path,
    backend: Backend,
    root: Path,
    count: Callable[[], int],
    notice: Callable[[str], None],
    check: Callable[[], None],
) -> RunConfig:
    """The config with the batch size that is chosen where ``auto`` leaves it open.

    The first run of a group chooses for all. root: the data folder. ``count()``: the samples of the
    training set, where that has to be read for it. ``notice`` is told all rates; what ``check``
    raises ends the search. Raises DnnstackError if no size can be run.
    """
    folder = Path(config.run.dir)
    shared = not config.data.batch_size and is_group(folder)
    with lock(folder / "batch-size.lock", False, _TRIES) if shared else nullcontext():
        if shared:
            group = read_group(folder)
            begun = parse_config(group.config, f"{folder} (its config)")
            config = settled(config, begun)
        if config.data.batch_size:
            return config
        info = describe_data(config, root)
        most = len(foreseen(config, info, info.train_count or count())[0])
        rates = _rates(config, file, backend, most, notice, check)
        best = next(size for size in rates if rates[size] >= _ENOUGH * max(rates.values()))
        told = "; ".join(f"{size}: {rate:,.0f}" for size, rate in rates.items())
        notice(
            f"batch size {best}, the smallest within 5% of the fastest; {samples_of(info.shape)} a "
            f"second by size: {told}; optimizer.lr stays {config.optimizer.lr:g}"
        )
        if shared:
            write_group(folder, replace(group, config=effective_yaml(with_batch(begun, best))))
        return with_batch(config, best)


def _rates(
    config: RunConfig,
    file: Path,
    backend: Backend,
    most: int,
    notice: Callable[[str], None],
    check: Callable[[], None],
) -> dict[int, float]:
    """Samples a second by batch size, of steps on noise.

    Sizes are tried while they fit into ``most`` samples and into memory, and a step takes no more
    than a second.
    """
    rates: dict[int, float] = {}
    for size in (n for n in SIZES if n <= most and n % config.train.accumulate == 0):
        check()
        try:
            # What compiling says of one size it says of all.
            told = (lambda text: None) if rates else notice
            with made_up(with_batch(config, size), file, backend, told) as session:
                run = series(session)
                steps = long_enough(run)
                # Other programs only ever slow a step down.
                seconds = min(run(steps) for _ in range(_SERIES))
                tensors = {t for g in session.executable.graphs.values() for t in g.tensors()}
        except (MemoryError, ConfigError):
            if not rates:
                raise
            break
        rates[size] = size / seconds
        # A GPU's backend itself refuses what does not fit.
        held = sum(t.nbytes for t in tensors if t.role != "data") * (backend.name != "cuda")
        if seconds > _LONG or 4 * held > main_memory():
            break
    if not rates:
        raise ConfigError(
            f"data.batch_size: auto tries powers of two from {SIZES[0]} to {SIZES[-1]}, of which "
            f"none goes with {most} training samples and train.accumulate: "
            f"{config.train.accumulate}; give a number"
        )
    return rates
