"""Layers are counted from 1 and called by their names, in all errors alike."""

from __future__ import annotations

import re

import pytest
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import parse_config
from dnnstack.configs.layer_places import shown_path
from dnnstack.datasets import DatasetInfo
from dnnstack.training.assemble import build_network

from ..support.stored import cases, stored

HEAD = "data: {dataset: mnist}\noptimizer: {type: sgd, lr: 1}\ntrain: {epochs: 1}\nlayers:\n"


@pytest.mark.parametrize(("given", "shown"), stored(__file__, "layer_paths.txt"))
def test_paths_in_messages(given, shown):
    """A path, and the layer's name where it is known."""
    path, _, name = given.partition(" ")
    assert shown_path(path.split("."), name) == shown


@pytest.mark.parametrize(
    ("layers", "wrong", "misfit"), cases(__file__, "a_wrong_option_and_a_misfit_name_a_layer_alike")
)
def test_a_wrong_option_and_a_misfit_name_a_layer_alike(layers, wrong, misfit):
    name = re.compile(r"layer [\w.]+ '[\w.]+' \(\w+\): ")
    with pytest.raises(ConfigError) as of_config:
        parse_config(f"{HEAD} {layers.replace('@', wrong)}", "x.yaml")
    config = parse_config(f"{HEAD} {layers.replace('@', misfit)}", "x.yaml")
    with pytest.raises(ShapeError) as of_shape:
        build_network(config, DatasetInfo("mnist", (1, 28, 28), tuple("ab"), None, None))
    first, second = (name.search(str(error.value)) for error in (of_config, of_shape))
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
