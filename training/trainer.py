"""A whole training: combines config, data, device and run folder, then runs the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ..backends.base import Backend
from ..backends.select import precision_or_fp32
from ..common.errors import ConfigError, Warned
from ..common.targets import MEASURES
from ..configs import RunConfig, effective_yaml
from ..datasets import DatasetInfo, Downloads
from ..passes.bands import check_layers
from . import signals
from .alone import Company
from .assemble import (
    Load,
    assigned,
    build_network,
    check_data,
    check_declared,
    describe_data,
    load_data,
)
from .augmentation import augmentations, views_of
from .interval import with_interval
from .listener import Listener, Summary
from .loop import Loop
from .network import Network
from .network_size import blamed, check_memory
from .normalization import of_trained_rows, preprocessing, preprocessing_of
from .own_samples import Chosen, choose
from .plan import make_plan
from .records.disk_space import check_disk_space, checkpoint_bytes
from .records.formats.checkpoint import Checkpoint
from .records.formats.provenance import BegunFrom, Provenance
from .records.formats.record import write_record
from .records.formats.run_log import RunLog, cut_log
from .records.formats.samples import SAMPLES, write_samples
from .records.formats.state import START
from .records.formats.store import CheckpointWriter
from .records.numerics import NUMERICS, changes_since, versions_of
from .records.overridden import not_repeated, recorded
from .records.resume import Resume, as_begun, check_config
from .records.runs import CONFIG, Run, create_run
from .records.saver import Saver, place_to_save
from .sections import expected_sections, saved_tensors
from .session import Session
from .setup import Setup
from .share import shared_out
from .splits import foreseen, settled, untrained_classes
from .weights.source import open_source
from .weights.start import Start, begin
from .weights.teacher import teach


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
    company: Company | None = None,
    load: Load | None = None,
    doubts: bool = True,
    overrides: Sequence[str] = (),
    same_samples: bool = False,
    lineage: Checkpoint | None = None,
) -> Summary:
    """Train as the config says, in a new run folder or in the resumed one.

    ``stop_requested`` is called several times a second; once it is true the run saves and returns
    with state "interrupted". ``file`` is the config's, for messages; ``downloads`` says how to get
    missing data, ``load`` reads them, by default ``load_data``; ``company`` are other processes
    that train too, by default none; ``doubts``: whether to tell what may not be meant of the first
    weights; ``overrides``: those that the config came about with, which the run records.
    ``same_samples``: go on with what is left of the samples of ``resume``, or of the other runs of
    the group, if the data have changed; ``lineage``: where the weights are from, if the file that
    ``init_from`` names does not say it. The lock of ``resume`` is released at the end; a resumed
    training computes in fp32 if the device does not have its precision. Raises DnnstackError:
    before the first step for an unsuitable config, data set or device, and Interrupted for a stop;
    later NonFiniteError if training diverges, CheckpointError if saving fails.
    """
    asked, heard, company = config, listener or Listener(), company or Company()
    checkpoint, run = (resume.checkpoint, resume.run) if resume is not None else (None, None)

    def check() -> None:
        signals.check(stop_requested)

    with contextlib.ExitStack() as stack:
        if resume is not None:
            stack.callback(resume.close)
            resume = None if resume.starts else resume

        known = None if checkpoint is None else checkpoint.provenance.known

        def prepared() -> tuple[RunConfig, int, DatasetInfo, Network, Start | None]:
            company.check(asked)
            begun = settled(asked) if resume is None else as_begun(resume, asked, heard.notice)
            config, parts = shared_out(begun, company.share.ranks, checkpoint)
            if checkpoint is not None:
                check_config(checkpoint, config, heard.notice, overrides)
            if resume is None:
                backend.precision(config.run.precision)
            check_declared(config)
            check_loggers(config)
            info = describe_data(config, data_root, known)
            if checkpoint is not None:
                # The samples are matched with the network's classes by name.
                info = replace(info, classes=checkpoint.provenance.classes)
            network = build_network(config, info, file)
            taught_by = None if checkpoint is None else checkpoint.provenance.taught_by
            config = teach(config, network, info.classes, taught_by)
            check_layers(network.layers, company.share.ranks)
            check_memory(network, backend)
            stack.enter_context(blamed(network, config.data.batch_size))
            _check_unread(config, network, info, run)
            given = (config, network, heard.notice, downloads, stop_requested)
            start = _start(*given) if checkpoint is None else None
            check()
            return config, parts, info, network, start

        config, shared_parts, info, network, start = company.do(prepared)
        read = partial(load or load_data, config, "train", data_root, downloads, known)
        data = company.load(lambda: signals.interruptible(read, stop_requested))

        def compiled(kind: type[Session]) -> Session:
            origin = (lineage.path, lineage.provenance) if lineage is not None else None
            keeps = start is not None and network.parameters()[-1].tensor.name in start.values
            if start is not None and start.trained is not None:
                origin = Path(start.origin.path), start.trained
            own = None if checkpoint is None else (checkpoint.path, checkpoint.provenance)
            given = (config, data, own, origin, keeps, same_samples, heard.notice)
            setup = _set_up(config, network, info, choose(*given), resume, heard.notice)
            if text := not_repeated(checkpoint, config, overrides, setup.plan.total_steps):
                heard.notice(text)
            if checkpoint is not None:
                for text in changes_since(checkpoint, versions_of(backend)):
                    heard.notice(text)
            setup = replace(setup, start=start, share=company.share)
            heard.prepared()
            if start is not None:
                heard.initialized(start)
                found = start.doubts(network, setup.scaling, setup.data.classes)
                for text in found if doubts else ():
                    heard.notice(text)
            tuning = None if checkpoint is None else checkpoint.provenance.tuning
            if resume is not None:
                # The precision that this device has; what is saved keeps the one asked for.
                precision = precision_or_fp32(backend, config.run.precision)
                machine = config.run.model_copy(update={"precision": precision})
                setup = replace(setup, config=setup.config.model_copy(update={"run": machine}))
            return kind(setup, backend, tuning, check, heard.notice)

        session = company.compiled(compiled)
        saving = session.setup.config.checkpoint
        config = config.model_copy(update={"checkpoint": saving})
        setup = replace(session.setup, config=config)
        stack.callback(session.close)
        for text in session.executable.notices:
            heard.notice(text)
        session.begin(checkpoint)
        check()
        begun = start.origin if start is not None else None
        if checkpoint is not None:
            begun = checkpoint.provenance.begun_from
        said = recorded(checkpoint, config, overrides)
        provenance = _provenance(setup, session, backend, data_root, begun, shared_parts, said)
        own = None if setup.chosen is None else setup.chosen.record
        if run is None:
            run = create_run(Path(config.run.dir), config.name, provenance.config, heard.notice)
            stack.callback(run.close)
        else:
            _go_on_in(run, setup, checkpoint, provenance)
        if own is not None and (checkpoint is None or not (run.path / SAMPLES).exists()):
            write_samples(run.path, own)
        log = stack.enter_context(RunLog(run.path, MEASURES[setup.data.kind]))
        if start is not None:
            log.event("init", 0, **start.to_json())
        place = partial(place_to_save, run, log, config.name, provenance.config)
        kept = (saving.keep, saving.best, setup.plan.snapshots)
        writer = CheckpointWriter(run.checkpoints, provenance, *kept, log.sync, place)
        saver = Saver(run, log, writer, checkpoint, heard.saving)
        return Loop(session, saver, log, heard, stop_requested).run(backend)


def ready(
    config: RunConfig,
    backend: Backend,
    data_root: Path,
    file: Path,
    downloads: Downloads | None,
    notice: Callable[[str], None],
) -> Setup:
    """What ``train``, whose arguments and errors these are, would begin with; no run is made."""
    config = settled(config)
    check_declared(config)
    info = describe_data(config, data_root)
    network = build_network(config, info, file)
    teach(config, network, info.classes)
    check_memory(network, backend)
    check_data(config, info)
    start = _start(config, network, notice, downloads)
    data = load_data(config, "train", data_root, downloads)
    chosen = choose(config, data, None, None, False, False, notice)
    return replace(_set_up(config, network, info, chosen, None, notice), start=start)


def check_loggers(config: RunConfig) -> None:
    """Raise ConfigError if the package of a logger is not installed."""
    for name in config.train.loggers or ():
        package = "tensorboardX" if name == "tensorboard" else name
        if name != "prometheus" and find_spec(package) is None:
            wanted = "'dnnstack[tensorboard]'" if name == "tensorboard" else name
            install = f"python3 -m pip install {wanted}"
            raise ConfigError(f"train.loggers: {name} needs the package {package}: {install}")


def _check_unread(config: RunConfig, network: Network, info: DatasetInfo, run: Run | None) -> None:
    """Raise for what would not do, before data is read: the lists of channels, the disk."""
    check_data(config, info)
    scaling = preprocessing(config, info)
    if config.run.calls is not None:
        expected_sections(config, network, scaling, info)
    augmentations(config, info.shape)
    views_of(config.evaluate.tta, config.evaluate.tta_share).check(info.shape, len(info.classes))
    saved = {tensor.name: tensor.shape for tensor in saved_tensors(config, network)}
    folder = run.path if run is not None else Path(config.run.dir)
    kept = config.checkpoint.keep + config.checkpoint.best
    if config.checkpoint.snapshots and info.train_count is not None:
        parts = foreseen(config, info, info.train_count)
        kept += len(make_plan(config, info.train_count, True, parts).snapshots)
    check_disk_space(folder, checkpoint_bytes(saved), kept)


def _start(
    config: RunConfig,
    network: Network,
    notice: Callable[[str], None],
    downloads: Downloads | None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Start | None:
    """The weights that ``init_from`` names, if it does."""
    wanted = config.init_from
    if wanted is None:
        return None
    given = (wanted.source, Path(config.run.dir), notice, downloads or Downloads())
    source = open_source(*given, stop_requested)
    shapes = {tensor.name: tensor.shape for tensor in network.learned()}
    return begin(source, shapes, wanted.skip or ())


def _set_up(
    config: RunConfig,
    network: Network,
    info: DatasetInfo,
    chosen: Chosen,
    resume: Resume | None,
    notice: Callable[[str], None],
) -> Setup:
    """The plan, the interval of checkpoints, and the pictures' mean and deviation where they are to
    be measured."""
    checkpoint = resume.checkpoint if resume is not None else None
    data, parts = chosen.images, (chosen.train, chosen.validation)
    plan = make_plan(config, len(data), resume is not None, parts)
    data = of_trained_rows(data, plan.train)
    if config.evaluate.calibrate and not (len(plan.validation) and network.has_logits):
        raise ConfigError(
            "evaluate.calibrate: fits the probabilities of a loss such as cross_entropy to "
            "validation samples (data.validation), and one of both is missing; remove it"
        )
    untrained = untrained_classes(data, plan.train)
    for text in (*map(Warned, data.doubts), *untrained, *plan.notices, *network.doubts()):
        notice(text)
    if network.parameters() and not assigned(config, network):
        which = "freeze" if config.freeze else "optimizer.groups"
        notice(f"all parameters are frozen ({which}), so none is trained")
    if checkpoint is not None and config.data.normalize.measured:
        # What it was trained with holds, should the pictures be others by now.
        scaling = checkpoint.provenance.preprocessing
    else:
        scaling = preprocessing_of(config, info, data, plan.train)
    return with_interval(Setup(config, network, scaling, plan, data, chosen=chosen))


def _provenance(
    setup: Setup,
    session: Session,
    backend: Backend,
    data_root: Path,
    begun: BegunFrom | None,
    shared_parts: int,
    overrides: tuple[str, ...],
) -> Provenance:
    return Provenance(
        steps_per_epoch=setup.plan.steps_per_epoch,
        config=effective_yaml(setup.config),
        dataset=setup.config.data.dataset.type,
        input_shape=setup.network.input_shape,
        classes=setup.data.classes,
        kind=setup.data.kind,
        floats=setup.network.floats,
        preprocessing=setup.scaling,
        tuning=session.executable.tuning,
        versions=versions_of(backend),
        data_folder=str(data_root.absolute()),
        shared_parts=shared_parts,
        begun_from=begun,
        overrides=overrides,
        pixel_bits=setup.data.bits or 16,
        columns=setup.data.columns,
        taught_by=None if (teacher := setup.network.teacher) is None else teacher.file,
        numerics=NUMERICS,
        samples="" if setup.chosen is None else setup.chosen.samples.mark,
    )


def _go_on_in(
    run: Run, setup: Setup, checkpoint: Checkpoint | None, provenance: Provenance
) -> None:
    """Take back the records that will be written again, and write the config of now."""
    state, train = checkpoint.state if checkpoint is not None else START, setup.config.train
    # At the end of training nothing will write the line of an open window again.
    ended = state.step == setup.plan.total_steps or state.ends_early(train)
    window_start = state.step if ended else state.window_start
    step = state.step if checkpoint else -1
    cut_log(run.path, step, window_start, state.rollbacks, state.validation_due)
    write_record(run.path, CONFIG, provenance.config.encode())
