"""Where to save if the folder of a run was moved or removed while the run trains."""

from __future__ import annotations

from .formats.run_log import RunLog
from .formats.store import FOLDER, Place
from .runs import Run, create_run


def place_to_save(run: Run, log: RunLog, name: str, config: str) -> Place:
    """The run's own folder; where it was moved to; or a new run with the records of this one.

    name, config: those of the run. Raises CheckpointError or OSError if no new run can be created.
    """
    path = run.present_path()
    if path == run.path:
        return Place(run.checkpoints)
    if path is not None:
        return Place(path / FOLDER, f"{run.path}: was moved during the training")
    with create_run(run.path.parent, name, config, lambda text: None) as new:
        log.copy_to(new.path)
        return Place(new.checkpoints, f"{run.path}: was removed during the training")
