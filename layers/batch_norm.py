"""BatchNorm: normalises every channel to mean 0 and deviation 1 over the batch."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from ..common.errors import ShapeError
from ..common.options import Positive
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import BatchNorm, BatchNormBackward, BatchNormInference
from .initializers import Initializer
from .layer import Layer, Parameter, Statistic, parameter_tensor, statistic_tensor

ONES, ZEROS = Initializer("ones"), Initializer("zeros")


class BatchNormLayer(Layer):
    """Normalises each channel to mean 0 and deviation 1 over the batch, then scales and shifts it.

    y = weight (x - mean) / sqrt(var + eps) + bias; the formulas are in ops.BatchNorm. In training
    mean and var are the batch's, and the running statistics move towards them by ``momentum``;
    outside training the running statistics are used instead.
    x, y: (N, C, H, W) or (N, C); weight (with ``scale``), bias (with ``center``): (C,).
    Source: Ioffe and Szegedy 2015. Forward in training raises ShapeError for one value per
    channel, whose deviation is 0.
    """

    kind = "batch_norm"

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        momentum: Annotated[
            float,
            Interval(gt=0, le=1),
            "Weight of the new value in the running statistics, which evaluation uses.",
        ] = 0.1,
        eps: Annotated[Positive, "Added to the variance before the square root."] = 1e-5,
        scale: Annotated[bool, "Multiply by a trained factor for each channel."] = True,
        center: Annotated[
            bool, "Add a trained offset to each channel; a layer before it needs no bias."
        ] = True,
        scale_initializer: Annotated[Initializer, "Initial values of the factors."] = ONES,
        bias_initializer: Annotated[Initializer, "Initial values of the offsets."] = ZEROS,
    ) -> None:
        if not 0.0 < momentum <= 1.0 or eps <= 0.0:
            raise ShapeError(
                f"momentum must be in (0, 1] and eps above 0, got {momentum:g} and {eps:g}"
            )
        super().__init__(name, input_shape, input_shape)
        self.momentum = momentum
        self.eps = eps
        shape = (input_shape[0],)
        weight, bias = (parameter_tensor(name, part, shape) for part in ("weight", "bias"))
        self.weight = Parameter(weight, "scale", scale_initializer, 1, 1) if scale else None
        self.bias = Parameter(bias, "shift", bias_initializer, 1, 1) if center else None
        self.running_mean = statistic_tensor(name, "running_mean", shape)
        self.running_var = statistic_tensor(name, "running_var", shape)

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(p for p in (self.weight, self.bias) if p is not None)

    def statistics(self) -> tuple[Statistic, ...]:
        return Statistic(self.running_mean, 0.0), Statistic(self.running_var, 1.0)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        weight = self.weight.tensor if self.weight is not None else None
        bias = self.bias.tensor if self.bias is not None else None
        mean, var = self.running_mean, self.running_var
        if not graph.training:
            graph.add(
                BatchNormInference(
                    x=x,
                    y=y,
                    weight=weight,
                    bias=bias,
                    running_mean=mean,
                    running_var=var,
                    eps=self.eps,
                )
            )
            return y
        if x.size == x.shape[1]:
            if graph.parts > 1:
                batch = f"a part of {x.shape[0]} of {x.shape[0] * graph.parts} samples"
                advice = "lower train.accumulate, or raise data.batch_size"
            else:
                batch, advice = f"a batch of {x.shape[0]}", "raise data.batch_size"
            raise ShapeError(
                f"layer '{self.name}' ({self.kind}): {batch} gives one value per channel, which "
                f"has no variance; {advice}"
            )
        batch_mean = graph.tensor(f"{self.name}.mean", mean.shape)
        inverse_std = graph.tensor(f"{self.name}.inverse_std", mean.shape)
        graph.keep(self.name, x=x, mean=batch_mean, inverse_std=inverse_std)
        graph.add(
            BatchNorm(
                x=x,
                y=y,
                weight=weight,
                bias=bias,
                mean=batch_mean,
                inverse_std=inverse_std,
                running_mean=mean,
                running_var=var,
                momentum=self.momentum,
                eps=self.eps,
            )
        )
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        kept = graph.kept(self.name)
        dx = self.input_gradient(graph, dy)
        weight, bias = self.weight, self.bias
        graph.add(
            BatchNormBackward(
                x=kept["x"],
                mean=kept["mean"],
                inverse_std=kept["inverse_std"],
                dy=dy,
                dx=dx,
                weight=weight.tensor if weight is not None else None,
                dw=graph.gradient(weight.tensor) if weight is not None else None,
                db=graph.gradient(bias.tensor) if bias is not None else None,
                eps=self.eps,
            )
        )
        return dx
