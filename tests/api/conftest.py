"""A trained network for the tests of the package: the command's, in a folder to read from."""

from __future__ import annotations

import dnnstack
import numpy as np
import pytest
from dnnstack.configs import parse_config
from dnnstack.training.assemble import load_data
from numpy.typing import NDArray

from ..support.training_fixtures import TINY, _own_cache  # noqa: F401
from ..support.unrendered import _unrendered  # noqa: F401

Samples = tuple[NDArray[np.uint8], NDArray[np.int32]]


@pytest.fixture(scope="session")
def run(_own_cache, tmp_path_factory):  # noqa: F811
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    history = dnnstack.train(folder / "tiny.yaml", device="numpy", runs_dir=folder / "runs")
    return history.run


@pytest.fixture(params=["numpy", "cpu"])
def model(run, request):
    """Its network, on each backend of the CPU."""
    with dnnstack.load(run, device=request.param, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def samples(_own_cache, tmp_path_factory):  # noqa: F811
    """The pictures (20, 1, 28, 28) and labels of the test split."""
    config = parse_config(TINY, "tiny.yaml", [])
    split = load_data(config, "test", tmp_path_factory.mktemp("data"))
    return split.images, split.labels
