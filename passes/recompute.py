"""Recomputation: backward computes activations again instead of keeping them since forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt

from ..graph.graph import Op, Origin, Tensor
from ..graph.ops import BatchNorm
from .section import Section


def recomputed(section: Section) -> Section:
    """Backward computes blocks of forward again, from the tensors that pass from one to the next.

    A block ends where a single tensor goes on. Of several ways to cut, the one is taken whose
    activations need the fewest bytes at a time. What ranks exchange, and what a step changes in
    place, happens once. Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """
    places = [i for i, op in enumerate(section.body) if op.origin[0].phase == "forward"]
    if not places:
        return section
    forward = section.body[places[0] : places[-1] + 1]
    ahead, backward = section.body[: places[0]], section.body[places[-1] + 1 :]
    single = _single(forward)
    ways = [section.body]
    for count in range(2, 2 * isqrt(len(single)) + 3):
        begins = _even(forward, list(single), count)
        passed = {*section.results.values(), *(single[place] for place in begins[1:])}
        blocks = [forward[begin:end] for begin, end in pairwise(begins)]
        again = _again(blocks, backward, _made_with(passed, forward))
        ways.append((*ahead, *forward, *again))
    return replace(section, body=min(ways, key=most_bytes))


def most_bytes(ops: Sequence[Op]) -> int:
    """The most bytes of activations that a list of operations needs at a time."""
    made = {tensor for op in ops for tensor in op.tensors(op.outputs)}
    last = {tensor: i for i, op in enumerate(ops) for tensor in (*op.reads(), *op.writes())}
    alive, most = 0, 0
    for i, op in enumerate(ops):
        alive += _bytes(op.tensors(op.outputs))
        most = max(most, alive)
        touched = made.intersection((*op.reads(), *op.writes()))
        alive -= _bytes(tensor for tensor in touched if last[tensor] == i)
    return most


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor.role == "activation")


def _single(forward: Sequence[Op]) -> dict[int, Tensor]:
    """The places in forward that a single tensor passes, with that tensor."""
    made = {tensor: i for i, op in enumerate(forward) for tensor in op.tensors(op.outputs)}
    last = {tensor: i for i, op in enumerate(forward) for tensor in op.reads() if tensor in made}
    passing: list[list[Tensor]] = [[] for _ in forward]
    for tensor, end in last.items():
        for place in range(made[tensor] + 1, end + 1):
            passing[place].append(tensor)
    return {place: found[0] for place, found in enumerate(passing) if len(found) == 1}


def _even(forward: Sequence[Op], single: Sequence[int], count: int) -> list[int]:
    """Where blocks begin that have at most their share of the bytes, as far as ``single`` allows.

    The last is not computed again, and ends nowhere.
    """
    sizes = [_bytes(op.tensors(op.outputs)) for op in forward]
    begins, before = [0], 0
    for place in single:
        if sum(sizes[begins[-1] : place]) * count > sum(sizes) and before > begins[-1]:
            begins.append(before)
        before = place
    return begins


def _made_with(tensors: set[Tensor], ops: Sequence[Op]) -> set[Tensor]:
    """The tensors, and all that is made by the operations that make them."""
    every = (set(op.tensors(op.outputs)) for op in ops)
    return tensors.union(*(made for made in every if not made.isdisjoint(tensors)))


def _again(
    blocks: Sequence[Sequence[Op]], backward: Sequence[Op], kept: set[Tensor]
) -> Iterator[Op]:
    """Backward, with what it reads of each block computed again just before it is needed."""
    read = {tensor for op in backward for tensor in op.reads()} - kept
    names: dict[Tensor, Tensor] = {}
    chosen: dict[int, list[Op]] = {}
    for block in blocks:
        wanted, ops = set(read), list[Op]()
        for op in reversed(block):
            # Vectors, such as the statistics of batch norm, are kept.
            large = (tensor for tensor in op.tensors(op.outputs) if len(tensor.shape) > 1)
            if _repeats(op) and not wanted.isdisjoint(large):
                ops.insert(0, op)
                wanted.update(tensor for tensor in op.reads() if tensor not in kept)
        made = {tensor for op in ops for tensor in op.tensors(op.outputs)} - kept
        names |= {tensor: replace(tensor, name=f"{tensor.name}.again") for tensor in made}
        first = (i for i, op in enumerate(backward) if not made.isdisjoint(op.reads()))
        chosen.setdefault(next(first, 0), []).extend(ops)
    for place, op in enumerate(backward):
        yield from (_repeated(each, names) for each in chosen.get(place, ()))
        yield op.on(names)


def _repeats(op: Op) -> bool:
    return isinstance(op, BatchNorm) or not (op.shared_out or op.tensors(op.updates))


def _repeated(op: Op, names: Mapping[Tensor, Tensor]) -> Op:
    if isinstance(op, BatchNorm) and op.running_mean is not None:
        # Running statistics moved in forward.
        var = replace(op.mean, name=f"{op.mean.name.removesuffix('mean')}var.again")
        op = replace(op, running_mean=None, running_var=None, var=var)
    return replace(op.on(names), origin=tuple(Origin(o.layer, "backward") for o in op.origin))
