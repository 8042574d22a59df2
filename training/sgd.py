"""Stochastic gradient descent as operations at the end of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..layers.graph import Graph, Tensor
from ..layers.layer import Parameter
from ..layers.ops import ClipByNorm, GlobalNorm, SgdUpdate


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum, Nesterov, weight decay and clipping by the global norm.

    ``weight_decay_on``: "weights" leaves biases and the scale and shift of normalisation undecayed.
    ``clip_norm``: None does not clip.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    weight_decay_on: Literal["all", "weights"] = "all"
    clip_norm: float | None = None

    def buffers(self, parameters: Sequence[Parameter]) -> tuple[Tensor, ...]:
        """The state tensors ``momentum/<parameter>``, none without momentum."""
        if not self.momentum:
            return ()
        return tuple(
            Tensor(f"momentum/{p.tensor.name}", p.tensor.shape, "float32", "state")
            for p in parameters
        )

    def update(
        self, graph: Graph, parameters: Sequence[Parameter], rates: Tensor, step: Tensor
    ) -> None:
        """Add the update; rates: (steps,) learning rates, step: (1,) the step to take now."""
        gradients = tuple(graph.gradient(p.tensor) for p in parameters)
        if not gradients:
            return
        if self.clip_norm is not None:
            norm = graph.tensor("gradient_norm", (1,))
            graph.add(GlobalNorm(gradients=gradients, norm=norm))
            graph.add(ClipByNorm(norm=norm, gradients=gradients, max_norm=self.clip_norm))
        every = self.weight_decay_on == "all"
        graph.add(
            SgdUpdate(
                gradients=gradients,
                rates=rates,
                step=step,
                parameters=tuple(p.tensor for p in parameters),
                buffers=self.buffers(parameters),
                weight_decay=tuple(
                    self.weight_decay if every or p.kind == "kernel" else 0.0 for p in parameters
                ),
                momentum=self.momentum,
                nesterov=self.nesterov,
            )
        )
