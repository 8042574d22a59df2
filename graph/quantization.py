"""Turns the products of a forward pass into products of 8-bit integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from . import ops
from .graph import Graph, Op, Tensor

_Quantized = ops.QuantizedConv2d | ops.QuantizedMatMul


def products(graph: Graph) -> dict[str, tuple[Tensor, Tensor]]:
    """(input, weights) of all products that can be those of integers, by layer."""
    found = [op for op in graph.ops if _can_be_quantized(op)]
    return {op.origin[0].layer: (op.reads()[0], op.reads()[1]) for op in found}


def quantized(graph: Graph, inputs: Mapping[str, ops.Quantization]) -> Graph:
    """The section with products of integers for these layers; the graph before any rewrite.

    A product takes along the bias, the batch norm and the ReLU behind it. Where nothing but
    max-pooling and reshaping lies between it and the next one, its result is quantized at once, and
    numbers never leave their 8 bits. All else is computed in float32.
    """
    listed = list(graph.ops)
    for op in graph.ops:
        layer = op.origin[0].layer
        if layer in inputs and _can_be_quantized(op):
            listed = _with_product(graph.with_ops(listed), op, inputs[layer])
    result = graph.with_ops(listed)
    for op in [op for op in listed if isinstance(op, ops.Quantize)]:
        result = _without_floats(result, op)
    return result


def _can_be_quantized(op: Op) -> bool:
    """Filters that are made of other tensors are left as they are."""
    if isinstance(op, ops.Conv2d):
        return op.w.role == "parameter"
    return isinstance(op, ops.MatMul) and op.transpose_b and op.b.role == "parameter"


def _with_product(graph: Graph, op: Any, given: ops.Quantization) -> list[Op]:
    """The operations with one product, and what follows it, replaced by one of integers."""
    x, w, y = (op.x, op.w, op.y) if isinstance(op, ops.Conv2d) else (op.a, op.b, op.c)
    fields: dict[str, Any] = {}
    taken: list[Op] = [op]
    for after in _following(graph, y):
        if isinstance(after, ops.BiasAdd) and not fields:
            fields["bias"] = after.b
        elif isinstance(after, ops.BatchNormInference) and "running_var" not in fields:
            fields |= {"weight": after.weight, "shift": after.bias, "eps": after.eps}
            fields |= {"running_mean": after.running_mean, "running_var": after.running_var}
        elif isinstance(after, ops.Activation) and after.kind == "relu":
            fields["relu"] = True
        else:
            break
        taken.append(after)
        y = after.y
        if fields.get("relu"):
            break
    known = {(each.x, each.to): each.q for each in graph.ops if isinstance(each, ops.Quantize)}
    name = f"{op.origin[0].layer}.quantized"
    q = known.get((x, given)) or replace(x, name=name, role="activation", section=graph.name)
    fields |= {"x": q, "w": w, "y": y, "given": given}
    fields["origin"] = tuple(dict.fromkeys(each for one in taken for each in one.origin))
    if isinstance(op, ops.Conv2d):
        product: Op = ops.QuantizedConv2d(window=op.window, groups=op.groups, **fields)
    else:
        product = ops.QuantizedMatMul(**fields)
    found: list[Op] = []
    for each in graph.ops:
        if each is op and (x, given) not in known:
            found.append(ops.Quantize(x=x, q=q, to=given, origin=op.origin[:1]))
        if each is op:
            found.append(product)
        elif not any(each is one for one in taken):
            found.append(each)
    return found


def _following(graph: Graph, y: Tensor) -> Iterator[Any]:
    """The operations that one after the other are alone in reading the result of the one before."""
    while y not in graph.results.values():
        readers = graph.consumers(y)
        if len(readers) != 1 or len(readers[0].writes()) != 1:
            return
        yield readers[0]
        y = readers[0].writes()[0]


def _without_floats(graph: Graph, op: ops.Quantize) -> Graph:
    """Quantize where the numbers are computed, if only integers are needed of them.

    The largest of some integers is that of their numbers, and integers from 0 on need no ReLU.
    """
    between: list[Any] = []
    x = op.x
    while True:
        if x in graph.results.values() or len(graph.consumers(x)) != 1:
            return graph
        before: Any = graph.producer(x)
        if isinstance(before, _Quantized) and before.to is None:
            break
        if not _keeps_order(before, op.to):
            return graph
        between.append(before)
        x = before.x
    known: dict[Tensor, Tensor] = {}
    for each in reversed(between):
        if isinstance(each, ops.Activation):
            known[each.y] = known.get(each.x, each.x)
    known[op.q] = known.get(op.x, op.x)
    listed: list[Op] = []
    for each in graph.ops:
        if each is before:
            listed.append(replace(before, to=op.to))
        elif each is not op and not (isinstance(each, ops.Activation) and each.y in known):
            read: Any = getattr(each, "x", None)
            changed: dict[str, Any] = {"x": known[read]} if read in known else {}
            # The others must stay the very objects that the caller goes through.
            listed.append(replace(each, **changed) if changed else each)
    return graph.with_ops(listed)


def _keeps_order(op: Op | None, to: ops.Quantization) -> bool:
    """Whether an operation does the same to integers as to the numbers that they stand for."""
    if isinstance(op, ops.Activation):
        return op.kind == "relu" and not to.signed
    return isinstance(op, ops.Reshape) or (isinstance(op, ops.Pool2d) and op.kind == "max")
