"""A training that takes a fraction of a second, and the backends to run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.select import open_backend
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.state import Best, State

from .stored import beside
from .trainings import Counting

__all__ = [
    "_own_cache",
    "arrays",
    "backend",
    "counting",
    "cuda",
    "onednn",
    "provenance",
    "reference",
    "state",
    "tiny",
]

TINY = "\n" + beside(__file__, "training_fixtures_tiny.yaml")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSTACK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConfig]:
    """The config with overrides; its runs go to ``tmp_path / "runs"``. 10 steps are an epoch."""

    def make(*overrides: str) -> RunConfig:
        where = f"run.dir={tmp_path / 'runs'}"
        return parse_config(TINY, "tiny.yaml", [where, *overrides])

    return make


@pytest.fixture(params=["numpy", "onednn"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return _open(request.param)


@pytest.fixture
def reference() -> Backend:
    return _open("numpy")


@pytest.fixture
def onednn() -> Backend:
    return _open("onednn")


@pytest.fixture(scope="session")
def cuda() -> Backend:
    try:
        return open_backend("cuda", None, lambda text: None)
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["numpy", "onednn", "cuda"])
def counting(request: pytest.FixtureRequest) -> Counting:
    name = {"numpy": "reference"}.get(request.param, request.param)
    return Counting(request.getfixturevalue(name))


def _open(name: str) -> Backend:
    notices: list[str] = []
    opened = open_backend("numpy" if name == "numpy" else "cpu", 1, notices.append)
    if opened.name != name:
        pytest.skip(f"oneDNN cannot be loaded: {notices}")
    return opened


@pytest.fixture
def state() -> State:
    """Where a training stands after step 3."""
    return State(step=3, window_start=2, sums=(1.0 / 3.0, 2.0, 64.0), best=Best(2, 0.5, 0.1))


@pytest.fixture
def provenance() -> Provenance:
    """Where that checkpoint comes from."""
    return Provenance(
        steps_per_epoch=10,
        config='name: x\nnote: "\\"sha256\\":\\"' + "0" * 64 + '\\""\n',
        dataset="mnist",
        input_shape=(1, 28, 28),
        classes=("zero", "one"),
        preprocessing=Preprocessing((1 / 255,), (-0.1,)),
        tuning=Tuning("numpy", {"threads": "1"}, "graph", {"conv2d_1": "nhwc"}),
        versions={"numpy": "2"},
    )


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Two parameters, one of them in a memory order that safetensors would get wrong."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3).T
    return {
        "dense_1.weight": weight,
        "dense_1.bias": np.array([1.5, -2.5, 0.0], np.float32),
        "momentum/dense_1.weight": np.full((3, 2), 0.1, np.float32),
    }
