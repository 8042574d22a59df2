"""A batch norm's last pass as part of the residual sum behind it, so that y is never written."""

from __future__ import annotations

from ...graph.ops import Add, BatchNorm
from .activations import activate_behind, links
from .bind import Binder
from .constants import BINARY, FORWARD_INFERENCE
from .memory import Descriptor, Memory
from .norm_kept import Unscaled
from .norm_runs import Runs, norm_flags, normalization
from .primitive import Attributes, NoFastKernel, PrimitiveDesc, first_fast


def leave(b: Binder, op: BatchNorm, runs: Runs, x: Memory, mean: Memory, variance: Memory) -> bool:
    """Leave normalising x to a sum of two terms that alone reads y, and append what that needs.

    False, with nothing appended, where it cannot. mean and variance must be kept until then.
    """
    readers = b.graph.consumers(op.y)
    add = readers[0] if len(readers) == 1 else None
    if not isinstance(add, Add) or len(set(add.terms)) != 2 or b.activations != "float32":
        return False
    known = op.activation or op.y in b.graph.results.values() or not runs.by_channel
    if known or not b.unscaled.keys().isdisjoint(add.terms):
        return False
    n, *rest = x.descriptor.shape
    piece = Descriptor.of((n // runs.count, *rest), runs.layout)
    thin = Descriptor.of((1, rest[0], 1, 1), runs.layout)
    try:
        both = _sum(add, piece, thin, op.bias is not None)
    except NoFastKernel:
        return False
    b.hold(op.x, add)
    # What batch norm makes of a single pixel of 1 with a mean of 0 is its scale.
    flags = norm_flags(given=True, scale=op.weight is not None)
    desc, scale = normalization(thin, FORWARD_INFERENCE, op.eps, flags), b.scratch(thin)
    zero = b.constant(mean.descriptor, 0.0)
    given = {"src": b.constant(thin, 1.0), "dst": scale, "mean": zero, "variance": variance}
    weight = {} if op.weight is None else {"scale": b.home(op.weight)}
    b.primitive(op, desc, {**given, **weight})
    shift = None if op.bias is None else b.home(op.bias).view(thin)
    b.unscaled[op.y] = Unscaled(x, mean.view(thin), scale, shift, runs.count, both)
    return True


def _sum(op: Add, piece: Descriptor, thin: Descriptor, shifted: bool) -> PrimitiveDesc:
    """The activation of (x - mean) scale + shift + other."""
    plus = BINARY["add"]
    chain = [(BINARY["mul"], thin), *([(plus, thin)] if shifted else []), (plus, piece)]
    behind = Attributes(chain=[*chain, *links(op, "float32")])
    return first_fast("binary", [(BINARY["sub"], piece, thin, piece, behind)], {})


def add_unscaled(b: Binder, op: Add) -> bool:
    """Append a sum that normalises one of its terms; False if none was left to it."""
    term = next((term for term in op.terms if term in b.unscaled), None)
    if term is None:
        return False
    norm = b.unscaled[term]
    (other,) = (each for each in op.terms if each is not term)
    layout, piece = norm.x.descriptor, norm.sum.descriptor("dst")
    second, y = b.want(other, layout), b.output(op.y, layout)
    thin = [norm.scale, *([] if norm.shift is None else [norm.shift])]
    given = {f"post_op_{at}_src_1": memory for at, memory in enumerate(thin)}
    details = {"normalizes": term.name} | ({"post_op": op.activation} if op.activation else {})

    def part(memory: Memory, at: int) -> Memory:
        return Memory(piece, memory.buffer[at * piece.nbytes :])

    for at in range(norm.pieces):
        ends = {"src": part(norm.x, at), "src_1": norm.mean, "dst": part(y, at)}
        added = {f"post_op_{len(thin)}_src_1": part(second, at)}
        b.primitive(op, norm.sum, {**ends, **given, **added}, details)
    activate_behind(b, op, y)
    return True
