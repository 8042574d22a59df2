"""SqueezeExcite: each channel of a picture times a share that the whole picture decides."""

from __future__ import annotations

from typing import Annotated, Literal

from ..common.options import Count
from ..graph import ops
from ..graph.graph import Graph, Tensor
from .activation import HardSigmoid, Relu, Sigmoid
from .composite import Composite, backward_all, forward_all
from .conv import picture_shape
from .dense import Dense
from .pool import GlobalAvgPool2d


class SqueezeExcite(Composite):
    """Multiplies each channel by a share between 0 and 1 that follows from the means of all.

    y[n,c] = x[n,c] s[n,c], s = gate(W2 relu(W1 m + b1) + b2), m[n,c] the mean of x[n,c]. x, y:
    (N, C, H, W); W1 (``fc1``): (units, C), W2 (``fc2``): (C, units). Source: Hu et al. 2018, eq. 2
    to 4; with ``hardsigmoid`` Howard et al. 2019.
    """

    kind = "squeeze_excite"
    units: Annotated[Count, "Number of values between the two dense layers."]
    gate: Annotated[Literal["sigmoid", "hardsigmoid"], "The activation that makes the shares."] = (
        "sigmoid"
    )

    def build(self) -> None:
        shape, units, name = picture_shape(self.input_shape), self.units, self.name
        gate = HardSigmoid if self.gate == "hardsigmoid" else Sigmoid
        mean = GlobalAvgPool2d(f"{name}.mean", shape)
        fc1 = Dense(f"{name}.fc1", shape[:1], units=units)
        fc2 = Dense(f"{name}.fc2", (units,), units=shape[0])
        relu = Relu(f"{name}.relu", (units,))
        self.take((mean, fc1, relu, fc2, gate(f"{name}.gate", shape[:1])))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        shares = forward_all(self.children, graph, x)
        whole = self._whole(graph, x, "whole")
        factors = self.reshaped(graph, shares, "factors", whole.shape[1:2])
        scaled = self.tensor(graph, "scaled", whole.shape)
        graph.keep(self.name, x=whole, s=factors)
        graph.add(ops.GateChannels(x=whole, s=factors, y=scaled))
        return graph.add(ops.Reshape(x=scaled, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dscaled, kept = self._whole(graph, dy, "dscaled"), graph.kept(self.name)
        dwhole, ds = (self.tensor(graph, f"d{key}.whole", t.shape) for key, t in kept.items())
        graph.add(ops.ChannelScaleBackward(**kept, dy=dscaled, dx=dwhole, ds=ds))
        direct = self.reshaped(graph, dwhole, "direct", dy.shape)
        dshares = self.reshaped(graph, ds, "dshares", dy.shape[:2])
        terms = direct, backward_all(self.children, graph, dshares)
        return graph.add(ops.Add(terms=terms, y=self.input_gradient(graph, dy)))

    def _whole(self, graph: Graph, x: Tensor, name: str) -> Tensor:
        """One picture, of which every channel of every sample is a channel."""
        return self.reshaped(graph, x, name, (1, x.shape[0] * x.shape[1], *x.shape[2:]))
