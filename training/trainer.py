"""Training as a whole: config, data, device and run folder brought together, then the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.base import Backend
from ..backends.select import precision_or_fp32
from ..common.files import atomic_write
from ..datasets import Downloads
from . import interrupt
from .assemble import build_network, describe_data, load_data, optimizer, preprocessing
from .augmentation import augmentations
from .listener import Listener, Silent, Summary
from .loop import Loop
from .plan import make_plan
from .records.disk_space import check_disk_space, checkpoint_bytes
from .records.provenance import Provenance
from .records.resume import Resume, check_config
from .records.run_log import RunLog, cut_log
from .records.runs import CONFIG, create_run
from .records.state import START
from .session import Session
from .statistics import mean_and_deviation

if TYPE_CHECKING:
    from ..configs.schema.run import RunConfig


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
    data may come. The lock of ``resume`` is released at the end; a resumed training computes in
    fp32 where the device has not its precision. Raises DnnstackError: for a config, data or device
    that does not do before the first step, Interrupted for a stop before it, NonFiniteError when
    training diverges, CheckpointError when saving fails.
    """
    heard = listener or Silent()

    def check() -> None:
        interrupt.check(stop_requested)

    with contextlib.ExitStack() as stack:
        checkpoint = None
        if resume is not None:
            stack.callback(resume.close)
            checkpoint = resume.checkpoint
        if checkpoint is not None:
            check_config(checkpoint, config, heard.notice)
        info = describe_data(config, data_root)
        network = build_network(config, info, file)
        scaling = preprocessing(config, info)
        augmentations(config, info.shape)
        run = resume.run if resume is not None else None
        saving = config.checkpoint
        statistics = [statistic.tensor for statistic in network.statistics()]
        rule, parameters = optimizer(config), network.parameters()
        state_tensors = rule.state(parameters, statistics)
        saved = {tensor.name: tensor.shape for tensor in (*network.learned(), *state_tensors)}
        one = checkpoint_bytes(saved)
        check_disk_space(run.path if run else Path(config.run.dir), one, saving.keep + saving.best)
        check()
        data = interrupt.interruptible(
            lambda: load_data(config, "train", data_root, downloads), stop_requested
        )
        plan = make_plan(config, len(data))
        if parameters and not rule.assigned(parameters):
            heard.notice("all parameters are frozen (optimizer.groups): none of them is trained")
        if config.data.normalize.measured:
            # What a checkpoint was trained with holds, should the pictures be others by now.
            scaling = (
                checkpoint.provenance.preprocessing
                if checkpoint is not None
                else preprocessing(config, info, mean_and_deviation(data.images, plan.train))
            )
        tuning = checkpoint.provenance.tuning if checkpoint is not None else None
        computed = _computed(config, backend) if resume is not None else config
        session = Session(computed, network, scaling, plan, data, backend, tuning, check)
        stack.callback(session.close)
        for text in session.executable.notices:
            heard.notice(text)
        if checkpoint is not None:
            session.restore(checkpoint)
        else:
            session.initialize()
        check()
        from ..configs import effective_yaml

        text = effective_yaml(config)
        provenance = Provenance(
            steps_per_epoch=plan.steps_per_epoch,
            config=text,
            dataset=config.data.dataset.type,
            input_shape=network.input_shape,
            classes=data.classes,
            preprocessing=scaling,
            tuning=session.executable.tuning,
            versions=backend.versions(),
            data_folder=str(data_root.absolute()),
        )
        if run is None:
            run = create_run(Path(config.run.dir), config.name, text, heard.notice)
            stack.callback(run.close)
        else:
            # At the end of training nothing will write the line of an open window again.
            state = checkpoint.state if checkpoint is not None else START
            ended = state.step == plan.total_steps or state.out_of_patience(config.train.patience)
            ended = ended or state.reached(config.train.goal)
            window_start = state.step if ended else state.window_start
            cut_log(run.path, state.step if checkpoint else -1, window_start, state.rollbacks)
            atomic_write(run.path / CONFIG, text.encode())
        log = stack.enter_context(RunLog(run.path))
        loop = Loop(config, session, provenance, run, log, heard, checkpoint)
        return loop.run(backend.name, stop_requested)


def _computed(config: RunConfig, backend: Backend) -> RunConfig:
    """The config with a precision that this device has; what is saved keeps the one asked for."""
    precision = precision_or_fp32(backend, config.run.precision)
    return config.model_copy(update={"run": config.run.model_copy(update={"precision": precision})})
