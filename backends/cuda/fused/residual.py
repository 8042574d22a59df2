"""The ends of a residual block that a batch norm takes along: the sum behind it, its gradient.

The block's output is f(norm + shortcut). Forward, the pass that normalises adds the shortcut and
applies f; backward, the pass that sums up the norm's gradients adds the two gradients of the
block's output and takes f's slope, and leaves the result for the shortcut. Every number is rounded
where it would be stored, so that the bits are those of the operations one by one.
"""

from __future__ import annotations

from ....graph import ops
from ....graph.graph import Graph, Op, Tensor
from ....graph.rewrites import replace_ops
from .pattern import united

NORM_ADD, GRADIENT = "norm_add", "residual_gradient"


def rewrite(graph: Graph) -> Graph:
    """Batch norm, then a sum of two; and sum of two gradients, slope of an activation, gradient of
    batch norm, where at least one comes before the last."""
    listed = list(graph.ops)
    for added in [op for op in listed if isinstance(op, ops.Add) and len(op.terms) == 2]:
        found = (_norm(graph, added, term) for term in added.terms)
        norm = next((op for op in found if op is not None), None)
        if norm is not None:
            other = next(term for term in added.terms if term != norm.y)
            seen = (norm.x, other, added.y)
            replace_ops(listed, [norm, added], united(NORM_ADD, (norm, added), bf16=seen), at=added)
    for back in [op for op in listed if isinstance(op, ops.BatchNormBackward)]:
        fused = _gradient(graph, listed, back)
        if fused is not None:
            replace_ops(listed, list(fused.parts), fused, at=back)
    return graph.with_ops(listed)


def _norm(
    graph: Graph, added: ops.Add, term: Tensor
) -> ops.BatchNorm | ops.BatchNormInference | None:
    """The one that a term comes from, where nothing but the sum reads it, and that once."""
    norm = None if added.terms.count(term) > 1 else graph.producer(term)
    if not isinstance(norm, ops.BatchNorm | ops.BatchNormInference) or norm.activation is not None:
        return None
    alone = len(graph.consumers(term)) == 1 and term not in graph.results.values()
    return norm if alone else None


def _gradient(graph: Graph, listed: list[Op], back: ops.BatchNormBackward) -> ops.Fused | None:
    """What takes the place of a norm's gradient; None if nothing can be taken along."""
    before = graph.producer(back.dy)
    mask = before if isinstance(before, ops.ActivationBackward) else None
    if mask is not None:
        if back.activation is not None or mask.kind not in ops.FROM_OUTPUT:
            return None
        if not _read_later(graph, listed, mask.dx, back):
            return None
        before = graph.producer(mask.dy)
    total = back.dy if mask is None else mask.dy
    added, reader = before if isinstance(before, ops.Add) else None, mask or back
    if added is not None and (len(added.terms) > 2 or added.activation is not None):
        added = None
    # What another activation of the norm's own lets through is stored nowhere, so not rounded.
    if mask is None and back.activation not in (None, "relu"):
        added = None
    alone = graph.consumers(total) == [reader] and total not in graph.results.values()
    # Others may read what the kernel leaves, if that is the sum itself.
    plain = mask is None and back.activation is None and _read_later(graph, listed, total, back)
    if not alone and not plain:
        added = None
    if added is None and mask is None:
        return None
    parts = tuple(op for op in (added, mask, back) if op is not None)
    terms = (total,) if added is None else added.terms
    value = back.y if mask is None else mask.value
    left = total if mask is None else mask.dx
    seen = tuple(t for t in (back.x, *terms, value, left, back.dx) if t is not None)
    fused = united(GRADIENT, parts, bf16=seen)
    if mask is None and alone:
        return fused
    return united(GRADIENT, parts, bf16=seen, results=(left, *fused.results))


def _read_later(graph: Graph, listed: list[Op], tensor: Tensor, op: Op) -> bool:
    """Whether all others that read a tensor come behind an operation."""
    place = next(i for i, each in enumerate(listed) if each is op)
    behind = {id(each) for each in listed[place:]}
    return all(id(reader) in behind for reader in graph.consumers(tensor))
