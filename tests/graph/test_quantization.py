"""Graphs with products of 8-bit integers: what they compute, and what stays in a byte."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.select import open_backend
from dnnstack.configs import parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Quantization
from dnnstack.graph.quantization import products, quantized
from dnnstack.training.assemble import build_network
from dnnstack.training.network import Network

from ..support.stored import cases

INFO = DatasetInfo("strokes", (2, 12, 10), tuple("abcd"), None, None)
CONV: dict[str, Any] = {"filters": 6, "kernel_size": 3, "padding": 1}
LAYERS: list[Any] = cases(__file__, "layers")


def network() -> Network:
    table = {"data": {"dataset": "strokes"}, "layers": LAYERS}
    table |= {"optimizer": {"type": "sgd", "lr": 0.1}, "train": {"epochs": 1}}
    return build_network(parse_config(json.dumps(table), "net.yaml"), INFO)


def run(net: Network, graph: Graph, device: str) -> dict[str, np.ndarray]:
    """What the section computes for given pictures, every tensor of it by name."""
    backend = ReferenceBackend(1) if device == "numpy" else open_backend("cpu", 1)
    executable = backend.compile({graph.name: graph}, Options(fusion=False))
    rng = np.random.default_rng(5)
    for tensor in net.learned():
        low = 0.5 if tensor.name.endswith("var") else -1.0
        executable.write(tensor, rng.uniform(low, 1.0, tensor.shape).astype(np.float32))
    executable.write(graph["x"], rng.normal(size=graph["x"].shape).astype(np.float32))
    executable.run(graph.name)
    written = [tensor for op in graph.ops for tensor in op.writes()]
    found = {}
    for tensor in written:
        # Its memory may have been given to a later one.
        with suppress(KeyError):
            found[tensor.name] = executable.read(tensor)
    return found


def scales(net: Network, graph: Graph) -> dict[str, Quantization]:
    """The largest number of every input in the place of the largest integer."""
    inputs, values = products(graph), run(net, graph, "numpy")
    values["x"] = np.random.default_rng(1).normal(size=4000)
    found = {}
    for name, (x, _) in inputs.items():
        signed = bool((values[x.name] < 0).any())
        largest = float(np.abs(values[x.name]).max())
        found[name] = Quantization(largest / (127 if signed else 255), signed)
    return found


def test_it_computes_nearly_the_same_with_integers_between_its_products():
    net = network()
    graph = net.infer_graph(4)
    known = scales(net, graph)
    small = quantized(graph, known)
    kinds = [type(op).__name__ for op in small.ops]
    assert not {"Conv2d", "MatMul", "BatchNormInference", "BiasAdd"} & set(kinds)
    # Numbers leave their bytes where a shortcut is added, and before and after tanh.
    from_floats = [op.origin[0].layer for op in small.ops if isinstance(op, ops.Quantize)]
    assert from_floats == ["conv2d_1", "residual_1.conv2d_2", "conv2d_4", "dense_2"]
    straight = [op for op in small.ops if isinstance(op, ops.QuantizedConv2d) and op.to]
    assert len(straight) == 3
    # Of the ReLU behind the sum alone: integers from 0 on need none.
    assert kinds.count("Activation") == 2
    got = run(net, small, "numpy")
    name = graph["scores"].name
    want = run(net, graph, "numpy")[name]
    assert np.abs(got[name] - want).max() < 0.05 * np.abs(want).max()


def test_onednn_computes_the_same_integers():
    """Each is at most 1 away, where a quotient lies between two."""
    if not _vnni():
        pytest.skip("this processor has no VNNI: NumPy computes")
    net = network()
    graph = quantized(net.infer_graph(4), scales(net, net.infer_graph(4)))
    want, got = run(net, graph, "numpy"), run(net, graph, "cpu")
    integers = 0
    for op in graph.ops:
        name = op.writes()[0].name
        if isinstance(op, ops.Quantize) or getattr(op, "to", None):
            away = np.abs(got[name] - want[name])
            assert away.max() <= 1
            assert np.count_nonzero(away) <= 2
            integers += away.size
    assert integers > 2000
    backend = open_backend("cpu", 1)
    executable = backend.compile({graph.name: graph}, Options())
    calls = executable.calls(graph.name)
    for kind in (ops.QuantizedConv2d, ops.QuantizedMatMul):
        used = [c for c in calls if isinstance(c.op, kind) and c.function.endswith("_forward")]
        assert {c.library for c in used} == {"oneDNN"}
        assert all(c.arguments["src"][:2] in ("u8", "s8") for c in used)
        assert len(used) == sum(isinstance(op, kind) for op in graph.ops)


def test_integers_with_a_sign_keep_their_relu():
    """Behind a pool it cannot be left out, unless integers begin at 0."""
    net = network()
    graph = net.infer_graph(4)
    known = scales(net, graph)
    known["conv2d_5"] = Quantization(known["conv2d_5"].scale, True)
    relus = [op for op in quantized(graph, known).ops if getattr(op, "kind", "") == "relu"]
    assert [op.origin[0].layer for op in relus] == ["relu_3", "relu_4"]


def _vnni() -> bool:
    from dnnstack.backends.onednn.library import library

    return library().has_int8()
