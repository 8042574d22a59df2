"""The numbers of a step, and whether a network can be trained, from a program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .arguments import path_or_none, path_text, whole
from .backends.base import Backend
from .backends.select import Device
from .common.errors import UsageError
from .configs import LoadedConfig, placed
from .datasets import Downloads
from .fitting import Config, Overrides, changed, read_config
from .reports.check import STEPS, Check, check_network
from .reports.rate_range import RateRange, find_rate
from .reports.step import Step, take_step
from .training.assemble import data_folder
from .training.fitting import open_device
from .training.records.runs import CONFIG, find_run
from .training.setup import Setup
from .training.trainer import ready
from .training.weights.source import anchored
from .wording import in_python, log_notice


@in_python
def step(
    config: Config,
    *,
    sample: int | None = None,
    overrides: Overrides = (),
    device: Device | None = None,
    threads: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> Step:
    """Every tensor of a network's first step, as ``dnnstack step`` shows. Raises DnnstackError.

    sample: the only one of the batch, by its number in the training set; default: the first batch
    of the training. The result has ``tensors``, arrays by name, ``as_text()`` and ``save(path)``.
    """
    loaded = read_config(config, changed(overrides, device, threads, None))
    downloads = Downloads(offline=True) if offline else None
    opened = made_ready(loaded, path_or_none("data_dir", data_dir), downloads, log_notice)
    return take_step(*opened, whole("sample", sample))


@in_python
def check(
    config: Config | None = None,
    *,
    run: str | os.PathLike[str] | None = None,
    steps: int = STEPS,
    overrides: Overrides = (),
    device: Device | None = None,
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> Check:
    """Whether a network can be trained, as ``dnnstack check`` shows. Raises DnnstackError.

    config: a network with its first weights; or run: that of a run, with its best ones. The result
    has ``verdicts``, ``wrong``, ``as_text()`` and ``draw(path)``, what the network sees.
    """
    named = None if run is None else path_text("run", run)
    found, begun = of_run(config, named, Path(path_text("runs_dir", runs_dir)))
    loaded = read_config(found, [*changed(overrides, device, threads, None), *begun])
    downloads = Downloads(offline=True) if offline else None
    opened = made_ready(loaded, path_or_none("data_dir", data_dir), downloads, log_notice)
    return check_network(*opened, steps)


@in_python
def lr_find(
    config: Config,
    *,
    low: float = 1e-7,
    high: float = 10.0,
    steps: int = 100,
    overrides: Overrides = (),
    device: Device | None = None,
    threads: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> RateRange:
    """A learning rate to begin with, as ``dnnstack lr-find`` finds it. Raises DnnstackError.

    low, high: the first and the last of ``steps`` rates. The result has ``suggested``, None where
    the loss does not fall, ``result``, ``as_text()`` and ``picture("png")``.
    """
    loaded = read_config(config, changed(overrides, device, threads, None))
    downloads = Downloads(offline=True) if offline else None
    opened = made_ready(loaded, path_or_none("data_dir", data_dir), downloads, log_notice)
    return find_rate(*opened, low, high, whole("steps", steps) or 0)


def of_run(config: Any, run: str | None, above: Path) -> tuple[Any, list[str]]:
    """The config, and how it begins: that of the run, with its weights, if one is named.

    Raises UsageError unless there is one of both, CheckpointError.
    """
    if (config is None) == (run is None):
        raise UsageError("name a config, or a run, and not both")
    if run is None:
        return config, []
    folder = find_run(run, above)
    return str(folder / CONFIG), [f"init_from={json.dumps(str(folder.absolute()))}"]


def made_ready(
    loaded: LoadedConfig,
    data_dir: Path | None,
    downloads: Downloads | None,
    notice: Callable[[str], None],
) -> tuple[str, Setup, Backend]:
    """What the config is called, what it trains, and where."""
    with placed(loaded):
        config = anchored(loaded.config, Path() if loaded.packaged else loaded.path.parent)
        root = data_folder(config, data_dir, config.data.root)
        backend = open_device(loaded, False, True, notice)
        setup = ready(config, backend, root, loaded.path, downloads, notice)
        return loaded.title, setup, backend
