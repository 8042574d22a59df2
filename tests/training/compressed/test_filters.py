"""Filters that are left out: what remains computes what the whole network does without them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.training.assemble import build_network
from dnnstack.training.compressed.filters import smaller_arrays, smaller_config
from dnnstack.training.network import Network
from numpy.typing import NDArray

from ...support.stored import cases

INFO = DatasetInfo("strokes", (1, 9, 8), tuple("abcd"), None, None)
CONV: dict[str, Any] = {"filters": 6, "kernel_size": 3, "padding": 1}
LAYERS: list[Any] = cases(__file__, "layers")
SHARES = {"conv2d_*": 0.5, "dense_1": 0.3}


def config_of(layers: list[Any]) -> RunConfig:
    table = {"data": {"dataset": "strokes"}, "layers": layers}
    table |= {"optimizer": {"type": "sgd", "lr": 0.1}, "train": {"epochs": 1}}
    return parse_config(json.dumps(table), "net.yaml")


def scores(network: Network, arrays: dict[str, NDArray[np.float32]]) -> NDArray[Any]:
    graph = network.infer_graph(3)
    executable = ReferenceBackend(1).compile({"infer": graph}, Options())
    for tensor in network.learned():
        executable.write(tensor, arrays[tensor.name])
    x = np.random.default_rng(3).normal(size=(3, 1, 9, 8)).astype(np.float32)
    executable.write(graph["x"], x)
    executable.run("infer")
    return executable.read(graph["scores"])


def test_it_computes_what_the_whole_does_without_them():
    config = config_of(LAYERS)
    whole = build_network(config, INFO)
    rng = np.random.default_rng(7)
    arrays = {
        tensor.name: np.abs(rng.normal(size=tensor.shape, scale=0.1)).astype(np.float32) + 0.01
        for tensor in whole.learned()
    }
    small = smaller_arrays(whole, SHARES, arrays)
    network = build_network(smaller_config(config, whole, SHARES), INFO)
    assert {t.name: t.shape for t in network.learned()} == {n: a.shape for n, a in small.items()}
    assert small["conv2d_1.weight"].shape == (3, 1, 3, 3)
    assert small["conv2d_2.weight"].shape[:2] == (2, 3)
    assert small["dense_1.weight"].shape == (2, 2 * 9)
    # Upon a filter that is left out, the weights are 0 in the whole network.
    follower = {"conv2d_1": "conv2d_2", "conv2d_2": "dense_1", "dense_1": "dense_2"}
    whole_sums = {
        n: arrays[f"{n}.weight"].reshape(len(arrays[f"{n}.bias"]), -1).sum(1) for n in follower
    }
    for name, sums in whole_sums.items():
        gone = np.argsort(-sums, kind="stable")[len(small[f"{name}.bias"]) :]
        weight = arrays[f"{follower[name]}.weight"]
        weight.reshape(len(weight), len(sums), -1)[:, gone] = 0
    found = scores(network, small)
    assert np.ptp(found, 0).min() > 1e-3
    np.testing.assert_allclose(found, scores(whole, arrays), rtol=1e-5)


def test_inside_blocks_all_but_the_ends_of_paths_get_narrower():
    body = [{"conv2d": CONV}, "batch_norm", "relu", {"conv2d": CONV}]
    deeper = [{"conv2d": {**CONV, "filters": 4}}, {"sequential": {"layers": body}}]
    layers = [
        {"conv2d": CONV},
        {"residual": {"body": body}},
        {"residual": {"body": deeper, "shortcut": [{"conv2d": CONV}, "relu", {"conv2d": CONV}]}},
        {"concat": {"branches": [[], body]}},
        "flatten",
        {"dense": {"units": 4}},
    ]
    config = config_of(layers)
    whole = build_network(config, INFO)
    inner = ["residual_1.conv2d_2", "residual_2.conv2d_4", "residual_2.sequential_1.conv2d_5"]
    inner += ["residual_2.conv2d_7", "concat_1.conv2d_9"]
    shares = dict.fromkeys(inner, 0.5)
    rng = np.random.default_rng(7)
    arrays = {
        tensor.name: np.abs(rng.normal(size=tensor.shape, scale=0.1)).astype(np.float32) + 0.01
        for tensor in whole.learned()
    }
    small = smaller_arrays(whole, shares, arrays)
    network = build_network(smaller_config(config, whole, shares), INFO)
    assert {t.name: t.shape for t in network.learned()} == {n: a.shape for n, a in small.items()}
    # The weakest of a layer are found before weights upon the one before it become 0.
    for name in reversed(inner):
        before, after = arrays[f"{name}.weight"], small[f"{name}.weight"]
        assert 2 * len(after) == len(before)
        at = list(arrays).index(f"{name}.weight")
        follower = next(n for n in list(arrays)[at + 1 :] if n.endswith(".weight") and "conv" in n)
        sums = before.reshape(len(before), -1).sum(1)
        arrays[follower][:, np.argsort(-sums, kind="stable")[len(after) :]] = 0
    found = scores(network, small)
    assert np.ptp(found, 0).min() > 1e-3
    np.testing.assert_allclose(found, scores(whole, arrays), rtol=1e-5)
    # By a pattern too, and that of a path's end has none that it could name.
    again = smaller_config(config, whole, {"residual_1.*": 0.5})
    assert again == smaller_config(config, whole, {inner[0]: 0.5})
    with pytest.raises(ConfigError, match=r"no layer matches 'residual_1\.conv2d_3'"):
        smaller_config(config, whole, {"residual_1.conv2d_3": 0.5})
    with pytest.raises(ConfigError, match=r"'residual_2\.sequential_1\.conv2d_6' meet others"):
        smaller_config(config, whole, {"residual_2.sequential_1.conv2d_6": 0.5})


@pytest.mark.parametrize(
    ("layers", "shares", "said"), cases(__file__, "what_cannot_be_left_out_is_told")
)
def test_what_cannot_be_left_out_is_told(layers, shares, said):
    config = config_of(layers)
    with pytest.raises(ConfigError, match=said):
        smaller_config(config, build_network(config, INFO), shares)
