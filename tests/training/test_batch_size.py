"""``data.batch_size: auto``: which sizes are run, which is chosen, and for whom."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack import load_config, train, train_group
from dnnstack.common.errors import ConfigError, Interrupted
from dnnstack.configs import effective_yaml, parse_config
from dnnstack.training import batch_size
from dnnstack.training.assemble import check_declared
from dnnstack.training.records.group import read_group
from dnnstack.training.splits import settled
from PIL import Image

AUTO = "data.batch_size=auto"


@pytest.fixture
def machine(monkeypatch):
    """Sizes with the seconds of a step, or what they raise; ``tried`` has those that were run."""
    known = SimpleNamespace(seconds={}, tried=[], held=0)

    @contextmanager
    def made_up(config, file, backend, notice):
        notice("compiled")
        known.tried.append(size := config.data.batch_size)
        found = known.seconds[size]
        if not isinstance(found, float):
            raise found
        times = iter([found * 3, found * 2, found, found * 2, found * 3])
        tensors = [SimpleNamespace(nbytes=known.held, role="state")]
        tensors += [SimpleNamespace(nbytes=1 << 60, role="data")]
        graph = SimpleNamespace(tensors=lambda: map(_Same, tensors))
        yield SimpleNamespace(times=times, executable=SimpleNamespace(graphs={"train": graph}))

    monkeypatch.setattr(batch_size, "made_up", made_up)
    monkeypatch.setattr(batch_size, "series", lambda session: lambda count: next(session.times))
    monkeypatch.setattr(batch_size, "long_enough", lambda run: 1)
    monkeypatch.setattr(batch_size, "main_memory", lambda: 4000)
    return known


class _Same:
    def __init__(self, known):
        self.nbytes, self.role = known.nbytes, known.role


def _sized(tiny, backend, *changes, check=lambda: None):
    told = []
    found = batch_size.sized(
        tiny(AUTO, *changes), "x", backend, "root", lambda: 0, told.append, check
    )
    return found.data.batch_size, told


def test_the_smallest_that_is_nearly_the_fastest_is_chosen(tiny, reference, machine):
    # The rates are 949, 950.1, 1000 and 900 a second; there are no 256 pictures to train on.
    machine.seconds = {16: 16 / 949, 32: 32 / 950.1, 64: 0.064, 128: 128 / 900}
    found, told = _sized(tiny, reference)
    assert (found, machine.tried) == (32, [16, 32, 64, 128])
    assert told == [
        "compiled",
        "batch size 32, the smallest within 5% of the fastest; pictures a second by size: 16: 949; "
        "32: 950; 64: 1,000; 128: 900; optimizer.lr stays 0.05",
    ]


def test_sizes_are_tried_while_they_fit_and_are_soon_done(tiny, reference, machine):
    machine.seconds = {16: 0.5, 32: 1.0, 64: 1.001}
    assert _sized(tiny, reference)[0] == 64
    machine.seconds = {16: 0.1, 32: 0.1, 64: MemoryError()}
    assert _sized(tiny, reference)[0] == 32
    machine.seconds[64] = ConfigError("the network needs 9 GB")
    assert _sized(tiny, reference)[0] == 32
    machine.tried, machine.held = [], 1001
    assert _sized(tiny, reference)[0] == 16
    assert machine.tried == [16]
    machine.held = 1000
    assert _sized(tiny, reference)[0] == 32
    machine.seconds = {16: ConfigError("no layer")}
    with pytest.raises(ConfigError, match="no layer"):
        _sized(tiny, reference)


def test_sizes_go_with_the_data_and_the_parts_of_a_batch(tiny, reference, machine):
    machine.seconds = dict.fromkeys([16, 32, 64, 128], 1e-3)
    assert _sized(tiny, reference, "train.accumulate=32")[0] == 128
    assert machine.tried == [32, 64, 128]
    machine.tried = []
    assert _sized(tiny, reference, "data.validation=0.5")[0] == 64
    assert machine.tried == [16, 32, 64]
    with pytest.raises(ConfigError, match=r"from 16 to 4096, of which none goes with 168 training"):
        _sized(tiny, reference, "train.accumulate=3")

    def stopped():
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        _sized(tiny, reference, check=stopped)


def test_a_number_is_left_as_it_is(tiny, reference, machine):
    config = tiny("data.batch_size=20")
    assert batch_size.sized(config, "x", reference, "root", int, print, print) is config
    begun = tiny("data.batch_size=48")
    assert settled(tiny(AUTO), begun).data.batch_size == 48
    assert settled(config, begun).data.batch_size == 20
    with pytest.raises(ConfigError, match=r"^data.batch_size: auto is chosen when a training beg"):
        check_declared(tiny(AUTO))


def test_auto_is_written_as_it_is_read(tiny):
    config = tiny(AUTO)
    assert config.data.batch_size == 0
    assert config.model_dump()["data"]["batch_size"] == "auto"
    assert parse_config(effective_yaml(config), "x") == config
    assert load_config(config.model_dump(), {"data.batch_size": 8}).data.batch_size == 8
    for wrong in (0, -1, "Auto"):
        with pytest.raises(ConfigError, match=r"expected a number of at least 1, or auto"):
            tiny(f"data.batch_size={wrong}")


def test_a_run_has_the_number_that_was_chosen(tiny, machine, tmp_path, monkeypatch):
    machine.seconds = {16: 1.0, 32: 0.5, 64: 2.0}
    how = {"device": "numpy", "overrides": [AUTO], "runs_dir": tmp_path}
    config = tiny("train={max_steps: 2}")
    done = train(config, **how)
    chosen = parse_config((done.run / "config.yaml").read_text(), "x").data.batch_size
    assert chosen == 32
    machine.seconds = {16: 0.1, 32: 2.0}
    again = train(config, resume=True, **{**how, "overrides": [AUTO, "train.max_steps=4"]})
    assert (again.run, again.step) == (done.run, 4)


@pytest.mark.parametrize(("held", "sizes"), [(0, [16, 32, 64]), (32, [16, 32])])
def test_a_data_set_is_read_where_that_says_how_large_it_is(tmp_path, machine, held, sizes):
    """Of 80 pictures 16 are for testing; those for validation are others, or among the rest."""
    for part, each in {"train": 40, **({"val": 5} if held == 0 else {})}.items():
        for name in "ab":
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(each):
                pixels = np.full((8, 8), number + 50 * (name == "b"), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{part}-{number}.png")
    folder = {"train": str(tmp_path / "train"), "size": 8, "mode": "grey"}
    folder |= {"validation": str(tmp_path / "val")} if held == 0 else {}
    config = {
        "data": {"dataset": {"image_folder": folder}, "batch_size": "auto"},
        "layers": ["flatten", {"dense": {"units": 2}}],
        "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"max_steps": 1},
    }
    config["data"] |= {} if held == 0 else {"validation": held}
    machine.seconds = {16: 1.0, 32: 0.5, 64: 0.25}
    train(config, device="numpy", runs_dir=tmp_path / "runs")
    assert machine.tried == sizes


def test_a_group_has_one_number_for_all(tiny, machine, tmp_path):
    machine.seconds = {16: 1.0, 32: 0.5, 64: 2.0}
    how = {"device": "numpy", "overrides": [AUTO], "runs_dir": tmp_path}
    config = tiny("train={max_steps: 1}")
    path = train_group(config, seeds=2, **how).path
    assert machine.tried == [16, 32, 64]
    assert parse_config(read_group(path).config, "x").data.batch_size == 32
    machine.seconds = {16: 0.1, 32: 2.0}
    more = train_group(config, seeds=3, resume=True, **how)
    assert more.finished == 3
    for run in more.runs:
        config = parse_config((path / run / "config.yaml").read_text(), "x")
        assert config.data.batch_size == 32
    assert not (path / "batch-size.lock").exists()
