"""A call on a batch, made on pieces of it: what reads a piece next finds it in the cache."""

from __future__ import annotations

from collections.abc import Callable

from .bind import Binder
from .memory import Descriptor, Memory
from .primitive import NoFastKernel, PrimitiveDesc, Step
from .sums import layout_name

# Of these a piece of the batch has its own part; the others belong to all samples.
BY_SAMPLE = ("src", "dst")
# Every piece reads the weights once more: up to so many bytes they stay in a core's cache.
MOST_WEIGHTS = 1 << 18


def is_by_sample(b: Binder, written: Memory) -> bool:
    """Whether the last call has just written a memory, treats each sample alike, and has few
    weights."""
    last = b.steps[-1] if b.steps else None
    if last is None or last.of_samples is None or last.primitive is None:
        return False
    arguments = last.primitive.arguments
    target, weights = arguments["dst"], arguments["weights"].descriptor
    same = target.buffer is written.buffer and target.descriptor == written.descriptor
    return same and weights.nbytes <= MOST_WEIGHTS


def by_pieces(b: Binder, written: Memory, count: int) -> Callable[[int], None]:
    """Take back the call that has just written a memory, if it can be made on equal pieces.

    The function that is returned appends that of a piece by number, or nothing if the call stays.
    Every sample gets the same bits as before.
    """
    last = b.steps[-1] if is_by_sample(b, written) else None
    desc = None if last is None else _of_piece(last, written.descriptor.shape[0], count)
    if last is None or last.primitive is None or desc is None:
        return lambda at: None
    b.steps.pop()
    last.primitive.close()
    whole, shown = last.primitive.arguments, last.primitive.shown()
    details = {key: value for key, value in last.call.arguments.items() if key not in shown}
    pieces = {name: desc.descriptor(name) for name in BY_SAMPLE}

    def append(at: int) -> None:
        own = {
            name: Memory(piece, whole[name].buffer[at * piece.nbytes :])
            for name, piece in pieces.items()
        }
        b.primitive(last.call.op, desc, {**whole, **own}, details)

    return append


def _of_piece(step: Step, samples: int, count: int) -> PrimitiveDesc | None:
    """The step's primitive for one of ``count`` pieces of its batch, if it has one like it."""
    if step.of_samples is None or step.primitive is None or count == 1 or samples % count:
        return None
    try:
        desc = step.of_samples(samples // count)
    except NoFastKernel:
        return None
    for name, memory in step.primitive.arguments.items():
        known = memory.descriptor
        if name in BY_SAMPLE:
            shape = (samples // count, *known.shape[1:])
            known = Descriptor.of(shape, layout_name(known), known.dtype)
        if desc.descriptor(name) != known:
            return None
    return desc if desc.implementation == step.primitive.implementation else None
