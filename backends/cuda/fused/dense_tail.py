"""From the last hidden product to its gradient: bias, activation, output layer, loss and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....common.records import dataclass
from ....graph import ops
from ....graph.graph import Graph, Op, Tensor
from ....graph.rewrites import origins, replace_ops
from ..binding.bind import Binder
from ..binding.ending import TAIL as UNITED
from ..binding.ending import TailGradients, follows, wanted
from ..binding.launch_list import Varying
from ..binding.wide import kind_of
from ..libraries.kernels import Defines, f32
from ..libraries.layout import Layout, ceil_div
from .pattern import LAUNCHES, defines, part, single, united
from .tensor_dense import NAME as PRODUCT

TAIL, GRADIENTS = "dense_tail", "dense_tail_gradients"
FILE = "dense_tail.cu"
# What the kernels keep in registers and shared memory bounds their geometry.
MOST_CLASSES, MOST_HIDDEN, MOST_WEIGHTS = 32, 2048, 12288
KINDS = ("relu", "sigmoid", "tanh")
# Columns of a block of the gradients, a power of two, and rows that it takes at once.
SPAN, LINES = 8, 64
# Rows of a block of the other kernel, and numbers of them that a thread has at most.
ROWS, MOST_NUMBERS = (1, 2, 4), 96
THREADS = 128


def rewrite(graph: Graph) -> Graph:
    """From the last hidden product to its gradient: bias, activation, output layer, loss and back.

    The gradients of the output layer and of both biases, the loss and the metrics become a second
    operation, that may run beside the others.
    """
    for entropy in [op for op in graph.ops if isinstance(op, ops.SoftmaxCrossEntropy)]:
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

    hidden: ops.MatMul
    out: ops.MatMul
    entropy: ops.SoftmaxCrossEntropy
    metrics: tuple[ops.Metrics, ...]
    back: ops.SoftmaxCrossEntropyBackward
    weight: ops.MatMul
    data: ops.MatMul
    slope: ops.ActivationBackward
    first: ops.MatMul

    def fused_in(self, graph: Graph) -> list[Op]:
        """The graph's operations with the product, the tail and its gradients in their places."""
        tail, gradients = self._forth_and_back(), self._gradients()
        found = list(graph.ops)
        replace_ops(found, [self.hidden], self._product())
        gone = [self.entropy, self.out, self.back, self.data, self.slope, *self.metrics]
        replace_ops(found, gone, tail, at=self.slope)
        replace_ops(found, [self.weight], gradients)
        if self.first.bias_grad is not None:
            replace_ops(found, [self.first], replace(self.first, bias_grad=None))
        # The second half reads what the first leaves, so it moves behind it.
        found.remove(gradients)
        found.insert(found.index(tail) + 1, gradients)
        return found

    @property
    def _pre(self) -> Tensor:
        """What the hidden layer's product alone gives."""
        return replace(self.hidden.c, name=f"{self.hidden.c.name}.product")

    def _product(self) -> ops.MatMul:
        return replace(self.hidden, bias=None, activation=None, activation_alpha=0.0, c=self._pre)

    def _head(self) -> tuple[Op, ...]:
        """The rest of the hidden layer."""
        hidden, source = self.hidden, self._pre
        assert hidden.activation is not None
        if hidden.bias is None:
            return (ops.Activation(x=source, y=hidden.c, kind=hidden.activation),)
        biased = replace(hidden.c, name=f"{hidden.c.name}.biased")
        return (
            ops.BiasAdd(x=source, b=hidden.bias, y=biased),
            ops.Activation(x=biased, y=hidden.c, kind=hidden.activation),
        )

    def _forth_and_back(self) -> ops.Fused:
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

    def _gradients(self) -> ops.Fused:
        """Those of the output layer and of both biases, the loss and the metrics."""
        parts: list[Op] = [self.entropy, *self.metrics, self.weight]
        if self.first.bias_grad is not None:
            parts.append(ops.BiasGrad(dy=self.slope.dx, db=self.first.bias_grad))
        return united(
            GRADIENTS,
            tuple(parts),
            self._head(),
            bf16=(self.slope.dx,),
            origin=origins((*parts, self.first)),
            beside=True,
        )


def _found(graph: Graph, entropy: ops.SoftmaxCrossEntropy) -> _Tail | None:
    """The tail that ends in this loss, if nothing else reads its inner tensors."""
    out = _dense(graph.producer(entropy.x))
    hidden = _dense(graph.producer(out.a)) if out else None
    back = single(graph.consumers(entropy.log_p), ops.SoftmaxCrossEntropyBackward)
    if not out or not hidden or not back or out.activation or not _tail_fits(out):
        return None
    if hidden.activation not in KINDS:
        return None
    products = graph.consumers(back.dx)
    weight = next((op for op in products if isinstance(op, ops.MatMul) and op.transpose_a), None)
    data = next((op for op in products if isinstance(op, ops.MatMul) and op is not weight), None)
    if weight is None or data is None or len(products) != 2 or data.b != out.b:
        return None
    slope = single(graph.consumers(data.c), ops.ActivationBackward)
    metrics = tuple(op for op in graph.consumers(entropy.x) if isinstance(op, ops.Metrics))
    classes = all(op.target == entropy.target for op in metrics)
    if slope is None or slope.value != out.a or len(metrics) > 1 or not classes:
        return None
    readers = {out.a: (out, weight, slope), entropy.x: (entropy, *metrics), entropy.loss: metrics}
    if not all(_same(graph.consumers(tensor), known) for tensor, known in readers.items()):
        return None
    first = _bias_gradient(graph, slope.dx, hidden)
    if first is None or (weight.bias_grad is None) != (out.bias is None):
        return None
    inner = (out.a, data.c, entropy.log_p)
    if any(tensor in graph.results.values() for tensor in inner):
        return None
    return _Tail(hidden, out, entropy, metrics, back, weight, data, slope, first)


def _dense(op: Op | None) -> ops.MatMul | None:
    """The operation, if it is the product of a dense layer."""
    match op:
        case ops.MatMul(transpose_a=False, transpose_b=True, b=Tensor(role="parameter")):
            return op
    return None


def _tail_fits(out: ops.MatMul) -> bool:
    classes, hidden = out.b.shape
    return classes <= MOST_CLASSES and hidden <= MOST_HIDDEN and classes * hidden <= MOST_WEIGHTS


def _bias_gradient(graph: Graph, dpre: Tensor, hidden: ops.MatMul) -> ops.MatMul | None:
    """The hidden layer's weight gradient, which includes that of the bias, if it has one."""
    for op in graph.consumers(dpre):
        if isinstance(op, ops.MatMul) and op.transpose_a and op.a == dpre:
            return op if (op.bias_grad is None) == (hidden.bias is None) else None
    return None


def _same(found: Iterable[Op], wanted: Iterable[Op]) -> bool:
    return {id(op) for op in found} == {id(op) for op in wanted}


def _numbers(b: Binder, op: ops.Fused) -> tuple[Tensor, Any, Any, Defines]:
    """The hidden layer's product and bias, the loss, the geometry."""
    act, bias = part(op, ops.Activation), part(op, ops.BiasAdd)
    pre = bias.x if bias is not None else act.x
    layout = b.home(pre).layout
    entropy = part(op, ops.SoftmaxCrossEntropy)
    (n, classes), stride = entropy.x.shape, layout.columns
    names = ("HIDDEN", "STRIDE", "CLASSES", "KIND", "ROWS", "SPAN", "LINES")
    rows = _rows(n, stride, classes, b.stream.processors.count)
    sizes = (layout.shape[1], stride, classes, kind_of(act.kind), rows, SPAN, LINES)
    return pre, bias, entropy, defines(dict(zip(names, sizes, strict=True)))


def _rows(n: int, stride: int, classes: int, processors: int) -> int:
    """Of a block: the fewest that leave no more blocks than there are processors, or the most that
    its registers hold. Rows of a block share the weights that it loads."""
    wide = 1 if stride % 4 else 4
    own = ceil_div(stride, THREADS * wide) * wide
    held = [rows for rows in ROWS if own * (classes + rows + 1) <= MOST_NUMBERS] or [1]
    return next((rows for rows in held if ceil_div(n, rows) <= processors), held[-1])


def _tail(b: Binder, op: ops.Fused) -> None:
    pre, bias, entropy, fixed = _numbers(b, op)
    out = next(p for p in op.parts if isinstance(p, ops.MatMul) and p.transpose_b)
    back, slope = part(op, ops.SoftmaxCrossEntropyBackward), part(op, ops.ActivationBackward)
    n, stored = entropy.x.shape[0], b.home(pre).layout.stored
    dpre = b.output(slope.dx, Layout(slope.dx.shape, stored, dtype=b.number(slope.dx)))
    rows = b.zeros(2 * n)
    b.decisions.row_sums[entropy.x] = rows
    # The kernel takes that of the loss for the gradient too.
    b.live.add(back, ("label_smoothing",))
    live = b.live.add(entropy, ("label_smoothing",))
    smoothing = Varying(live, lambda op: f32(op.label_smoothing))
    arguments = (
        *(pre, bias and bias.b, out.b, out.bias, entropy.target),
        *(b.output(entropy.x), b.output(back.dx), dpre, rows, n, smoothing),
        entropy.reduction == "mean",
    )
    kernel, grid = (FILE, TAIL, dpre.dtype), (ceil_div(n, dict(fixed)["ROWS"]),)
    # A kernel that tells at once would let this one read before the update in front of it is done.
    fixed = (*fixed, ("EARLY", int(b.in_front() == PRODUCT)))
    b.kernel(op, kernel, grid, arguments, block=(THREADS,), defines=fixed)


def _gradients(b: Binder, op: ops.Fused) -> None:
    pre, bias, entropy, fixed = _numbers(b, op)
    weight = next(p for p in op.parts if isinstance(p, ops.MatMul) and p.transpose_a)
    metrics, first = part(op, ops.Metrics), part(op, ops.BiasGrad)
    n, stride = entropy.x.shape[0], b.home(pre).layout.columns
    dpre = b.home(op.bf16[0])
    # What is left of the loss is to add up the rows of the other kernel.
    b.live.add(entropy, ("label_smoothing",))
    targets = (weight.c, first and first.db, weight.bias_grad)
    given = (pre, bias and bias.b, weight.a, dpre, b.decisions.row_sums[entropy.x])
    rest = (n, b.output(entropy.loss), metrics and metrics.sums, entropy.reduction == "mean")
    gradients = tuple(target for target in targets if target)
    if wanted(b.choices, UNITED) and follows(b.graph, op, gradients) and b.arithmetic.fusion:
        # Whatever a kernel is compiled with but the rows of the first one.
        kept = tuple(each for each in fixed if each[0] != "ROWS")
        tail = TailGradients(op, targets, given, rest, kept, stride, dpre.dtype)
        b.decisions.tail = tail
        return
    outs = [target and b.output(target) for target in targets]
    kernel, grid = (FILE, GRADIENTS, dpre.dtype), (ceil_div(stride, SPAN) + 2,)
    b.kernel(op, kernel, grid, (*given, *outs, *rest), block=(SPAN * LINES,), defines=fixed)


LAUNCHES |= {TAIL: _tail, GRADIENTS: _gradients}
