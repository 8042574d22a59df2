"""The protocol of a layer: it knows its shapes when it is built, and describes what it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal

from typing_extensions import dataclass_transform

from ..common.records import dataclass
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Reshape
from .initializers import FanIn, Initializer

UseBias = Annotated[bool, "Add a trained bias to each output."]
KernelInitializer = Annotated[Initializer, "Initial values of the weights."]
BiasInitializer = Annotated[Initializer, "Initial values of the bias."]

ParameterKind = Literal["kernel", "bias", "scale", "shift"]


@dataclass(frozen=True)
class Parameter:
    """A trained tensor of a layer, its initial values, and its kind.

    ``kind``: ``kernel`` for matrices and filters, ``bias`` for what is added to their products,
    ``scale`` and ``shift`` for a factor and an offset per channel, as in normalisation. ``fan_in``
    and ``fan_out`` count the inputs of one output value and the outputs that one input value
    reaches (Glorot and Bengio 2010); initialisers scale by them. ``fan_in`` may also be one number
    for each row of the tensor. ``frozen``: it belongs to a frozen layer, and is never trained.
    """

    tensor: Tensor
    kind: ParameterKind
    initializer: Initializer
    fan_in: FanIn
    fan_out: int
    frozen: bool = False

    def __post_init__(self) -> None:
        self.initializer.check(self.tensor.shape)


@dataclass(frozen=True)
class Statistic:
    """A tensor that forward updates in training, without a gradient; it starts at ``initial``.

    ``frozen``: it belongs to a frozen layer, and is only read.
    """

    tensor: Tensor
    initial: float
    frozen: bool = False


@dataclass_transform(kw_only_default=True, eq_default=False)
@dataclass(eq=False, repr=False)
class Layer(ABC):
    """One layer of the stack; shapes exclude the batch: (C, H, W) or (units,).

    Every class that derives from this one is a dataclass, whose fields that carry a text are its
    options; ``build`` works out the rest. A layer is complete when it is built: impossible geometry
    raises ShapeError then. ``forward`` and ``backward`` add operations to a graph and compute
    nothing. A layer that is not ``differentiable`` has no gradient to send to the layers before it.
    A config can use all that are ``named``. ``children`` are the layers inside a composite.
    ``parallel``: what ranks share out of it, see parallel.py. One is ``by_pixel`` if each pixel of
    its output follows from the pixel at the same place alone.
    """

    kind: ClassVar[str]
    named: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    by_pixel: ClassVar[bool] = False

    name: str
    input_shape: Shape

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __post_init__(self) -> None:
        self.output_shape = self.input_shape
        self.children: tuple[Layer, ...] = ()
        self.frozen = False
        self.parallel: str | None = None
        self._parameters: list[Parameter] = []
        self.build()

    def build(self) -> None:  # noqa: B027  # many layers have nothing to add
        """Work out all that follows from the options, such as another ``output_shape``."""

    def parameters(self) -> tuple[Parameter, ...]:
        """The trained tensors, also of the layers inside, in the order in which they are stored."""
        own = (replace(p, frozen=True) if self.frozen else p for p in self._parameters)
        inner = (p for layer in self.children for p in layer.parameters())
        return (*own, *inner)

    def freeze(self) -> None:
        """Let training change nothing of it, or of the layers inside, statistics included."""
        self.frozen = True
        for layer in self.children:
            layer.freeze()

    def parameter(
        self,
        name: str,
        shape: Shape,
        kind: ParameterKind,
        initializer: Initializer,
        fan_in: FanIn = 1,
        fan_out: int = 1,
    ) -> Tensor:
        """Define the trained tensor ``<layer>.<name>``, shared by all graphs; see Parameter."""
        tensor = Tensor(f"{self.name}.{name}", shape, "float32", "parameter")
        self._parameters.append(Parameter(tensor, kind, initializer, fan_in, fan_out))
        return tensor

    def running_statistics(self) -> tuple[Statistic, ...]:
        """What forward learns from its input in training and uses outside training."""
        return tuple(s for layer in self.children for s in layer.running_statistics())

    @abstractmethod
    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        """Add y = layer(x); keep in the graph what backward needs. x: (N, *input_shape)."""

    @abstractmethod
    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        """Add dx = J(x)^T dy and the gradient of every parameter. dy: (N, *output_shape).

        If nothing needs dx, its operations are pruned from the graph.
        """

    def output(self, graph: Graph, x: Tensor) -> Tensor:
        """Define the tensor of the layer's output for a batch as large as x's."""
        return graph.tensor(f"{self.name}.y", (x.shape[0], *self.output_shape))

    def input_gradient(self, graph: Graph, dy: Tensor) -> Tensor:
        """Define the tensor of the gradient that backward returns."""
        return graph.tensor(f"{self.name}.dx", (dy.shape[0], *self.input_shape))

    def tensor(self, graph: Graph, name: str, shape: Shape) -> Tensor:
        """Define a tensor between the operations of the layer."""
        return graph.tensor(f"{self.name}.{name}", shape)

    def reshaped(self, graph: Graph, x: Tensor, name: str, shape: Shape) -> Tensor:
        """Add the same numbers as a tensor of another shape."""
        return graph.add(Reshape(x=x, y=self.tensor(graph, name, shape)))


class SingleLayer(Layer):
    """A layer that is one operation from x to y, and its backward one from dy to dx.

    ``fields`` are those of both operations beside their tensors, by default those that the layer
    has under the same names. Backward's also reads what of x and y is in ``keeps``. Without a
    ``backward_op`` it is the same operation, applied to dy.
    """

    op: ClassVar[type[Any]]
    backward_op: ClassVar[type[Any] | None] = None
    keeps: ClassVar[tuple[str, ...]] = ()

    def fields(self) -> dict[str, Any]:
        return {e.name: getattr(self, e.name) for e in fields(self.op) if hasattr(self, e.name)}

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        ends = {"x": x, "y": self.output(graph, x)}
        graph.keep(self.name, **{name: ends[name] for name in self.keeps})
        return graph.add(self.op(**ends, **self.fields()))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        if self.backward_op is None:
            return graph.add(self.op(x=dy, y=dx, **self.fields()))
        kept = graph.kept(self.name)
        return graph.add(self.backward_op(**kept, dy=dy, dx=dx, **self.fields()))
