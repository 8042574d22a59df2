"""``dnnstack compress --sensitivity``: what each parameter of a network can do without."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import console

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..training.inference.trained import Trained


def show_sensitivity(
    trained: Trained, backend: Backend, root: Path, as_json: bool, offline: bool
) -> None:
    """Measure on the validation samples, write data and a picture to the run's folder, and print.

    The files are beside a checkpoint that is in no run. Raises DatasetError, CheckpointError.
    """
    from ..common.errors import CheckpointError, DatasetError
    from ..common.printable import printable
    from ..reports import sensitivity_report
    from ..training.compressed.sensitivity import evaluations, measure
    from ..training.inference.evaluate import load_part
    from ..training.records.runs import run_of_checkpoint
    from . import downloading

    data = trained.config.data
    if not data.validation and data.fold is None:
        raise DatasetError(
            f"{trained.path}: was trained without validation samples (data.validation: 0), on "
            "which sensitivity is measured; train it with some"
        )
    downloads = downloading.policy(offline)
    images, index = load_part(trained, "validation", root, None, downloads, console.note)
    with console.bar(evaluations(trained), "evaluations") as advance:
        found = measure(trained, backend, images, index, advance)
    folder = run_of_checkpoint(trained.path) or trained.path.parent
    if not trained.path.is_absolute():
        folder = Path(os.path.relpath(folder))
    console.show(found, as_json, lambda: sensitivity_report.as_text(found))
    try:
        written = sensitivity_report.write(found, folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the curves cannot be written there: {error.strerror}; copy the checkpoint "
            "to another folder and name it with --checkpoint"
        ) from None
    for path in written if not as_json else ():
        console.say(f"written     {printable(path)}")
