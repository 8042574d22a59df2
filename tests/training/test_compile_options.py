"""What the config says of the machine reaches the backend."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import pytest
from dnnstack.backends.base import Executable, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.graph import Graph
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup


class Recorder(ReferenceBackend):
    """Keeps the options of the last compilation."""

    def __init__(self) -> None:
        super().__init__(1)
        self.options = Options()

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Executable:
        self.options = options or Options()
        return super().compile(sections, options)


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ((), Options()),
        (("run.tune=auto",), Options()),
        (("run.tune=true",), Options(tune_seconds=inf)),
        (("run.tune=false",), Options(tune=False)),
        (("data.residency=stream",), Options(residency="stream")),
        (("run.calls=lecture",), Options(fusion=False, calls="lecture")),
        (("run.calls=best",), Options()),
        (("data.residency=device", "run.fusion=false"), Options(fusion=False, residency="device")),
    ],
)
def test_options_of_the_training(tiny, tmp_path, overrides, wanted):
    config = tiny(*overrides)
    info = describe_data(config)
    data = load_data(config, "train", tmp_path)
    backend = Recorder()
    network, scaling = build_network(config, info), preprocessing(config, info)
    Session(Setup(config, network, scaling, make_plan(config, len(data)), data), backend).close()
    found = backend.options
    machine = ("precision", "fusion", "deterministic", "tune", "tune_seconds", "residency", "calls")
    for name in machine:
        assert getattr(found, name) == getattr(wanted, name)
