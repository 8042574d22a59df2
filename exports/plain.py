"""A trained network as data: what every format writes down."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.kernels import KERNELS
from ..backends.reference.quantized import quantized_weights, scales_and_sums
from ..common.records import dataclass
from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import (
    BatchNormInference,
    BiasAdd,
    ChannelScale,
    Conv2d,
    MatMul,
    Scale,
)
from ..graph.quantization import quantized
from ..graph.rewrites import activation, add_activation, bias
from ..layers.composite import mapped, walk
from ..layers.layer import Layer
from ..training.assemble import describe_data
from ..training.inference.trained import Trained

Floats = NDArray[np.float64]
AFFINE = (BatchNormInference, BiasAdd, ChannelScale, Scale)
"""Operations that compute x scale + shift."""


@dataclass(frozen=True, eq=False)
class Plain:
    """A trained network: operations on one sample x: (1, C, H, W) in order, and their arrays.

    ``layers`` are those before the scores. x = raw * scale + shift, with a number per channel each;
    raw are pixels from 0 to 255, or the numbers of a table's columns or of a sequence. ``y`` is
    what is answered: probabilities, or numbers. ``about``: what a file says of itself, by key.
    """

    trained: Trained
    layers: tuple[Layer, ...]
    graph: Graph
    x: Tensor
    y: Tensor
    arrays: Mapping[str, NDArray[np.float32]]
    scale: Floats
    shift: Floats
    about: Mapping[str, str]

    @classmethod
    def of(cls, trained: Trained) -> Plain:
        network, origin = trained.network, trained.checkpoint.provenance
        network = network.computed_by(mapped(network.layers, _direct))
        arrays = trained.checkpoint.parameters({t.name: t.shape for t in network.learned()})
        graph = _as_written(trained, network.infer_graph(1), arrays)
        size, zero = _units(trained)
        factor, offset = (
            np.array(v, np.float64)
            for v in (origin.preprocessing.scale, origin.preprocessing.shift)
        )
        # x = stored * factor + offset, raw = stored * size + zero.
        scale, shift = factor / size, offset - zero / size * factor
        ends = graph["x"], graph["probabilities"]
        return cls(trained, network.scoring(), graph, *ends, arrays, scale, shift, _about(trained))

    @property
    def ops(self) -> list[Op]:
        return self.graph.ops

    @property
    def classes(self) -> tuple[str, ...]:
        return self.trained.classes

    @property
    def pixels(self) -> bool:
        """Whether raw are bytes."""
        return self.trained.takes_pictures

    @property
    def is_quantized(self) -> bool:
        return bool(self.trained.checkpoint.quantization)

    @cached_property
    def name(self) -> str:
        """The config's name as an identifier of C, Python and JavaScript."""
        name = "".join(c if c.isascii() and c.isalnum() else "_" for c in self.trained.config.name)
        return name if name[:1].isalpha() else f"net_{name}"

    def constant(self, tensor: Tensor) -> NDArray[np.float32]:
        """The value of a parameter or statistic."""
        return self.arrays[tensor.name]

    def telling(self, **about: str) -> Plain:
        """The same network that says more of itself."""
        return replace(self, about={**self.about, **about})

    def affine(self, op: Any) -> tuple[Floats, Floats]:
        """(scale, shift), one number or one per channel each, of an operation of ``AFFINE``."""
        value = {
            name: self.constant(tensor).astype(np.float64)
            for name in op.inputs
            if name != "x" and (tensor := getattr(op, name)) is not None
        }
        scale = np.atleast_1d(value.get("s", 1.0) * getattr(op, "factor", 1.0))
        shift = value.get("b", value.get("bias", 0.0))
        if isinstance(op, BatchNormInference):
            scale = value.get("weight", 1.0) / np.sqrt(value["running_var"] + op.eps)
            shift = shift - value["running_mean"] * scale
        both = np.broadcast_arrays(scale, shift)
        return both[0], both[1]

    def matrix(self, op: MatMul) -> NDArray[np.float32]:
        """The weights of a dense layer: (outputs, inputs)."""
        w = self.constant(op.b)
        return w if op.transpose_b else w.T

    def integers(self, op: Any) -> tuple[NDArray[Any], Floats, Floats]:
        """Of a product of integers the weights, and for each output the step of a sum, by which the
        scale of the input is multiplied, and what is added to it."""
        w, *values = (None if t is None else self.constant(t) for t in op.parameters)
        assert w is not None
        whole, scales = quantized_weights(w)
        bias, weight, shift, mean, var = values
        return whole, *scales_and_sums(op, scales, bias, weight, shift, mean, var)

    def folded(self) -> Plain:
        """The same with batch norms inside the products before them."""
        arrays, ops = dict(self.arrays), list(self.ops)
        for norm in [op for op in ops if isinstance(op, BatchNormInference)]:
            before: Any = self.graph.producer(norm.x)
            alone = len(self.graph.consumers(norm.x)) == 1 and norm.x != self.y
            if not (isinstance(before, Conv2d | MatMul) and alone):
                continue
            at = next(i for i, op in enumerate(ops) if norm.x in op.writes())
            ops[at] = self._with_norm(ops[at], norm, arrays)
            ops = [op for op in ops if op is not norm]
        return replace(self, graph=self.graph.with_ops(ops), arrays=arrays)

    def fused(self) -> Plain:
        """The same with activations inside what is before them."""
        return replace(self, graph=add_activation(activation(self.graph)))

    def _with_norm(
        self, op: Op, norm: BatchNormInference, arrays: dict[str, NDArray[np.float32]]
    ) -> Op:
        """A product that computes the batch norm behind it, with arrays of its own."""
        product: Any = op
        of, column = ("w", 0) if isinstance(op, Conv2d) else ("b", 0 if product.transpose_b else 1)
        scale, shift = self.affine(norm)
        if product.bias is not None:
            shift = shift + arrays[product.bias.name] * scale
        kernel: Tensor = getattr(product, of)
        shape = [1] * len(kernel.shape)
        shape[column] = -1
        made = (
            replace(kernel, name=f"{kernel.name}.folded"),
            Tensor(f"{norm.running_mean.name}.folded", shift.shape, "float32", "parameter"),
        )
        arrays[made[0].name] = (arrays[kernel.name] * scale.reshape(shape)).astype(np.float32)
        arrays[made[1].name] = shift.astype(np.float32)
        origin = (*op.origin, *norm.origin)
        changed = {of: made[0], "bias": made[1], op.outputs[0]: norm.y, "origin": origin}
        united: Op = replace(product, **changed)
        return united

    def parts(self, outer: bool) -> Iterator[tuple[str, Plain]]:
        """Each layer in order, with the network up to it, which answers what that layer gives.

        outer: those within others are no layers of their own.
        """
        owner = {each.name: layer.name for layer in self.layers for each in walk([layer])}
        last: dict[str, int] = {}
        for at, op in enumerate(self.ops):
            name = op.origin[0].layer
            last[owner.get(name, name) if outer else name] = at
        order = [layer.name for layer in self.layers]
        for name, at in sorted(last.items(), key=itemgetter(1)):
            layers = self.layers[: order.index(owner[name]) + 1] if name in owner else self.layers
            graph, y = self.graph.with_ops(self.ops[: at + 1]), self.ops[at].writes()[0]
            yield name, replace(self, graph=graph, layers=layers, y=y)

    def raw(self, stored: NDArray[Any]) -> NDArray[Any]:
        """What a user would give: of samples as a data set holds them, (N, C, H, W)."""
        if self.pixels:
            return stored
        size, zero = (v[:, None, None] for v in _units(self.trained))
        return np.asarray(stored.astype(np.float64) * size + zero, np.float32)


def _direct(layer: Layer) -> Layer:
    """The layer; a convolution that unrolls pictures as one that does not."""
    if getattr(layer, "algorithm", "auto") == "auto":
        return layer
    direct = copy.copy(layer)
    vars(direct)["algorithm"] = "auto"
    return direct


def _as_written(trained: Trained, graph: Graph, arrays: dict[str, NDArray[np.float32]]) -> Graph:
    """The section as formats read it: biases inside products, integers where the checkpoint says
    so, and what follows from weights alone among the arrays."""
    layers = {op.origin[0].layer for op in graph.ops}
    own = {name: q for name, q in trained.checkpoint.quantization.items() if name in layers}
    graph = bias(quantized(graph, own) if own else graph)
    known: dict[Tensor, Tensor] = {}
    for op in graph.ops:
        if all(tensor.role == "parameter" for tensor in op.reads()):
            (made,) = op.writes()
            known[made] = replace(made, role="parameter", section="")
            arrays[made.name] = KERNELS[type(op)].compute(op, *(arrays[t.name] for t in op.reads()))
    return graph.with_ops(op.on(known) for op in graph.ops if op.writes()[0] not in known)


def _units(trained: Trained) -> tuple[Floats, Floats]:
    """(scale, shift) per channel: raw = stored * scale + shift."""
    columns = trained.checkpoint.provenance.columns
    if columns is not None:
        return np.ones(len(columns.offsets)), np.array(columns.offsets, np.float64)
    info = trained.data
    if not (trained.takes_pictures or trained.network.floats):
        info = describe_data(trained.config)
    scale, shift = info.scale or (1.0,), info.shift or (0.0,)
    return np.array(scale, np.float64), np.array(shift, np.float64)


# Of those that ship, where their authors state one.
_DATA_LICENCES = {"mnist": "CC BY-SA 3.0", "fashion_mnist": "MIT"}


def _about(trained: Trained) -> dict[str, str]:
    origin = trained.checkpoint.provenance
    channels, height, width = trained.input_shape
    preprocessing = {
        "scale": list(origin.preprocessing.scale),
        "shift": list(origin.preprocessing.shift),
    }
    return {
        "producer": "dnnstack",
        "name": trained.config.name,
        "task": {"class": "classify", "numbers": "regress"}.get(origin.kind, origin.kind),
        "classes": json.dumps(list(trained.classes)),
        "input": json.dumps([channels, height, width]),
        "preprocessing": json.dumps(preprocessing),
        "data": origin.dataset,
        "data_licence": _DATA_LICENCES.get(origin.dataset, "not stated"),
        "checkpoint_sha256": trained.checkpoint.sha256,
        "step": str(trained.checkpoint.state.step),
        "versions": json.dumps(dict(origin.versions)),
    }
