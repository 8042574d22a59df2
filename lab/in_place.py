"""A kernel in the place of an operation, wherever a training has it in sizes that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends.own_code import Call
from ..backends.reference.kernels import KERNELS, Kernel
from ..backends.registry import handed_on
from ..graph.graph import Op
from .checking import FEW, checked
from .child import loaded
from .operations import Array, Operation
from .program import Program


@contextmanager
def in_place(program: Program) -> Iterator[None]:
    """In this block every backend computes with the kernel whatever it takes.

    A kernel is checked in each of its sizes before it is used. Raises LabError.
    """
    operation = program.operation
    own = operation.reference
    call = loaded(program.language, program.source, operation.name)
    verdicts: dict[str, bool] = {}

    def takes(op: Op) -> bool:
        if not operation.takes(op):
            return False
        for each in operation.calls(op):
            sizes = operation.title(each)
            if sizes not in verdicts:
                case = operation.case(each, np.random.default_rng(1))
                verdicts[sizes] = checked(program, [case], FEW)[0][0].took
            if not verdicts[sizes]:
                return False
        return True

    def compute(op: Op, *values: Any) -> Any:
        return _computed(operation, call, op, values) if takes(op) else own.compute(op, *values)

    KERNELS[operation.kind] = Kernel(compute, program.path.name)
    try:
        with handed_on(takes):
            yield
    finally:
        KERNELS[operation.kind] = own


def _computed(operation: Operation, call: Call, op: Any, values: tuple[Any, ...]) -> Any:
    """What a kernel of the reference returns, by the own one."""
    given = dict(zip((*op.inputs, *op.updates), values, strict=True))
    if operation.name == "update":
        return _updated(operation, call, op, given)
    arrays: dict[str, Array] = {}
    for argument in operation.arguments:
        name = argument.name
        dtype = np.int32 if argument.dtype == "int" else np.float32
        array = given[name] if argument.is_input else np.empty(getattr(op, name).shape)
        arrays[name] = argument.shaped(np.ascontiguousarray(array, dtype))
    call(arrays, operation.values(op))
    found = [
        arrays[name].reshape(getattr(op, name).shape) if name in arrays else None
        for name in op.outputs
    ]
    return tuple(found) if len(found) > 1 else found[0]


def _updated(operation: Operation, call: Call, op: Any, given: Mapping[str, Any]) -> Any:
    """The parameters and their buffers, where there are any, after a call for each."""
    rate = float(given["rates"][int(given["step"][0])])
    moved, kept = [], []
    for i, each in enumerate(operation.calls(op)):
        g, w = (np.array(given[field][i], np.float32) for field in ("gradients", "parameters"))
        v = np.array(given["buffers"][i], np.float32) if op.buffers else np.zeros_like(w)
        arrays = {"g": g.reshape(-1), "w": w.reshape(-1), "v": v.reshape(-1)}
        call(arrays, operation.values(each, rate))
        moved.append(w)
        kept.append(v)
    return tuple(moved), tuple(kept) if op.buffers else ()
