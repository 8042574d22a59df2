"""One training of a loaded config: its device, what it continues, and its data folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..backends.base import Backend
from ..backends.select import open_backend
from ..configs import LoadedConfig, placed
from ..datasets import Downloads
from .alone import Company
from .assemble import Load, data_folder, load_data
from .batch_size import sized
from .inference.calibrate import DIVIDED, calibrate
from .inference.evaluate import evaluate
from .inference.parts import load_part
from .inference.trained import Trained, data_folder_of
from .listener import Listener, Summary
from .records.formats.store import FOLDER, best_checkpoint
from .records.group import resume_or_start
from .records.resume import Resume, open_resume
from .records.runs import AUTO, LATEST, find_run, latest_run_of
from .signals import check
from .trainer import train
from .weights.source import anchored

_INIT_FROM = (("init_from",), ("init_from", "source"))


def open_device(
    loaded: LoadedConfig,
    resuming: bool,
    capture: bool,
    notice: Callable[[str], None],
    threads: int | None = None,
) -> Backend:
    """The backend of a config's ``run.device``; ``threads``: where the config does not say it.

    Raises BackendUnavailableError.
    """
    machine = loaded.config.run
    backend = open_backend(machine.device, machine.threads or threads, notice, capture)
    if resuming and loaded.overridden("run", "precision"):
        # The precision of a checkpoint may fall back to fp32; one given here may not.
        backend.precision(machine.precision)
    return backend


def find_resume(
    wanted: str | None, loaded: LoadedConfig, notice: Callable[[str], None]
) -> Resume | None:
    """What to continue: a run, a checkpoint file, or ``latest`` for the config's latest run.

    ``auto``: the latest run, or nothing if there is none; no other process starts then. Raises
    CheckpointError, LockedError.
    """
    if wanted is None:
        return None
    runs = Path(loaded.config.run.dir)
    if wanted == AUTO:
        return resume_or_start(loaded.config.name, runs, notice)
    if wanted == LATEST:
        path = latest_run_of(loaded.config.name, runs)
    else:
        path = Path(wanted) if os.path.isfile(wanted) else find_run(wanted, runs)
    return open_resume(path, notice)


def fit(
    loaded: LoadedConfig,
    backend: Backend,
    resumed: Resume | None,
    *,
    listener: Listener,
    stop_requested: Callable[[], bool],
    data_dir: Path | None,
    downloads: Downloads | None,
    company: Callable[[str], Company | None] = lambda trained_on: None,
    load: Load | None = None,
    same_samples: bool = False,
) -> Summary:
    """Train on the data of ``data_dir``; see ``training.trainer.train``.

    It ends in order once ``stop_requested`` or the listener says so. A resumed training uses the
    data folder of its run if nothing names another; ``company`` makes that of the trainer, given
    this folder.
    """
    typed = loaded.packaged or any(loaded.overridden(*key) for key in _INIT_FROM)
    config = anchored(loaded.config, Path() if typed else loaded.path.parent)
    trained_on = ""
    with placed(loaded):
        if resumed is not None and resumed.checkpoint and not loaded.names_data_folder:
            trained_on = data_folder_of(resumed.checkpoint, listener.notice)
        with_others = company(trained_on)
        root = data_folder(config, data_dir, config.data.root, trained_on)
        begins = resumed is None or resumed.starts is not None
        if begins and (with_others is None or with_others.share.ranks == 1):

            def count() -> int:
                data = (load or load_data)(config, "train", root, downloads, None)
                return len(data) if data.held is None else int((~data.held).sum())

            own = (root, count, listener.notice, lambda: check(stop_requested))
            config = sized(config, loaded.path, backend, *own)
        done = train(
            config,
            backend,
            root,
            resume=resumed,
            listener=listener,
            stop_requested=lambda: stop_requested() or listener.stop_requested(),
            file=loaded.path,
            downloads=downloads,
            company=with_others,
            load=load,
            overrides=loaded.overrides,
            same_samples=same_samples,
        )
        how = (root, None, downloads, lambda text: None, None, load or load_data)
        if done.state == "finished" and config.evaluate.calibrate:
            trained = Trained.of(best_checkpoint(done.run / FOLDER))
            seen, held = (load_part(trained, part, *how) for part in DIVIDED)
            listener.notice(f"calibrated: {calibrate(trained, backend, seen, held)[1]}")

        def judged() -> Any:
            best = Trained.of(best_checkpoint(done.run / FOLDER))
            images, index = load_part(best, "validation", *how)
            return best, evaluate(best, backend, images, index, "validation"), images

        listener.ended(done, judged)
        return done
