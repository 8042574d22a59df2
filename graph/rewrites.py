"""Named rewrites of a graph: several operations become one for which a library has a single call.

Each takes a graph and returns one that computes the same results. A backend says which of them it
can run; ``fusion: false`` runs none. The new operation carries the origins of all it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import ops
from .graph import Graph, Op, Origin, Tensor

Rewrite = Callable[[Graph], Graph]


def bias(graph: Graph) -> Graph:
    """MatMul or Conv2d, then BiasAdd: one operation with a bias."""
    return _with_next(graph, ops.BiasAdd, lambda op: _is_product(op) and op.bias is None)


def activation(graph: Graph) -> Graph:
    """MatMul or Conv2d, then Activation: one operation, if nothing else reads its input."""
    return _with_next(graph, ops.Activation, _is_product)


def add_activation(graph: Graph) -> Graph:
    """Add of two terms, then Activation, as at the end of a residual block: one operation."""
    return _with_next(
        graph, ops.Activation, lambda op: isinstance(op, ops.Add) and len(op.terms) == 2
    )


def _is_product(op: Op | None) -> bool:
    return isinstance(op, ops.MatMul | ops.Conv2d)


def _with_next(
    graph: Graph, kind: type[ops.BiasAdd | ops.Activation], takes: Callable[[Any], bool]
) -> Graph:
    """Unite operations that have no activation yet with one of this kind that alone reads them."""
    listed = list(graph.ops)
    for after in [op for op in listed if isinstance(op, kind)]:
        before: Any = graph.producer(after.x)
        if not takes(before) or before.activation or not _read_once(graph, after.x, after):
            continue
        fields: dict[str, object] = {before.outputs[0]: after.y}
        if isinstance(after, ops.BiasAdd):
            fields |= {"bias": after.b}
        else:
            fields |= {"activation": after.kind, "activation_alpha": after.alpha}
        _merge(listed, before, after, replace(before, **fields))
    return graph.with_ops(listed)


def bias_grad(graph: Graph) -> Graph:
    """A layer's weight gradient and BiasGrad of the same dy: one operation with two outputs."""
    listed = list(graph.ops)
    for gradient in [op for op in listed if isinstance(op, ops.BiasGrad)]:
        for product in list(listed):
            match product:
                case (
                    ops.MatMul(transpose_a=True, a=dy, bias_grad=None)
                    | ops.Conv2dBackwardFilter(dy=dy, bias_grad=None)
                    # At the end of a residual block several layers have the same dy.
                ) if dy == gradient.dy and product.origin[:1] == gradient.origin[:1]:
                    _merge(listed, product, gradient, replace(product, bias_grad=gradient.db))
                    break
    return graph.with_ops(listed)


def batch_norm_relu(graph: Graph) -> Graph:
    """Batch norm, then ReLU: one operation, and the same for their backward."""
    return _activated_norms(graph, ("relu",))


def batch_norm_activation(graph: Graph) -> Graph:
    """Batch norm, then another activation: one operation, and the same for their backward."""
    return _activated_norms(graph, [kind for kind in ops.ACTIVATIONS if kind != "relu"])


def _activated_norms(graph: Graph, kinds: Sequence[str]) -> Graph:
    listed = list(graph.ops)
    for act in [op for op in listed if isinstance(op, ops.Activation) and op.kind in kinds]:
        norm = graph.producer(act.x)
        if (
            not isinstance(norm, ops.BatchNorm | ops.BatchNormInference)
            or norm.activation is not None
        ):
            continue
        pairs = _norm_backwards(graph, norm, act) if isinstance(norm, ops.BatchNorm) else []
        if pairs is None or act.x in graph.results.values():
            continue
        # Backward of some kinds reads the value between the two; the fused one recomputes it.
        readers = (act, *(mask for mask, _ in pairs))
        if not all(any(reader is op for op in readers) for reader in graph.consumers(act.x)):
            continue
        kind, alpha = act.kind, act.alpha
        _merge(listed, norm, act, replace(norm, y=act.y, activation=kind, activation_alpha=alpha))
        for mask, back in pairs:
            known = {"y": act.y} if kind in ops.FROM_OUTPUT else {"bias": norm.bias}
            fused = replace(back, dy=mask.dy, activation=kind, activation_alpha=alpha, **known)
            _merge(listed, back, mask, fused)
    return graph.with_ops(listed)


def _norm_backwards(
    graph: Graph, norm: ops.BatchNorm, act: ops.Activation
) -> list[tuple[ops.ActivationBackward, ops.BatchNormBackward]] | None:
    """For each backward of the norm, the activation's before it; None if one cannot be fused."""
    pairs = []
    value = act.y if act.kind in ops.FROM_OUTPUT else act.x
    for back in graph.consumers(norm.mean):
        if not isinstance(back, ops.BatchNormBackward):
            continue
        mask = graph.producer(back.dy)
        if not isinstance(mask, ops.ActivationBackward) or not _read_once(graph, back.dy, back):
            return None
        if (mask.kind, mask.value) != (act.kind, value):
            return None
        pairs.append((mask, back))
    return pairs


def relu_pool(graph: Graph) -> Graph:
    """Backward of ReLU after backward of max-pooling: the mask moves to the smaller, pooled tensor.

    dx of the pool goes to the first maximum of a window, where forward's value is the pooled
    value itself, so masking dy by the pooled value is the same, bit for bit.
    """
    listed = list(graph.ops)
    for back in [op for op in graph.ops if isinstance(op, ops.Pool2dBackward) and op.kind == "max"]:
        readers = graph.consumers(back.dx)
        mask = readers[0] if len(readers) == 1 else None
        if not isinstance(mask, ops.ActivationBackward) or mask.kind != "relu":
            continue
        if mask.value != back.x or back.y is None or back.dx in graph.results.values():
            continue
        masked = replace(back.dy, name=f"{back.dy.name}.masked", role="activation")
        first = replace(mask, value=back.y, dy=back.dy, dx=masked)
        second = replace(back, dy=masked, dx=mask.dx)
        at = listed.index(back)
        listed[at : at + 1] = [first, second]
        listed.remove(mask)
    return graph.with_ops(listed)


def softmax_cross_entropy(graph: Graph) -> Graph:
    """Softmax and CrossEntropy in one stable operation, and the same for their backward."""
    listed = list(graph.ops)
    for entropy in [op for op in listed if isinstance(op, ops.RowLoss)]:
        log_p, formula = entropy.x, entropy.formula
        softmax = graph.producer(log_p)
        if not (
            isinstance(formula, ops.CrossEntropy)
            and isinstance(softmax, ops.Softmax)
            and softmax.log
        ):
            continue
        if entropy.target.dtype != "int32":
            continue
        jacobian = [op for op in graph.consumers(log_p) if isinstance(op, ops.SoftmaxBackward)]
        slopes = [(graph.producer(jump.dy), jump) for jump in jacobian]
        pairs = [(op, jump) for op, jump in slopes if isinstance(op, ops.RowLossBackward)]
        if not all(_read_once(graph, first.dx, then) for first, then in pairs):
            continue
        fused = ops.SoftmaxCrossEntropy(
            x=softmax.x,
            target=entropy.target,
            log_p=log_p,
            loss=entropy.loss,
            label_smoothing=formula.label_smoothing,
            reduction=entropy.reduction,
        )
        _merge(listed, entropy, softmax, fused)
        for gradient, jump in pairs:
            united = ops.SoftmaxCrossEntropyBackward(
                log_p=log_p,
                target=gradient.target,
                dx=jump.dx,
                label_smoothing=formula.label_smoothing,
                reduction=gradient.reduction,
            )
            _merge(listed, jump, gradient, united)
    return graph.with_ops(listed)


REWRITES: dict[str, Rewrite] = {
    rewrite.__name__: rewrite
    for rewrite in (
        softmax_cross_entropy,
        bias,
        bias_grad,
        batch_norm_relu,
        batch_norm_activation,
        relu_pool,
        activation,
        add_activation,
    )
}

# Those whose results a library has a call for.
LIBRARY_REWRITES = {
    name: rewrite for name, rewrite in REWRITES.items() if rewrite is not batch_norm_activation
}


def rewritten(graph: Graph, rewrites: Mapping[str, Rewrite]) -> Graph:
    """The graph after the rewrites, in their order."""
    for rewrite in rewrites.values():
        graph = rewrite(graph)
    return graph


def _read_once(graph: Graph, tensor: Tensor, reader: Op) -> bool:
    """Whether this operation alone reads the tensor."""
    return tensor not in graph.results.values() and graph.consumers(tensor) == [reader]


def origins(listed: Iterable[Op]) -> tuple[Origin, ...]:
    """Those of all the operations, each once."""
    return tuple(dict.fromkeys(origin for op in listed for origin in op.origin))


def replace_ops(listed: list[Op], old: list[Op], new: Op, at: Op | None = None) -> None:
    """Put ``new`` in the place of ``at``, by default the last of ``old``; remove all of these."""
    gone = {id(op) for op in old}
    place = max(
        i for i, op in enumerate(listed) if (op is at if at is not None else id(op) in gone)
    )
    listed[place] = new
    listed[:] = [op for op in listed if op is new or id(op) not in gone]


def _merge(listed: list[Op], keep: Op, drop: Op, fused: Op) -> None:
    """Put ``fused`` in the place of ``keep``, remove ``drop``, unite their origins."""
    replace_ops(listed, [keep, drop], replace(fused, origin=origins((keep, drop))), at=keep)
