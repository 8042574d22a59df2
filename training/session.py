"""Session: a training compiled for a device, with its data and state; it advances when told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from ..datasets import ImageSet, epoch_order, evaluation_order
from ..layers.backends.base import Backend, Options
from ..layers.backends.tuning import Tuning
from ..layers.graph import Graph, Shape
from .assemble import optimizer
from .checkpoint import Checkpoint
from .metrics import Metrics
from .network import Network, Preprocessing
from .plan import Plan

if TYPE_CHECKING:
    from ..configs.schema import RunConfig

SOURCE = "train"


class Session:
    """The sections "train" and, with validation samples, "evaluate", sharing parameters and data.

    ``step`` counts updates done. Call ``initialize`` or ``restore`` before ``run``.
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
    ) -> None:
        self.plan = plan
        self.step = 0
        self._seed = config.seed
        self._network = network
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
        )
        sections = {"train": self._train}
        self._evaluate: Graph | None = None
        order = evaluation_order(plan.validation, plan.evaluation_batch_size)
        self._evaluation_steps = len(order) // plan.evaluation_batch_size
        if self._evaluation_steps:
            self._evaluate = sections["evaluate"] = network.evaluate_graph(
                plan.evaluation_batch_size, SOURCE, len(data), self._evaluation_steps, scaling
            )
        options = Options(
            precision=config.run.precision,
            fusion=config.run.fusion,
            deterministic=config.run.deterministic,
            tuning=tuning,
        )
        self.executable = backend.compile(sections, options)
        self._parameters = tuple(p.tensor for p in network.parameters())
        self._buffers = rule.buffers(network.parameters())
        self.executable.write(self._train["images"], data.images)
        self.executable.write(self._train["labels"], data.labels)
        self.executable.write(self._train["rates"], plan.rates)
        if self._evaluate is not None:
            self.executable.write(self._evaluate["order"], order)

    def initialize(self) -> None:
        """Fresh parameters, momentum and sums of zero, step 0."""
        for tensor, values in self._network.initial_values(self._seed).items():
            self.executable.write(tensor, values)
        for tensor in self._buffers:
            self.executable.write(tensor, np.zeros(tensor.shape, np.float32))
        self.set_sums(np.zeros(3))
        self._go_to(0)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Parameters, momentum, sums and step of a checkpoint.

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
        for tensor in (*self._parameters, *self._buffers):
            self.executable.write(tensor, values[tensor.name])
        self.set_sums(np.array(state.sums, np.float64))
        self._go_to(state.step)

    def shapes(self) -> dict[str, Shape]:
        """Names and shapes of what a checkpoint holds: parameters, then momentum."""
        return {t.name: t.shape for t in (*self._parameters, *self._buffers)}

    def run(self, steps: int) -> None:
        """Do so many updates, all within one epoch."""
        epoch, done = divmod(self.step, self.plan.steps_per_epoch)
        if done + steps > self.plan.steps_per_epoch:
            raise ValueError(f"{steps} steps from step {self.step} leave epoch {epoch}")
        if epoch != self._epoch:
            order = epoch_order(self.plan.train, self._seed, epoch, self.plan.batch_size)
            self.executable.write(self._train["order"], order)
            self._epoch = epoch
        self.executable.run("train", steps)
        self.step += steps

    def validate(self) -> Metrics:
        """Loss and accuracy over all validation samples, each counted once."""
        if self._evaluate is None:
            raise ValueError("there are no validation samples")
        self.executable.write(self._evaluate["step"], np.zeros(1, np.int64))
        self.executable.write(self._evaluate["sums"], np.zeros(3))
        self.executable.run("evaluate", self._evaluation_steps)
        return Metrics.from_sums(self.executable.read(self._evaluate["sums"]))

    def sums(self) -> NDArray[np.float64]:
        """The running (loss, right answers, samples): (3,) float64."""
        return self.executable.read(self._train["sums"])

    def set_sums(self, values: NDArray[np.float64]) -> None:
        self.executable.write(self._train["sums"], values)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """A snapshot of parameters and momentum by name."""
        return {t.name: self.executable.read(t) for t in (*self._parameters, *self._buffers)}

    def close(self) -> None:
        """Free the executable."""
        self.executable.close()

    def _go_to(self, step: int) -> None:
        self.step = step
        self.executable.write(self._train["step"], np.array([step], np.int64))
        # An epoch's order is written when its first step runs.
        self._epoch = -1
