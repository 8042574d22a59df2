"""What ``summary`` says of memory is what the executables of the CPU hold, tensor by tensor.

Padding, copies in other layouts and tensors that take each other's place are the backend's own and
not counted. In bfloat16 numbers are counted, for some of them take two bytes and others four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.backends.select import open_backend
from dnnstack.configs import RunConfig, load_config, packaged_configs
from dnnstack.datasets import ImageSet
from dnnstack.graph.graph import SHARED, Graph, Tensor
from dnnstack.graph.ops import Reshape
from dnnstack.reports.summary import Memory, NetworkSummary, summarize
from dnnstack.training.assemble import build_network, describe_data, preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.sections import evaluation, samples_needed
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

BACKENDS = ("numpy", "onednn", "onednn bf16")
# Of their sizes NumPy would compute for minutes: what it holds before a step is compared.
LARGE = {"alexnet.yaml", "vgg16.yaml"}
# Batches that these need, or are.
WHOLE = {"lenet5-1998.yaml", "mlp-xor.yaml", "perceptron-nand.yaml"}
GROUPS = "optimizer.groups="
VARIED = {
    "parts": ("train.accumulate=4",),
    "frozen later": (GROUPS + "[{parameters: conv2d_1.*, freeze_after_epoch: 2}]",),
    "frozen first": (GROUPS + "[{parameters: dense_1.*, freeze_until_epoch: 2}]",),
    "one after the other": (
        GROUPS + "[{parameters: dense_1.*, freeze_until_epoch: 2}, "
        "{parameters: [conv2d_1.*, conv2d_2.*], freeze_after_epoch: 1}]",
    ),
    "never trained": (GROUPS + "[{parameters: dense_1.weight, frozen: true}]",),
    "averages": ("optimizer.ema.decay=0.9", "optimizer.lookahead.every=2"),
    "all": (
        "train.accumulate=4",
        "optimizer={type: adamw, lr: 0.01, ema: {decay: 0.9}, "
        "groups: [{parameters: conv2d_1.*, freeze_after_epoch: 2}]}",
    ),
    "statistics": ("layers.0=batch_norm", "optimizer.ema.decay=0.9"),
}


@dataclass(frozen=True)
class Held:
    """A tensor that an executable holds, and how many bytes its numbers take there."""

    tensor: Tensor
    nbytes: int


def held_by(executable: Any, section: str) -> Iterator[Held]:
    """What a section holds of its own or shares with others; views of others' bytes left out."""
    if isinstance(executable, ReferenceExecutable):
        inside = {t for g in executable.graphs.values() for t in g.tensors()}
        values = executable._values
        found = {t: value.nbytes for t, value in values.items() if t in inside}
        # A tensor of a section names it; the others are shared.
        found = {t: n for t, n in found.items() if t.role in SHARED or t.section == section}
    else:
        assert isinstance(executable, OneDnnExecutable)
        binder, store = executable._sections[section], executable._store
        found = {t: array.nbytes for t, array in (*binder.arrays.items(), *store.arrays.items())}
        for tensor, memory in (*binder.memories.items(), *store.memories.items()):
            size = {"float32": 4, "bfloat16": 2}[memory.descriptor.dtype]
            found[tensor] = prod(memory.descriptor.shape) * size
    views = {op.y for op in executable.graphs[section].ops if isinstance(op, Reshape)}
    return (Held(tensor, n) for tensor, n in found.items() if tensor not in views)


def forward_of(graph: Graph) -> set[Tensor]:
    phases = ("data", "forward", "loss")
    return {t for op in graph.ops if op.origin[0].phase in phases for t in op.writes()}


def allocated(executable: Any, sections: list[str], statistics: tuple[Tensor, ...]) -> Memory:
    """The executable's own account, by the roles of tensors."""
    sums = dict.fromkeys(Memory.__dataclass_fields__, 0)
    shared: set[Tensor] = set()
    for section in sections:
        forward = forward_of(executable.graphs[section])
        for held in held_by(executable, section):
            tensor, kind = held.tensor, ""
            if tensor.role in SHARED:
                if tensor in shared or tensor.role == "data" or tensor.dtype != "float32":
                    continue
                shared.add(tensor)
                kind = "optimizer" if tensor.role == "state" else "parameters"
                kind = "statistics" if tensor in statistics else kind
            elif tensor.role == "gradient":
                kind = "gradients"
            elif tensor.role == "activation":
                kind = "activations" if tensor in forward else "activation_gradients"
            if kind:
                sums[kind] += held.nbytes
    return Memory(**sums)
