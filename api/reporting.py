"""Runs as one page, from a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .arguments import machine, path_or_none, path_text
from .backends.select import Device
from .classifier import open_classifier
from .common.errors import DatasetError, Warned
from .datasets import Downloads
from .reports.evaluate_plots import draw_plots
from .reports.explain import explain
from .reports.run_page import write_page
from .reports.stored import store_evaluation, store_explanation
from .training.inference.evaluate import Part
from .training.records.runs import CONFIG, find_run
from .wording import in_python, log_notice


@in_python
def report(
    *runs: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    measure: bool = False,
    device: Device = "auto",
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> Path:
    """Write the page of these runs, by default of the latest one, as ``dnnstack report`` does.

    measure: first evaluate and explain each run, and store what was found. Raises DnnstackError.
    """
    above, root = Path(path_text("runs_dir", runs_dir)), path_or_none("data_dir", data_dir)
    names: list[str | None] = [path_text("runs", each) for each in runs]
    folders = [find_run(each, above) for each in names or [None]]
    for folder in folders if measure else ():
        downloads = Downloads(offline=True) if offline else None
        renew(folder, *machine(device, threads), root, downloads, log_notice)
    return write_page(folders, path_or_none("output", output)).path


def renew(
    folder: Path,
    device: Device,
    threads: int | None,
    data_dir: Path | None,
    downloads: Downloads | None,
    notice: Callable[[str], None],
) -> None:
    """Store what the page shows of a run: its evaluation on the test set, of data without one on
    the validation samples, and its step with times. Raises DnnstackError."""
    model = open_classifier(str(folder), None, folder.parent, device, threads, notice=notice)
    parts: tuple[Part, ...] = ("test", "validation")
    for part in parts:
        try:
            images, index = model.load_part(part, None, data_dir, downloads)
        except DatasetError as error:
            notice(Warned(str(error)))
            continue
        found = model.evaluate_part(images, index, part)
        draw_plots(found, images, folder / f"eval-{part}")
        store_evaluation(model.trained, found, folder / f"eval-{part}")
        break
    config = folder / CONFIG
    store_explanation(explain(model.config, config, model.backend, True, notice), config)
