"""Session: a training compiled for a device, with its data and state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend, Executable, Options
from ..backends.tuning import Tuning
from ..common.errors import CheckpointError
from ..configs import RunConfig
from ..datasets import evaluation_order
from ..graph.graph import Graph, Shape, Tensor
from .metrics import measure
from .orders import EpochOrders
from .pace import next_chunk
from .preprocessing import Prepared
from .records.formats.checkpoint import Checkpoint
from .records.formats.state import Metrics, Snapshot
from .renewal import ROWS
from .sections import Sections, saved_tensors, stretch_at
from .setup import Setup

_LOG = logging.getLogger("dnnstack.training")
Section = Literal["train", "evaluate"]


class Session:
    """The sections of training and, with validation samples, "evaluate", which share their state.

    ``step`` counts updates done. Call ``begin`` before ``run``. ``interrupt`` and ``notice`` are
    those of ``Options``, for compiling.
    """

    def __init__(
        self,
        setup: Setup,
        backend: Backend,
        tuning: Tuning | None = None,
        interrupt: Callable[[], None] = lambda: None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.setup = setup
        self.network, self.plan = setup.network, setup.plan
        self.step = 0
        self.rates, self._rate_factor = self.plan.rates, np.float32(1.0)
        self._sums: NDArray[np.float64] | None = None
        self._saved = saved_tensors(setup.config, setup.network)
        labels = setup.data.labels if setup.config.data.balance else None
        shuffle = setup.config.data.shuffle is not False
        self.orders = EpochOrders(self.plan, setup.config.seed, labels, shuffle)
        self._epoch = -1
        batch = self.plan.evaluation_batch_size
        self._evaluation_order = evaluation_order(self.plan.validation, batch)
        self.evaluation_steps = len(self._evaluation_order) // batch
        asked = setup.config.checkpoint.best_by
        # What the sums do not say, but the answers to all samples do; or "".
        self.by = asked if asked and asked not in ("accuracy", "r2", "loss") else ""
        # The errors of all folds are added up.
        folds = setup.data.kind == "numbers" and setup.config.data.fold is not None
        self.reads_answers = bool(self.by) or folds
        sections = setup.sections(backend.pieces)
        # As this rank has them: of a layer that ranks have split, its share of the rows.
        shared = {t.name: t for graph in sections.graphs().values() for t in shared_by_all(graph)}
        self._own = {t.name: shared.get(t.name, t) for t in self._saved}
        self.stretches, self._evaluate = sections.stretches, sections.evaluate
        self._renewal, self._renewed = sections.renewal, np.zeros(0)
        self._train = self.stretches[0].train
        options = replace(_options(setup.config), tuning=tuning, interrupt=interrupt, notice=notice)
        self.executable = _compiled(backend, sections.graphs(), options)
        self._feed(self.executable, sections.graphs())

    @property
    def ranks(self) -> int:
        """How many processes train."""
        return self.setup.share.ranks

    def begin(self, checkpoint: Checkpoint | None) -> None:
        """From a checkpoint, or from step 0."""
        if checkpoint is None:
            self.initialize()
        else:
            self.restore(checkpoint)

    def initialize(self) -> None:
        """Fresh parameters and statistics, averages equal to them, other state zero, step 0."""
        self.put(Snapshot(0, np.zeros(3), self.setup.fresh(self.first_pictures)))

    def first_pictures(self, count: int) -> Prepared:
        """Those of the setup; the device that has them adds up their patches, if it can."""
        found, images = self.setup.first_pictures(count), self._train["images"]
        return replace(found, summed=partial(self.executable.patch_sums, images, found.rows))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Parameters, statistics, optimizer state, sums and step of a checkpoint.

        Raises CheckpointError if it does not fit the network, the data or the training's length.
        """
        state, plan = checkpoint.state, self.plan
        before, chosen = checkpoint.provenance.steps_per_epoch, self.setup.chosen
        listed = chosen is not None and chosen.listed
        if before != plan.steps_per_epoch and not listed:
            raise CheckpointError(
                f"{checkpoint.path}: was made with {before} steps per epoch, now there are "
                f"{plan.steps_per_epoch}: the data set or the batch size is another"
            )
        if state.step > plan.total_steps:
            raise CheckpointError(
                f"{checkpoint.path}: is of step {state.step}, but the config ends training after "
                f"{plan.total_steps} steps; raise train.epochs or train.max_steps"
            )
        values = checkpoint.everything(self.shapes())
        self.put(Snapshot(state.step, np.array(state.sums, np.float64), values))
        self.set_rate_factor(state.factor)

    def shapes(self) -> dict[str, Shape]:
        """Names and shapes of what a checkpoint holds: what is learned, then optimizer state."""
        return {tensor.name: tensor.shape for tensor in self._saved}

    def run(self, steps: int, wait: bool = True) -> None:
        """Do ``steps`` updates, all within one epoch; see ``Executable.run`` for ``wait``."""
        epoch, done = divmod(self.step, self.plan.steps_per_epoch)
        if done + steps > self.plan.steps_per_epoch:
            raise ValueError(f"{steps} steps from step {self.step} leave epoch {epoch}")
        if epoch != self._epoch:
            self.executable.write(self._train["order"], self.orders.begin(epoch))
            self._epoch = epoch
        self._sums = None
        end = self.step + steps
        while self.step < end:
            stretch, next_first = stretch_at(self.stretches, self.step)
            count = int(min(end, next_first)) - self.step
            stretch.run(self.executable, count, wait)
            self.step += count

    def validate(self, stop_requested: Callable[[], bool] = lambda: False) -> Metrics | None:
        """Loss and accuracy over all validation samples, each counted once.

        None if a stop is requested meanwhile, which is checked several times a second.
        """
        if self._evaluate is None:
            raise ValueError("there are no validation samples")
        self._start_evaluation(self.executable, 0)
        answers: list[NDArray[np.float64]] = []
        done, chunk = 0, 1
        while done < self.evaluation_steps:
            if stop_requested():
                return None
            steps = 1 if self.reads_answers else min(chunk, self.evaluation_steps - done)
            began = perf_counter()
            self.executable.run("evaluate", steps)
            answers += [self._answers()] if self.reads_answers else []
            chunk = next_chunk(steps, perf_counter() - began)
            done += steps
        return self.validation_metrics(self.executable.read(self._evaluate["sums"]), answers)

    def validation_metrics(
        self, sums: NDArray[np.float64], answers: Sequence[NDArray[np.float64]]
    ) -> Metrics:
        """What the sums of a whole validation mean; answers: of each batch, flat, if it
        ``reads_answers``."""
        found = Metrics.from_sums(sums, self.setup.spread(self.plan.validation))
        if not self.reads_answers:
            return found
        data, rows = self.setup.data, self._evaluation_order
        every = np.concatenate(answers).reshape(len(rows), -1)[rows >= 0]
        bound = self.setup.config.evaluate.yes_above
        others = measure(data.kind, data.labels[rows[rows >= 0]], every, bound).overall
        return replace(found, by=self.by, others=others)

    def _answers(self) -> NDArray[np.float64]:
        """Those to the last batch, flat."""
        return self.executable.read(self.graph("evaluate")["probabilities"]).reshape(-1)

    def training_metrics(self) -> Metrics:
        """What the running sums mean."""
        return Metrics.from_sums(self.sums(), self.setup.spread(self.plan.train))

    @property
    def renews(self) -> bool:
        """Whether the averaged weights of now need ``renew`` before they are evaluated."""
        return self._renewal is not None and self.step >= self._renewal.first

    def renew(self, stop_requested: Callable[[], bool] = lambda: False) -> bool:
        """Measure the statistics of batch norm for averaged weights; see ``Renewal``.

        False, and nothing is changed, if a stop is requested meanwhile.
        """
        done, chunk = 0, 1
        while self.renews and self._renewal is not None and done < self._renewal.steps:
            if stop_requested():
                return False
            count = min(chunk, ROWS, self._renewal.steps - done)
            began = perf_counter()
            self.renew_part(done, count)
            chunk = next_chunk(count, perf_counter() - began)
            done += count
        return True

    def renew_part(self, first: int, count: int) -> None:
        """Measure some batches; after the last one, write the statistics."""
        renewal = self._renewal
        assert renewal is not None
        if first == 0:
            self._renewed = renewal.begin(self.executable, self.orders.of(0))
        renewal.run(self.executable, first, count, self._renewed)
        if first + count == renewal.steps:
            renewal.end(self.executable, self._renewed)

    def bad_evaluation_batch(self) -> int | None:
        """The first batch of the validation whose loss is not finite, counted from 0."""
        if self._evaluate is None:
            return None
        for batch in range(self.evaluation_steps):
            if not np.isfinite(self.evaluated_batch(batch)[:3]).all():
                return batch
        return None

    def evaluated_batch(self, batch: int) -> NDArray[np.float64]:
        """(loss, right answers, samples) of one batch of the validation, float64; and the answers,
        if it ``reads_answers``."""
        self._start_evaluation(self.executable, batch)
        self.executable.run("evaluate")
        sums = self.executable.read(self.graph("evaluate")["sums"])
        return np.concatenate([sums, self._answers()]) if self.reads_answers else sums

    def sums(self) -> NDArray[np.float64]:
        """The running (loss, right answers, samples): (3,) float64."""
        if self._sums is None:
            self._sums = self.executable.read(self._train["sums"])
        return self._sums.copy()

    def set_sums(self, values: NDArray[np.float64]) -> None:
        self._sums = None
        self.executable.write(self._train["sums"], values)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """A copy of parameters, statistics and optimizer state by name, as this rank has them."""
        return {name: self.executable.read(own) for name, own in self._own.items()}

    def split(self) -> frozenset[str]:
        """The names of the arrays of which this rank has a share of the rows."""
        return frozenset(t.name for t in self._saved if self._own[t.name].shape != t.shape)

    def remarks(self) -> dict[str, Any]:
        """What the next line of the log says besides: nothing here."""
        return {}

    def set_rate_factor(self, factor: float) -> None:
        """Multiply the rates of the schedule by ``factor`` from now on."""
        self._rate_factor = np.float32(factor)
        self.rates = self.plan.rates * self._rate_factor
        self._feed_tables(self.executable, self.executable.graphs)

    @property
    def rate(self) -> float:
        """The rate of the last update: rates[step - 1]."""
        return float(self.rates[max(self.step - 1, 0)])

    def snapshot(self) -> Snapshot:
        """A copy of the state after ``step`` updates."""
        return Snapshot(self.step, self.sums(), self.arrays())

    def put(self, snapshot: Snapshot) -> None:
        """Restore a snapshot, of an earlier or a later step."""
        self._put_arrays(self.executable, snapshot.arrays)
        self.set_sums(snapshot.sums)
        self.step = snapshot.step
        self.stretches[0].go_to(self.executable, self.step)
        # An epoch's order is written when its first step runs.
        self._epoch = -1

    def repeat(
        self, backend: Backend, section: Section, at: Snapshot, batch: int = 0
    ) -> Generator[tuple[Executable, Graph], None, None]:
        """Repeat the step after a snapshot, or a batch of the validation at that step.

        Yields the executable after each section that runs, with that section's graph.
        It is compiled for ``backend`` without fusion, so each tensor of the graph can be read.
        """
        every = self._sections()
        stretch, _ = stretch_at(every.stretches, at.step)
        runs = stretch.runs() if section == "train" else [self.graph("evaluate")]
        sections = {graph.name: graph for graph in runs}
        with closing(backend.compile(sections, Options(fusion=False))) as executable:
            self._feed(executable, sections)
            self._put_arrays(executable, at.arrays)
            if section == "train":
                epoch = at.step // self.plan.steps_per_epoch
                train = every.stretches[0].train
                executable.write(train["order"], self.orders.of(epoch))
                executable.write(train["sums"], np.zeros(3))
                stretch.go_to(executable, at.step)
            else:
                self._start_evaluation(executable, batch)
            for graph in runs:
                executable.run(graph.name)
                yield executable, graph

    def graph(self, section: Section) -> Graph:
        """A section before rewrites; for training, that of the first stretch."""
        graph = self._train if section == "train" else self._evaluate
        if graph is None:
            raise ValueError("there are no validation samples")
        return graph

    def close(self) -> None:
        """Free the executable."""
        self.orders.close()
        self.executable.close()

    def _sections(self) -> Sections:
        """The sections for ``repeat``."""
        return Sections(self.stretches, self._evaluate)

    def _put_arrays(
        self, executable: Executable, arrays: Mapping[str, NDArray[np.float32]]
    ) -> None:
        held = {t.name: t for graph in executable.graphs.values() for t in shared_by_all(graph)}
        for name in (tensor.name for tensor in self._saved if tensor.name in held):
            own = held[name]
            whole = arrays[name]
            if own.shape != whole.shape:
                whole = whole[self.setup.share.rank * own.shape[0] :][: own.shape[0]]
            executable.write(own, whole)

    def _feed(self, executable: Executable, graphs: Mapping[str, Graph]) -> None:
        """Write constant inputs: pictures, labels, tables and the order of the validation."""
        for graph in graphs.values():
            if "images" in graph.results:
                executable.write(graph["images"], self.setup.data.images)
                executable.write(graph["labels"], self.setup.data.labels)
            if graph is self._evaluate:
                executable.write(graph["order"], self._evaluation_order)
        self._feed_tables(executable, graphs)

    def _feed_tables(self, executable: Executable, graphs: Mapping[str, Graph]) -> None:
        """Write the rates, the decays of averages and a teacher's weights that sections read."""
        tables = self.plan.scaled_tables(self._rate_factor)
        if self.network.teacher is not None:
            tables |= self.network.teacher.values
        read = {t for graph in graphs.values() for t in graph.tensors()}
        for tensor in {t.name: t for t in read if t.name in tables}.values():
            executable.write(tensor, tables[tensor.name])

    def _start_evaluation(self, executable: Executable, batch: int) -> None:
        graph = self.graph("evaluate")
        executable.write(graph["step"], np.array([batch], np.int64))
        executable.write(graph["sums"], np.zeros(3))


def shared_by_all(graph: Graph) -> list[Tensor]:
    """The tensors of a section that belong to none alone."""
    return [tensor for tensor in graph.tensors() if not tensor.section]


def _options(config: RunConfig) -> Options:
    run = config.run
    return Options(
        precision=run.precision,
        fusion=run.fuses,
        deterministic=run.deterministic,
        tune=run.tune is not False,
        tune_seconds=inf if run.tune is True else None,
        residency=config.data.residency,
        calls=run.calls or "best",
        share_memory=bool(config.train.recompute),
    )


def _compiled(backend: Backend, sections: Mapping[str, Graph], options: Options) -> Executable:
    begin = perf_counter()
    executable = backend.compile(sections, options)
    seconds = perf_counter() - begin
    _LOG.info("compiled %s for %s in %.2f s", " and ".join(sections), backend.name, seconds)
    return executable
