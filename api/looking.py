"""What ``summary``, ``explain`` and ``runs`` print, as objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .arguments import path_text, whole, word
from .backends.cuda.cards import CARDS
from .backends.select import Device, foreseen_card
from .classifier import Classifier, load
from .configs import RunConfig, placed
from .exports.torch_step import torch_steps
from .fitting import Config, Overrides, changed, read_config
from .reports.bench import Bench
from .reports.bench import bench as timed
from .reports.explain import Explanation
from .reports.explain import explain as explained
from .reports.foreseen import foresee
from .reports.history import columns_of
from .reports.runs_report import report_runs
from .reports.summary import NetworkSummary, summarize
from .training.fitting import open_device
from .training.records.formats.run_log import RunState
from .training.records.runs import CONFIG
from .wording import in_python, log_notice


@in_python
def summary(
    config: Config, *, overrides: Overrides = (), batch_size: int | None = None
) -> NetworkSummary:
    """A network's layers and costs, as ``dnnstack summary`` shows. Raises DnnstackError."""
    loaded = read_config(config, overrides)
    with placed(loaded):
        return summarize(loaded.config, loaded.path, whole("batch_size", batch_size))


@in_python
def explain(
    config: Config,
    *,
    overrides: Overrides = (),
    measure: bool = False,
    device: Device | None = None,
    threads: int | None = None,
    card: str | None = None,
) -> Explanation:
    """What a training step is made of, as ``dnnstack explain`` shows.

    card: that of ``--card``, such as "h100", which need not be there. Raises DnnstackError.
    """
    if card is not None:
        word("card", card, CARDS)
    loaded = read_config(config, changed(overrides, device, threads, None))
    card = foreseen_card(card, device, loaded.config.run.device, measure)
    if card is not None:
        with placed(loaded):
            return foresee(loaded.config, loaded.path, card, log_notice)
    backend = open_device(loaded, False, True, log_notice)
    with placed(loaded):
        return explained(loaded.config, loaded.path, backend, measure, log_notice)


@in_python
def bench(
    config: Config,
    *,
    batch_sizes: Sequence[int] | None = None,
    compare: Literal["torch"] | None = None,
    overrides: Overrides = (),
    device: Device | None = None,
    threads: int | None = None,
) -> Bench:
    """A network's training step timed on this machine, as ``dnnstack bench`` does.

    batch_sizes: by default the config's, half and double of it. compare: "torch" times PyTorch's
    step beside ours. The result has ``batches``, ``as_text()``, ``slower(before)`` and more. Raises
    DnnstackError.
    """
    if compare is not None:
        word("compare", compare, ("torch",))
    sizes = None if batch_sizes is None else [whole("batch_sizes", n) or 0 for n in batch_sizes]
    loaded = read_config(config, changed(overrides, device, threads, None))
    backend = open_device(loaded, False, True, log_notice)
    return timed(loaded, backend, sizes, torch_steps() if compare else None, log_notice)


@dataclass(frozen=True)
class Run:
    """A training in its folder; ``best``: the accuracy, or R2, of its best validation."""

    name: str
    folder: Path
    state: RunState
    best: float | None

    @property
    def config(self) -> RunConfig:
        """What it was trained with. Raises ConfigError."""
        return read_config(self.folder / CONFIG, ()).config

    @property
    def history(self) -> dict[str, list[float]]:
        """Its log so far, as ``History.columns``."""
        return columns_of(self.folder)

    def load(self, **how: Any) -> Classifier:
        """Its network; ``how``: see ``dnnstack.load``."""
        return load(self.folder, **how)


@in_python
def runs(runs_dir: str | os.PathLike[str] = "runs") -> list[Run]:
    """The runs of a folder, in the order in which they began. Raises CheckpointError."""
    found = report_runs(Path(path_text("runs_dir", runs_dir)), log_notice)
    return [Run(each.run, each.path, each.state, each.best_accuracy) for each in found]
