"""Rewrites to Fused operations: on a GPU, one kernel each for the two ends of a small net.

A part that the kernel computes again, or whose result an earlier kernel keeps for it, is ``given``:
it belongs to the meaning, not to the count of operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .graph import Graph, Op, Origin, Tensor
from .ops import (
    Activation,
    ActivationBackward,
    BiasAdd,
    BiasGrad,
    Conv2d,
    Conv2dBackwardFilter,
    Fused,
    MatMul,
    Metrics,
    Pool2d,
    Pool2dBackward,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)

OpT = TypeVar("OpT", bound=Op)
FIRST_CONV, FIRST_CONV_BACKWARD = "first_conv_pool", "first_conv_pool_backward"
TAIL, TAIL_GRADIENTS = "dense_tail", "dense_tail_gradients"
# What the kernels keep in registers and shared memory bounds their geometry.
MOST_TAPS, MOST_FILTERS, MOST_PIXELS, MOST_SHARED = 31, 64, 64 * 64, 48 << 10
MOST_CLASSES, MOST_HIDDEN = 32, 2048
TAIL_ACTIVATIONS = ("relu", "sigmoid", "tanh")


def first_conv_pool(graph: Graph) -> Graph:
    """Convolution of one-channel pictures, bias, ReLU, max-pool of 2 by 2; and its gradient.

    Only if nothing needs the convolution's own output or the gradient of the pictures.
    """
    ops = list(graph.ops)
    for conv in [op for op in ops if isinstance(op, Conv2d) and _small(op)]:
        readers = graph.consumers(conv.y)
        pool = next((op for op in readers if isinstance(op, Pool2d)), None)
        if pool is None or not _halves(pool) or conv.y in graph.results.values():
            continue
        backward = [op for op in readers if op is not pool]
        forward = _fused(FIRST_CONV, (conv, pool), narrow=(conv.x, pool.y))
        if not backward:
            replace_ops(ops, [conv, pool], forward)
            continue
        chain = _gradient_chain(graph, conv, pool, backward)
        if chain is None:
            continue
        dp, taken = chain
        filters = taken[-1]
        narrow = (conv.x, pool.y, dp)
        back = _fused(FIRST_CONV_BACKWARD, taken, given=(conv, pool), narrow=narrow)
        replace_ops(ops, [conv, pool], forward)
        replace_ops(ops, list(taken), back, at=filters)
    return graph.with_ops(ops)


def _small(conv: Conv2d) -> bool:
    window, (_, channels, height, width) = conv.window, conv.x.shape
    return (
        channels == 1
        and conv.groups == 1
        and conv.activation in (None, "relu")
        and window.stride == window.dilation == (1, 1)
        and len(set(window.padding)) == 1
        and window.area <= MOST_TAPS
        and conv.w.shape[0] <= MOST_FILTERS
        and height * width <= MOST_PIXELS
        and _shared_bytes(conv) <= MOST_SHARED
    )


def _shared_bytes(conv: Conv2d) -> int:
    """What forward's kernel keeps: two pictures with their padding, filters in fours, biases."""
    _, _, height, width = conv.x.shape
    edge, groups = 2 * conv.window.padding[0], -(-conv.w.shape[0] // 4)
    picture = (height + edge) * ((width + edge + 1) // 2 * 2 + 2)
    return 4 * (2 * picture + groups * (16 * -(-conv.window.area // 4) + 4 + 4))


def _halves(pool: Pool2d) -> bool:
    height, width = pool.x.shape[2:]
    return (
        pool.kind == "max"
        and pool.window.kernel == pool.window.stride == (2, 2)
        and not any(pool.window.padding)
        and pool.y.shape[2:] == (height // 2, width // 2)
    )


def _gradient_chain(
    graph: Graph, conv: Conv2d, pool: Pool2d, backward: list[Op]
) -> tuple[Tensor, tuple[Op, ...]] | None:
    """The pooled gradient and the operations from it to the filters', or None if others join."""
    back = _single(backward, Pool2dBackward)
    filters = _single(graph.consumers(back.dx), Conv2dBackwardFilter) if back else None
    if not back or not filters or (filters.bias_grad is None) != (conv.bias is None):
        return None
    if conv.activation is None:
        return back.dy, (back, filters)
    match graph.producer(back.dy):
        case ActivationBackward(kind="relu", value=pool.y) as mask:
            if graph.consumers(back.dy) == [back]:
                return mask.dy, (mask, back, filters)
    return None


def dense_tail(graph: Graph) -> Graph:
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
        return replace(
            _fused(TAIL, (*self._head(), *chain), narrow=(dx,)),
            results=(entropy.x, self.back.dx, dx),
            origin=origins((self.hidden, self.out, entropy, self.back, self.data, self.slope)),
        )

    def _gradients(self) -> Fused:
        """Those of the output layer and of both biases, the loss and the metrics."""
        parts: list[Op] = [self.entropy, *self.metrics, self.weight]
        if self.first.bias_grad is not None:
            parts.append(BiasGrad(dy=self.slope.dx, db=self.first.bias_grad))
        return replace(
            _fused(TAIL_GRADIENTS, tuple(parts), given=self._head(), narrow=(self.slope.dx,)),
            origin=origins((*parts, self.first)),
        )


def _found(graph: Graph, entropy: SoftmaxCrossEntropy) -> _Tail | None:
    """The tail that ends in this loss, if nothing else reads its inner tensors."""
    out = _dense(graph.producer(entropy.x))
    hidden = _dense(graph.producer(out.a)) if out else None
    back = _single(graph.consumers(entropy.log_p), SoftmaxCrossEntropyBackward)
    if not out or not hidden or not back or out.activation or not _tail_fits(out):
        return None
    if hidden.activation not in TAIL_ACTIVATIONS:
        return None
    products = graph.consumers(back.dx)
    weight = next((op for op in products if isinstance(op, MatMul) and op.transpose_a), None)
    data = next((op for op in products if isinstance(op, MatMul) and op is not weight), None)
    if weight is None or data is None or len(products) != 2 or data.b != out.b:
        return None
    slope = _single(graph.consumers(data.c), ActivationBackward)
    metrics = tuple(op for op in graph.consumers(entropy.x) if isinstance(op, Metrics))
    if slope is None or slope.value != out.a or len(metrics) > 1:
        return None
    readers = {out.a: (out, weight, slope), entropy.x: (entropy, *metrics), entropy.loss: metrics}
    if not all(_same(graph.consumers(tensor), ops) for tensor, ops in readers.items()):
        return None
    first = _bias_gradient(graph, slope.dx, hidden)
    if first is None or (weight.bias_grad is None) != (out.bias is None):
        return None
    inner = (out.a, data.c, entropy.log_p)
    if any(tensor in graph.results.values() for tensor in inner):
        return None
    return _Tail(hidden, out, entropy, metrics, back, weight, data, slope, first)


def _dense(op: Op | None) -> MatMul | None:
    """The operation, if it is the product of a dense layer."""
    match op:
        case MatMul(transpose_a=False, transpose_b=True, b=Tensor(role="parameter")):
            return op
    return None


def _tail_fits(out: MatMul) -> bool:
    classes, hidden = out.b.shape
    return classes <= MOST_CLASSES and hidden <= MOST_HIDDEN and classes * hidden <= 12288


def _bias_gradient(graph: Graph, dpre: Tensor, hidden: MatMul) -> MatMul | None:
    """The hidden layer's weight gradient, which includes that of the bias, if it has one."""
    for op in graph.consumers(dpre):
        if isinstance(op, MatMul) and op.transpose_a and op.a == dpre:
            return op if (op.bias_grad is None) == (hidden.bias is None) else None
    return None


def _single(readers: Sequence[Op], kind: type[OpT]) -> OpT | None:
    """The single one of them, if it is of this kind."""
    return readers[0] if len(readers) == 1 and isinstance(readers[0], kind) else None


def _same(found: Iterable[Op], wanted: Iterable[Op]) -> bool:
    return {id(op) for op in found} == {id(op) for op in wanted}


def _fused(
    kind: str,
    parts: tuple[Op, ...],
    given: tuple[Op, ...] = (),
    narrow: tuple[Tensor, ...] = (),
) -> Fused:
    """The operation of these parts: what it reads and leaves follows from them."""
    every = (*given, *parts)
    written = {t for op in every for t in op.tensors(op.outputs)}
    if kind == FIRST_CONV_BACKWARD:
        # Backward reads the pooled pictures of forward, rather than computes them again.
        written -= {op.y for op in given if isinstance(op, Pool2d)}
    read = dict.fromkeys(t for op in every for t in op.tensors(op.inputs))
    left = dict.fromkeys(t for op in parts for t in op.tensors(op.outputs))
    return Fused(
        kind=kind,
        parts=parts,
        given=given,
        sources=tuple(t for t in read if t not in written),
        results=tuple(t for t in left if t not in read or t.role == "gradient"),
        states=tuple(dict.fromkeys(t for op in parts for t in op.tensors(op.updates))),
        narrow=narrow,
        origin=origins(parts),
    )


def origins(ops: Iterable[Op]) -> tuple[Origin, ...]:
    """Those of all the operations, each once."""
    return tuple(dict.fromkeys(origin for op in ops for origin in op.origin))


def replace_ops(ops: list[Op], old: list[Op], new: Op, at: Op | None = None) -> None:
    """Put ``new`` in the place of ``at``, by default the last of ``old``; remove all of these."""
    gone = {id(op) for op in old}
    place = max(i for i, op in enumerate(ops) if (op is at if at is not None else id(op) in gone))
    ops[place] = new
    ops[:] = [op for op in ops if op is new or id(op) not in gone]
