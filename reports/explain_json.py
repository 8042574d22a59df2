"""The explanation of a training step as plain data; seconds are None if not measured."""

from __future__ import annotations

from typing import Any

from ..graph.graph import Tensor
from .explain import Call, Explanation, Operation, Total, WholeStep, ratio


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Layers in the order of forward with their operations and calls, and totals by phase."""
    limits, step = explanation.limits, explanation.whole
    return {
        "config": explanation.config,
        "backend": explanation.backend,
        "versions": dict(explanation.versions),
        "batch_size": explanation.batch_size,
        "limits": limits and {"gflops": limits.gflops, "gbytes_per_second": limits.gbytes},
        "layers": [
            {"name": layer, "operations": [_operation(member) for member in members]}
            for layer, members in explanation.by_layer().items()
        ],
        "totals": {name: _with_share(part) for name, part in explanation.totals().items()},
        "whole_step": step and _with_share(step, gap_seconds=step.gaps),
    }


def _operation(operation: Operation) -> dict[str, Any]:
    op = operation.op
    return {
        "op": op.name,
        "phase": operation.origin.phase,
        "origins": [vars(origin) for origin in op.origin],
        "replaces": [
            {"op": source.name, "layer": source.origin[0].layer} for source in operation.replaced
        ],
        "inputs": [_tensor(tensor) for tensor in op.reads()],
        "outputs": [_tensor(tensor) for tensor in op.writes()],
        "flops": op.flops(),
        "bytes": op.bytes(),
        "seconds": operation.seconds,
        "limit_seconds": operation.limit_seconds,
        "fraction_of_limit": ratio(operation.limit_seconds, operation.seconds),
        "calls": [_call(call) for call in operation.calls],
    }


def _call(call: Call) -> dict[str, Any]:
    shown = ("library", "function", "implementation", "arguments")
    return {**{key: getattr(call.bound, key) for key in shown}, "seconds": call.seconds}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype}


def _with_share(part: Total | WholeStep, **more: float) -> dict[str, Any]:
    share = ratio(part.limit_seconds, part.seconds)
    return {**vars(part), **more, "fraction_of_limit": share}
