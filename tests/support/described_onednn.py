"""An executable on the stand-in for oneDNN, as canonical text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from dnnstack.backends.onednn.bind import Binder
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.memory import Descriptor, Memory
from dnnstack.backends.onednn.primitive import Step
from dnnstack.graph.graph import Graph, Op, Tensor

from .described_bytes import call_text
from .onednn_tape import TapedOneDnn

# Functions inside functions inside those that are bound.
DEPTH = 3
# What NumPy has for a type that it does not have.
ITEMS = {"bfloat16": "uint16"}


def described(tape: TapedOneDnn, executable: OneDnnExecutable) -> Iterator[str]:
    """Every section: where its tensors lie, and what is called in which order."""
    for name, graph in executable.graphs.items():
        binder = executable._sections[name]
        tape.addresses.call(_names(tape, executable, binder))
        yield f"== {name}: {graph.batch_size} samples"
        for tensor, memory in (*binder.memories.items(), *executable._store.memories.items()):
            shape, lies = "x".join(map(str, tensor.shape)), tape.addresses.within(_at(memory))
            yield f"{tensor.name}: {tensor.role} {shape}, {memory.descriptor} at {lies}"
        yield f"given away: {' '.join(sorted(tensor.name for tensor in binder.overwritten))}"
        for kind, steps in (("entering", binder.prologue), ("each time", binder.steps)):
            yield f"= {kind}"
            for number, step in enumerate(steps):
                yield f"{number}. {call_text(step.call)}"
                yield from (f"    {line}" for line in _done(tape, step))


def _at(memory: Memory) -> int:
    return memory.buffer.ctypes.data


def _names(tape: TapedOneDnn, executable: OneDnnExecutable, binder: Binder) -> dict[int, str]:
    names: dict[int, str] = {}
    for tensor, memory in (*binder.memories.items(), *executable._store.memories.items()):
        names.setdefault(_at(memory), tensor.name)
    for tensor, copies in binder._copies.items():
        for memory in copies:
            names.setdefault(_at(memory), f"{tensor.name} as {memory.descriptor}")
    for memory in binder.constants:
        held = memory.bytes.view(ITEMS.get(memory.descriptor.dtype, memory.descriptor.dtype))
        names.setdefault(_at(memory), f"[{tape.addresses.contents(held)}]")
    return names


def _done(tape: TapedOneDnn, step: Step) -> Sequence[str]:
    if step.primitive is None:
        return [_function(tape, step.function, DEPTH)]
    again = [] if step.of_samples is None else [tape.text(step.of_samples(2).handle)]
    return [*tape.called(step.primitive.call), *again]


def _function(tape: TapedOneDnn, function: Callable[..., Any], depth: int) -> str:
    """What a function of ours works with: what it closes over, or is given beforehand."""
    if isinstance(function, partial):
        given = [_value(tape, each, depth) for each in function.args]
        given += [f"{key}={_value(tape, each, depth)}" for key, each in function.keywords.items()]
        return f"{_function(tape, function.func, depth)} given {', '.join(given)}"
    function = inspect.unwrap(function)
    # A longer name tells in some versions of Python that it was made in a comprehension.
    name = getattr(function, "__name__", type(function).__name__)
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    held = [
        f"{key}={_value(tape, cell.cell_contents, depth)}"
        for key, cell in zip(names, cells, strict=True)
    ]
    return f"{name}({', '.join(held)})"


def _value(tape: TapedOneDnn, value: Any, depth: int) -> str:
    if isinstance(value, np.ndarray):
        where = tape.addresses.place(value.ctypes.data)
        return f"{value.dtype} {'x'.join(map(str, value.shape))} {where or 'elsewhere'}"
    if isinstance(value, Memory):
        return f"{tape.addresses.place(_at(value)) or 'elsewhere'} {value.descriptor}"
    if isinstance(value, Tensor | Graph):
        return value.name
    if isinstance(value, Op):
        return type(value).__name__
    if isinstance(value, Descriptor | bool | int | float | str | np.generic | None):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{' '.join(_value(tape, each, depth) for each in value)}]"
    if callable(value) and depth:
        return _function(tape, value, depth - 1)
    return type(value).__name__
