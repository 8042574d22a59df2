"""Session: a training compiled for a device, with its data and state; it advances when told to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from ..datasets import ImageSet, epoch_order, evaluation_order
from ..layers.backends.base import Backend, Executable, Options
from ..layers.backends.tuning import Tuning
from ..layers.graph import Graph, Shape
from .assemble import optimizer
from .checkpoint import Checkpoint
from .metrics import Metrics
from .network import Network, Preprocessing
from .pace import next_chunk
from .plan import Plan

if TYPE_CHECKING:
    from ..configs.schema import RunConfig

_LOG = logging.getLogger("dnnstack.training")
SOURCE = "train"
Section = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Snapshot:
    """Everything that changes from step to step: parameters and momentum by name, metric sums."""

    step: int
    sums: NDArray[np.float64]
    arrays: dict[str, NDArray[np.float32]]


class Session:
    """The sections "train" and, with validation samples, "evaluate", sharing parameters and data.

    ``step`` counts updates done. Call ``initialize`` or ``restore`` before ``run``. ``interrupt``
    is called now and then while compiling; what it raises ends it.
    """

    def __init__(
        self,
        config: RunConfig,
        network: Network,
        scaling: Preprocessing,
        plan: Plan,
        data: ImageSet,
        backend: Backend,
        tuning: Tuning | None = None,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.network = network
        self.rates = plan.rates
        self.step = 0
        self._seed = config.seed
        self._data = data
        self._epoch = -1
        rule = optimizer(config)
        self._train = network.train_graph(
            plan.batch_size,
            SOURCE,
            len(data),
            plan.steps_per_epoch,
            plan.total_steps,
            scaling,
            rule,
            seed=config.seed,
        )
        sections = {"train": self._train}
        self._evaluate: Graph | None = None
        self._evaluation_order = evaluation_order(plan.validation, plan.evaluation_batch_size)
        self._evaluation_steps = len(self._evaluation_order) // plan.evaluation_batch_size
        if self._evaluation_steps:
            self._evaluate = sections["evaluate"] = network.evaluate_graph(
                plan.evaluation_batch_size, SOURCE, len(data), self._evaluation_steps, scaling
            )
        options = Options(
            precision=config.run.precision,
            fusion=config.run.fusion,
            deterministic=config.run.deterministic,
            tuning=tuning,
            interrupt=interrupt,
        )
        begin = perf_counter()
        self.executable = backend.compile(sections, options)
        seconds = perf_counter() - begin
        _LOG.info("compiled %s for %s in %.2f s", " and ".join(sections), backend.name, seconds)
        self._learned = network.learned()
        self._buffers = rule.buffers(network.parameters())
        self._feed(self.executable)

    def initialize(self) -> None:
        """Fresh parameters and statistics, momentum and sums of zero, step 0."""
        for tensor, values in self.network.initial_values(self._seed).items():
            self.executable.write(tensor, values)
        for tensor in self._buffers:
            self.executable.write(tensor, np.zeros(tensor.shape, np.float32))
        self.set_sums(np.zeros(3))
        self._go_to(0)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Parameters, statistics, momentum, sums and step of a checkpoint.

        Raises CheckpointError where it does not fit the network, the data or the training's length.
        """
        state, plan = checkpoint.state, self.plan
        if state.steps_per_epoch != plan.steps_per_epoch:
            raise CheckpointError(
                f"{checkpoint.path}: was made with {state.steps_per_epoch} steps an epoch, now "
                f"there are {plan.steps_per_epoch}: the data set or the batch size is another"
            )
        if state.step > plan.total_steps:
            raise CheckpointError(
                f"{checkpoint.path}: is of step {state.step}, but the config ends training after "
                f"{plan.total_steps} steps; raise train.epochs or train.max_steps"
            )
        values = checkpoint.everything(self.shapes())
        self.put(Snapshot(state.step, np.array(state.sums, np.float64), values))
        self.set_rate_factor(state.rate_factor)

    def shapes(self) -> dict[str, Shape]:
        """Names and shapes of what a checkpoint holds: parameters, statistics, then momentum."""
        return {t.name: t.shape for t in (*self._learned, *self._buffers)}

    def run(self, steps: int) -> None:
        """Do so many updates, all within one epoch."""
        epoch, done = divmod(self.step, self.plan.steps_per_epoch)
        if done + steps > self.plan.steps_per_epoch:
            raise ValueError(f"{steps} steps from step {self.step} leave epoch {epoch}")
        if epoch != self._epoch:
            self.executable.write(self._train["order"], self._order(epoch))
            self._epoch = epoch
        self.executable.run("train", steps)
        self.step += steps

    def validate(self, stop_requested: Callable[[], bool] = lambda: False) -> Metrics | None:
        """Loss and accuracy over all validation samples, each counted once.

        None where a stop is requested meanwhile, which is asked several times a second.
        """
        if self._evaluate is None:
            raise ValueError("there are no validation samples")
        self._start_evaluation(self.executable, 0)
        done, chunk = 0, 1
        while done < self._evaluation_steps:
            if stop_requested():
                return None
            steps = min(chunk, self._evaluation_steps - done)
            began = perf_counter()
            self.executable.run("evaluate", steps)
            chunk = next_chunk(steps, perf_counter() - began)
            done += steps
        return Metrics.from_sums(self.executable.read(self._evaluate["sums"]))

    def bad_evaluation_batch(self) -> int | None:
        """The first batch of the validation whose loss is not finite, counted from 0."""
        if self._evaluate is None:
            return None
        for batch in range(self._evaluation_steps):
            self._start_evaluation(self.executable, batch)
            self.executable.run("evaluate")
            if not np.isfinite(self.executable.read(self._evaluate["sums"])).all():
                return batch
        return None

    def sums(self) -> NDArray[np.float64]:
        """The running (loss, right answers, samples): (3,) float64."""
        return self.executable.read(self._train["sums"])

    def set_sums(self, values: NDArray[np.float64]) -> None:
        self.executable.write(self._train["sums"], values)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """A snapshot of parameters, statistics and momentum by name."""
        return {t.name: self.executable.read(t) for t in (*self._learned, *self._buffers)}

    def set_rate_factor(self, factor: float) -> None:
        """Multiply the rates of the schedule by ``factor`` from now on."""
        self.rates = self.plan.rates * np.float32(factor)
        self.executable.write(self._train["rates"], self.rates)

    def snapshot(self) -> Snapshot:
        """A copy of the state after ``step`` updates."""
        return Snapshot(self.step, self.sums(), self.arrays())

    def put(self, snapshot: Snapshot) -> None:
        """Go back, or on, to a snapshot."""
        self._put_arrays(self.executable, snapshot.arrays)
        self.set_sums(snapshot.sums)
        self._go_to(snapshot.step)

    def repeat(
        self, backend: Backend, section: Section, at: Snapshot, batch: int = 0
    ) -> Executable:
        """Compute the step after a snapshot, or a batch of the validation there, once more.

        It is compiled for ``backend`` without fusion, so each tensor of the graph can be read
        afterwards. The caller closes it.
        """
        graph = self.graph(section)
        executable = backend.compile({section: graph}, Options(fusion=False))
        try:
            self._feed(executable, section)
            self._put_arrays(executable, at.arrays)
            if section == "train":
                epoch = at.step // self.plan.steps_per_epoch
                executable.write(graph["order"], self._order(epoch))
                executable.write(graph["step"], np.array([at.step], np.int64))
                executable.write(graph["sums"], np.zeros(3))
            else:
                self._start_evaluation(executable, batch)
            executable.run(section)
        except BaseException:
            executable.close()
            raise
        return executable

    def graph(self, section: Section) -> Graph:
        """A section as it is described, before rewrites."""
        graph = self._train if section == "train" else self._evaluate
        if graph is None:
            raise ValueError("there are no validation samples")
        return graph

    def close(self) -> None:
        """Free the executable."""
        self.executable.close()

    def _go_to(self, step: int) -> None:
        self.step = step
        self.executable.write(self._train["step"], np.array([step], np.int64))
        # An epoch's order is written when its first step runs.
        self._epoch = -1

    def _order(self, epoch: int) -> NDArray[np.int32]:
        return epoch_order(self.plan.train, self._seed, epoch, self.plan.batch_size)

    def _put_arrays(
        self, executable: Executable, arrays: Mapping[str, NDArray[np.float32]]
    ) -> None:
        held = set(executable.graphs)
        for tensor in (*self._learned, *(self._buffers if "train" in held else ())):
            executable.write(tensor, arrays[tensor.name])

    def _feed(self, executable: Executable, *sections: Section) -> None:
        """Write what stays the same: pictures, labels, rates and the order of the validation."""
        graphs = [self.graph(name) for name in sections]
        if not sections:
            graphs = [self._train] if self._evaluate is None else [self._train, self._evaluate]
        for graph in graphs:
            executable.write(graph["images"], self._data.images)
            executable.write(graph["labels"], self._data.labels)
            if graph is self._train:
                executable.write(graph["rates"], self.rates)
            else:
                executable.write(graph["order"], self._evaluation_order)

    def _start_evaluation(self, executable: Executable, batch: int) -> None:
        graph = self.graph("evaluate")
        executable.write(graph["step"], np.array([batch], np.int64))
        executable.write(graph["sums"], np.zeros(3))
