"""BatchNorm: normalises every channel to mean 0 and deviation 1 over the batch."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Interval

from ..common.errors import ShapeError
from ..common.options import SMALL, Positive
from ..graph.graph import Graph, Tensor
from ..graph.ops import BatchNorm, BatchNormBackward, BatchNormInference, BatchNormInferenceBackward
from .initializers import ONES, ZEROS, Initializer
from .layer import Layer, Statistic


class BatchNormLayer(Layer):
    """Normalises each channel to mean 0 and deviation 1 over the batch, then scales and shifts it.

    y = weight (x - mean) / sqrt(var + eps) + bias; the formulas are in ops.BatchNorm. In training
    mean and var are the batch's, and the running statistics move towards them by ``momentum``;
    outside training, and where the layer is frozen, the running statistics are used instead.
    x, y: (N, C, H, W) or (N, C); weight (with ``scale``), bias (with ``center``): (C,).
    Source: Ioffe and Szegedy 2015. Forward in training raises ShapeError for one value per
    channel, whose deviation is 0.
    """

    kind = "batch_norm"
    momentum: Annotated[
        float,
        Interval(ge=SMALL, le=1),
        "Weight of the new value in the running statistics, which evaluation uses.",
    ] = 0.1
    eps: Annotated[Positive, "Added to the variance before the square root."] = 1e-5
    scale: Annotated[bool, "Multiply by a trained factor for each channel."] = True
    center: Annotated[
        bool, "Add a trained offset to each channel; a layer before it needs no bias."
    ] = True
    scale_initializer: Annotated[Initializer, "Initial values of the factors."] = ONES
    bias_initializer: Annotated[Initializer, "Initial values of the offsets."] = ZEROS

    def build(self) -> None:
        shape = self.input_shape[:1]
        self.weight = self.bias = None
        if self.scale:
            self.weight = self.parameter("weight", shape, "scale", self.scale_initializer)
        if self.center:
            self.bias = self.parameter("bias", shape, "shift", self.bias_initializer)
        self.running_mean = Tensor(f"{self.name}.running_mean", shape, "float32", "state")
        self.running_var = Tensor(f"{self.name}.running_var", shape, "float32", "state")

    def running_statistics(self) -> tuple[Statistic, ...]:
        return (
            Statistic(self.running_mean, 0.0, self.frozen),
            Statistic(self.running_var, 1.0, self.frozen),
        )

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        fields: dict[str, Any] = {
            "x": x,
            "y": self.output(graph, x),
            "weight": self.weight,
            "bias": self.bias,
            "eps": self.eps,
        }
        running: dict[str, Any] = {
            "running_mean": self.running_mean,
            "running_var": self.running_var,
        }
        if not graph.training or self.frozen:
            return graph.add(BatchNormInference(**fields, **running))
        if x.size == x.shape[1]:
            raise ShapeError(
                f"layer '{self.name}' ({self.kind}): a batch of 1 gives one value per channel, "
                "which has no variance; raise data.batch_size, or lower train.accumulate, which "
                "cuts a batch into parts"
            )
        parts, shape = ("mean", "inverse_std"), x.shape[1:2]
        batch: dict[str, Any] = {p: graph.tensor(f"{self.name}.{p}", shape) for p in parts}
        graph.keep(self.name, x=x, **batch)
        return graph.add(BatchNorm(**fields, **batch, **running, momentum=self.momentum))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if self.frozen:
            dx = self.input_gradient(graph, dy)
            return graph.add(
                BatchNormInferenceBackward(
                    dy=dy, dx=dx, weight=weight, running_var=self.running_var, eps=self.eps
                )
            )
        return graph.add(
            BatchNormBackward(
                **graph.kept(self.name),
                dy=dy,
                dx=self.input_gradient(graph, dy),
                weight=weight,
                dw=graph.gradient(weight) if weight is not None else None,
                db=graph.gradient(bias) if bias is not None else None,
                eps=self.eps,
            )
        )
