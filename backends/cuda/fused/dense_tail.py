"""From the last hidden product to its gradient: bias, activation, output layer, loss and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ....graph.graph import Graph, Op, Tensor
from ....graph.ops import (
    ACTIVATIONS,
    Activation,
    ActivationBackward,
    BiasAdd,
    BiasGrad,
    Fused,
    MatMul,
    Metrics,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from ..binding.bind import Binder
from ..libraries.kernels import Defines, f32, i32
from ..libraries.layout import Layout
from .pattern import defines, launches, origins, part, replace_ops, united

TAIL, GRADIENTS = "dense_tail", "dense_tail_gradients"
FILE = "dense_tail.cu"
# What the kernels keep in registers and shared memory bounds their geometry.
MOST_CLASSES, MOST_HIDDEN, MOST_WEIGHTS = 32, 2048, 12288
KINDS = ("relu", "sigmoid", "tanh")
# Columns of a block of the gradients, a power of two, and rows that it takes at once.
SPAN, LINES = 8, 64

# ---------------------------------------------------------------- the pattern


def rewrite(graph: Graph) -> Graph:
    """From the last hidden product to its gradient: bias, activation, output layer, loss and back.

    The gradients of the output layer and of both biases, the loss and the metrics become a second
    operation, that may run beside the others.
    """
    for entropy in [op for op in graph.ops if isinstance(op, SoftmaxCrossEntropy)]:
        tail = _found(graph, entropy)
        if tail is not None:
            graph = graph.with_ops(tail.fused_in(graph))
    return graph


@dataclass(frozen=True)
class _Tail:
    """The operations of a dense tail: hidden layer, output layer, loss, and their gradients.

    ``weight`` and ``data`` are the output layer's gradients, ``slope`` is that of the activation
    between the layers, ``first`` the gradient of the hidden layer's weights.
    """

    hidden: MatMul
    out: MatMul
    entropy: SoftmaxCrossEntropy
    metrics: tuple[Metrics, ...]
    back: SoftmaxCrossEntropyBackward
    weight: MatMul
    data: MatMul
    slope: ActivationBackward
    first: MatMul

    def fused_in(self, graph: Graph) -> list[Op]:
        """The graph's operations with the product, the tail and its gradients in their places."""
        tail, gradients = self._forth_and_back(), self._gradients()
        ops = list(graph.ops)
        replace_ops(ops, [self.hidden], self._product())
        gone = [self.entropy, self.out, self.back, self.data, self.slope, *self.metrics]
        replace_ops(ops, gone, tail, at=self.slope)
        replace_ops(ops, [self.weight], gradients)
        if self.first.bias_grad is not None:
            replace_ops(ops, [self.first], replace(self.first, bias_grad=None))
        # The second half reads what the first leaves, so it moves behind it.
        ops.remove(gradients)
        ops.insert(ops.index(tail) + 1, gradients)
        return ops

    @property
    def _pre(self) -> Tensor:
        """What the hidden layer's product alone gives."""
        return replace(self.hidden.c, name=f"{self.hidden.c.name}.product")

    def _product(self) -> MatMul:
        return replace(self.hidden, bias=None, activation=None, activation_alpha=0.0, c=self._pre)

    def _head(self) -> tuple[Op, ...]:
        """The rest of the hidden layer."""
        hidden, source = self.hidden, self._pre
        assert hidden.activation is not None
        if hidden.bias is None:
            return (Activation(x=source, y=hidden.c, kind=hidden.activation),)
        biased = replace(hidden.c, name=f"{hidden.c.name}.biased")
        return (
            BiasAdd(x=source, b=hidden.bias, y=biased),
            Activation(x=biased, y=hidden.c, kind=hidden.activation),
        )

    def _forth_and_back(self) -> Fused:
        entropy, dx = self.entropy, self.slope.dx
        rows = replace(entropy.loss, name=f"{entropy.loss.name}.rows")
        chain = (self.out, replace(entropy, loss=rows), self.back, self.data, self.slope)
        return united(
            TAIL,
            (*self._head(), *chain),
            bf16=(dx,),
            results=(entropy.x, self.back.dx, dx),
            origin=origins((self.hidden, self.out, entropy, self.back, self.data, self.slope)),
        )

    def _gradients(self) -> Fused:
        """Those of the output layer and of both biases, the loss and the metrics."""
        parts: list[Op] = [self.entropy, *self.metrics, self.weight]
        if self.first.bias_grad is not None:
            parts.append(BiasGrad(dy=self.slope.dx, db=self.first.bias_grad))
        return united(
            GRADIENTS,
            tuple(parts),
            self._head(),
            bf16=(self.slope.dx,),
            origin=origins((*parts, self.first)),
            beside=True,
        )


def _found(graph: Graph, entropy: SoftmaxCrossEntropy) -> _Tail | None:
    """The tail that ends in this loss, if nothing else reads its inner tensors."""
    out = graph.producer(entropy.x)
    if not isinstance(out, MatMul) or not _is_dense(out) or out.activation is not None:
        return None
    hidden = graph.producer(out.a)
    if not isinstance(hidden, MatMul) or not _is_dense(hidden):
        return None
    if hidden.activation not in KINDS or not _tail_fits(out):
        return None
    back = _only(graph, entropy.log_p, SoftmaxCrossEntropyBackward)
    if not isinstance(back, SoftmaxCrossEntropyBackward):
        return None
    products = graph.consumers(back.dx)
    weight = next((op for op in products if isinstance(op, MatMul) and op.transpose_a), None)
    data = next((op for op in products if isinstance(op, MatMul) and op is not weight), None)
    if weight is None or data is None or len(products) != 2 or data.b != out.b:
        return None
    slope = _only(graph, data.c, ActivationBackward)
    metrics = tuple(op for op in graph.consumers(entropy.x) if isinstance(op, Metrics))
    if not isinstance(slope, ActivationBackward) or slope.value != out.a:
        return None
    seen = [out, weight, slope], [entropy, *metrics]
    if not _same(graph.consumers(out.a), seen[0]) or not _same(graph.consumers(entropy.x), seen[1]):
        return None
    if not _same(graph.consumers(entropy.loss), metrics) or len(metrics) > 1:
        return None
    first = _bias_gradient(graph, slope.dx, hidden)
    if first is None or (weight.bias_grad is None) != (out.bias is None):
        return None
    inner = (out.a, data.c, entropy.log_p)
    if any(tensor in graph.results.values() for tensor in inner):
        return None
    return _Tail(hidden, out, entropy, metrics, back, weight, data, slope, first)


def _is_dense(op: MatMul) -> bool:
    return op.transpose_b and not op.transpose_a and op.b.role == "parameter"


def _tail_fits(out: MatMul) -> bool:
    classes, hidden = out.b.shape
    return classes <= MOST_CLASSES and hidden <= MOST_HIDDEN and classes * hidden <= MOST_WEIGHTS


def _bias_gradient(graph: Graph, dpre: Tensor, hidden: MatMul) -> MatMul | None:
    """The hidden layer's weight gradient, which includes that of the bias, if it has one."""
    for op in graph.consumers(dpre):
        if isinstance(op, MatMul) and op.transpose_a and op.a == dpre:
            return op if (op.bias_grad is None) == (hidden.bias is None) else None
    return None


def _only(graph: Graph, tensor: Tensor, kind: type[Op]) -> Op | None:
    """The tensor's single reader, if it is of this kind."""
    readers = graph.consumers(tensor)
    return readers[0] if len(readers) == 1 and isinstance(readers[0], kind) else None


def _same(found: Iterable[Op], wanted: Iterable[Op]) -> bool:
    return {id(op) for op in found} == {id(op) for op in wanted}


# ---------------------------------------------------------------- the launches


def _numbers(b: Binder, op: Fused) -> tuple[Tensor, Any, Any, Defines]:
    """The hidden layer's product and bias, the loss, the geometry."""
    act, bias = part(op, Activation), part(op, BiasAdd)
    pre = bias.x if bias is not None else act.x
    layout = b.home(pre).layout
    entropy = part(op, SoftmaxCrossEntropy)
    values = {
        "HIDDEN": layout.shape[1],
        "STRIDE": layout.stored[1],
        "CLASSES": entropy.x.shape[1],
        "KIND": ACTIVATIONS.index(act.kind),
        "SPAN": SPAN,
        "LINES": LINES,
    }
    return pre, bias, entropy, defines(values)


@launches(TAIL)
def _tail(b: Binder, op: Fused) -> None:
    pre, bias, entropy, fixed = _numbers(b, op)
    out = next(p for p in op.parts if isinstance(p, MatMul) and p.transpose_b)
    back, slope = part(op, SoftmaxCrossEntropyBackward), part(op, ActivationBackward)
    n = entropy.x.shape[0]
    held = b.home(pre)
    dpre_layout = Layout(slope.dx.shape, held.layout.stored, dtype=b.number(slope.dx))
    dpre = b.output(slope.dx, dpre_layout)
    rows = b.keep(b.cupy.zeros(2 * n, "float32"))
    b.decisions.row_sums[entropy.x] = rows
    arguments = (
        *(held.array, _bias(b, bias), b.home(out.b).array),
        0 if out.bias is None else b.home(out.bias).array,
        *(b.home(entropy.target).array, b.output(entropy.x).array, b.output(back.dx).array),
        *(dpre.array, rows, i32(n), f32(entropy.label_smoothing)),
        i32(entropy.reduction == "mean"),
    )
    kernel = (FILE, TAIL, dpre.dtype)
    b.kernel(op, kernel, (n,), arguments, block=(128,), defines=fixed)


def _bias(b: Binder, bias: BiasAdd | None) -> Any:
    return 0 if bias is None else b.home(bias.b).array


@launches(GRADIENTS)
def _gradients(b: Binder, op: Fused) -> None:
    pre, bias, entropy, fixed = _numbers(b, op)
    weight = next(p for p in op.parts if isinstance(p, MatMul) and p.transpose_a)
    metrics, first = part(op, Metrics), part(op, BiasGrad)
    n = entropy.x.shape[0]
    stride = b.home(pre).layout.stored[1]
    dpre = b.home(op.bf16[0])
    targets = (weight.c, None if first is None else first.db, weight.bias_grad)
    outs = [0 if t is None else b.output(t, b.planned(t)).array for t in targets]
    arguments = (
        *(b.home(pre).array, _bias(b, bias), b.home(weight.a).array, dpre.array),
        *(b.decisions.row_sums[entropy.x], b.home(entropy.target).array, *outs),
        *(i32(n), b.output(entropy.loss).array),
        0 if metrics is None else b.home(metrics.sums).array,
        i32(entropy.reduction == "mean"),
    )
    b.kernel(
        op,
        (FILE, GRADIENTS, dpre.dtype),
        (-(-stride // SPAN) + 2,),
        arguments,
        block=(SPAN * LINES,),
        defines=fixed,
    )
