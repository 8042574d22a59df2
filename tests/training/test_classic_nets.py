"""The classic nets as wholes: LeNet-5's counts, exact resume, fusion, what the losses learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.configs import RunConfig, load_config
from dnnstack.optimizers.schedules.schedule import Length
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.rate_tables import make_schedule

from ..support.resuming import go
from ..support.stored import cases

STROKES = "data.dataset={strokes: {train_count: 200, test_count: 20}}"
SHORT = "train={max_steps: 30, log_every: 10}"


def lenet5(folder: Path, *overrides: str) -> RunConfig:
    """LeNet-5 of 1998 for some steps on pictures that need no download."""
    small = (STROKES, SHORT, "schedule=fixed", f"run.dir={folder}")
    return load_config("lenet5-1998.yaml", [*small, *overrides]).config


def test_lenet5_has_the_parameters_of_the_paper(tmp_path):
    config = lenet5(tmp_path)
    network = build_network(config, describe_data(config))
    counts = {
        layer.name: sum(p.tensor.size for p in layer.parameters())
        for layer in network.layers
        if layer.parameters()
    }
    assert counts == {"c1": 156, "s2": 12, "c3": 1516, "s4": 32, "c5": 48120, "f6": 10164}
    assert sum(counts.values()) == 60_000
    shapes = {layer.name: layer.output_shape for layer in network.layers}
    assert [shapes[name] for name in ("pad2d_1", "c1", "s2", "c3", "s4", "c5", "f6", "rbf_1")] == [
        (1, 32, 32),
        (6, 28, 28),
        (6, 14, 14),
        (16, 10, 10),
        (16, 5, 5),
        (120, 1, 1),
        (84,),
        (10,),
    ]


def test_lenet5_sees_what_the_paper_says(tmp_path):
    """Background -0.1, ink 1.175, and the border added is background."""
    config = lenet5(tmp_path)
    scaling = preprocessing(config, describe_data(config))
    assert scaling.shift[0] == pytest.approx(-0.1)
    assert 255 * scaling.scale[0] + scaling.shift[0] == pytest.approx(1.175)
    assert build_network(config, describe_data(config)).layers[0].value == -0.1


def test_lenet5_follows_the_schedule_of_the_paper(tmp_path):
    """0.0005 for two passes, 0.0002 for three, 0.0001 for three, 0.00005 for four, then 0.00001."""
    config = load_config("lenet5-1998.yaml").config
    rates = make_schedule(config.schedule).table(0.0005, Length(200, 10))
    passes = rates.reshape(20, 10)
    assert (passes == passes[:, :1]).all()
    paper = [5e-4] * 2 + [2e-4] * 3 + [1e-4] * 3 + [5e-5] * 4 + [1e-5] * 8
    np.testing.assert_allclose(passes[:, 0], paper, rtol=1e-6)


@pytest.mark.parametrize("loss", ["{type: rbf_map, j: 10}", "{type: rbf_map, competition: false}"])
def test_lenet5_learns(tmp_path, onednn, loss):
    length = "train={max_steps: 400, log_every: 100}"
    rate = ("data.batch_size=8", "optimizer.lr=0.004", "data.validation=40")
    done = go(lenet5(tmp_path, length, *rate, f"loss={loss}"), onednn)
    assert done.training is not None
    assert done.training.accuracy > 0.6


@pytest.mark.parametrize(
    ("loss", "rate", "last", "accuracy"), cases(__file__, "each_loss_learns_digits")
)
def test_each_loss_learns_digits(tiny, backend, loss, rate, last, accuracy):
    """One dense layer on 200 drawn digits, where guessing finds a tenth."""
    rates = (f"optimizer.lr={rate}", f"loss={loss}", "data.validation=0")
    layers = f"layers=[flatten, dense: {{units: 10}}{last}]"
    done = go(tiny(*rates, layers, "train={max_steps: 400, log_every: 12}"), backend)
    assert done.training is not None
    assert done.training.accuracy > accuracy


def test_squared_distance_learns_to_be_near(tiny, backend):
    """Always 4 or 5 costs 8.5 on average over ten digits; learning makes it less."""
    rates = ("optimizer.lr=0.3", "loss=squared_distance", "data.validation=0")
    layers = "layers=[flatten, dense: {units: 10}, softmax]"
    done = go(tiny(*rates, layers, "train={max_steps: 400, log_every: 12}"), backend)
    assert done.training is not None
    assert done.training.loss < 6.0
