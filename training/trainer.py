"""Training as a whole: config, data, device and run folder brought together, then the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import atomic_write
from ..datasets import Downloads
from ..layers.backends.base import Backend
from .assemble import build_network, describe_data, load_data, preprocessing
from .checkpoint import State
from .checkpoint_store import CheckpointWriter
from .loop import Loop
from .plan import make_plan
from .report import Listener, Silent, Summary
from .resume import Resume, check_config
from .run_log import RunLog, cut_log
from .runs import CONFIG, create_run
from .session import Session

if TYPE_CHECKING:
    from ..configs.schema import RunConfig


def train(
    config: RunConfig,
    backend: Backend,
    data_root: Path,
    *,
    resume: Resume | None = None,
    listener: Listener | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    file: Path | None = None,
    downloads: Downloads | None = None,
) -> Summary:
    """Train as the config says, in a new run folder or in the resumed one.

    ``stop_requested`` is asked several times a second; once it is true the run saves and returns
    with state "interrupted". ``file`` is the config's, for messages; ``downloads`` says how missing
    data may come. The lock of ``resume`` is released at the end. Raises DnnstackError: for a
    config, data or device that does not do before the first step, NonFiniteError when training
    diverges, CheckpointError when saving fails.
    """
    heard = listener or Silent()
    with contextlib.ExitStack() as stack:
        if resume is not None:
            stack.callback(resume.close)
            check_config(resume.checkpoint, config, heard.notice)
        info = describe_data(config)
        network = build_network(config, info, file)
        scaling = preprocessing(config, info)
        data = load_data(config, "train", data_root, downloads)
        plan = make_plan(config, len(data))
        tuning = resume.checkpoint.state.tuning if resume else None
        session = Session(config, network, scaling, plan, data, backend, tuning)
        stack.callback(session.close)
        for text in session.executable.notices:
            heard.notice(text)
        if resume is not None:
            session.restore(resume.checkpoint)
        else:
            session.initialize()
        from ..configs import effective_yaml

        text = effective_yaml(config)
        run = resume.run if resume else None
        if run is None:
            run = create_run(Path(config.run.dir), config.name, text, heard.notice)
            stack.callback(run.close)
        state = State(
            step=session.step,
            steps_per_epoch=plan.steps_per_epoch,
            window_start=session.step,
            sums=(0.0, 0.0, 0.0),
            best=None,
            config=text,
            dataset=config.data.dataset.type,
            input_shape=network.input_shape,
            classes=data.classes,
            preprocessing=scaling,
            tuning=session.executable.tuning,
            versions=backend.versions(),
        )
        if resume is not None:
            old = resume.checkpoint.state
            state = replace(state, window_start=old.window_start, sums=old.sums, best=old.best)
            cut_log(run.path, state.step, state.window_start)
            atomic_write(run.path / CONFIG, text.encode())
        log = stack.enter_context(RunLog(run.path))
        saving = config.checkpoint
        writer = CheckpointWriter(run.checkpoints, saving.keep, saving.best)
        return Loop(session, state, run, log, writer, heard, saving.best).run(
            backend.name, resume, stop_requested
        )
