"""Integers that are too large: one line, with the key that is to blame, on the CPU's backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import Interrupted
from dnnstack.common.options import options_of
from dnnstack.configs import load_config
from dnnstack.configs.schema.layers import NESTED
from dnnstack.layers.build import LAYERS
from dnnstack.training import network_size, plan
from dnnstack.training.loop import Loop

from ..support.declared import least_options
from ..support.stored import beside, cases

HUGE = (10**9, 2**31 - 1, 10**20)
CONFIG = beside(__file__, "huge_numbers_config.yaml")
OPTIONS = [
    (kind, each.name)
    for kind, made in LAYERS.items()
    for each in options_of(made)
    if kind not in NESTED
]


@pytest.fixture
def here(cache, tmp_path, monkeypatch):
    """An empty folder on a machine with little memory, so that a test that fails takes little."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    for module in (network_size, plan):
        monkeypatch.setattr(module, "main_memory", lambda: 1 << 27)
    return tmp_path


def said(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], device: str = "numpy"
) -> tuple[int, str]:
    status = main((*words, "--device", device))
    return status, capsys.readouterr().err


def with_layer(here: Path, layer: str) -> tuple[str, ...]:
    (here / "x.yaml").write_text(CONFIG.replace("LAYER", layer), "utf-8")
    return ("train", "--quiet", "--config", "x.yaml")


@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize(("kind", "option"), OPTIONS)
def test_any_option_of_any_layer(kind, option, device, here, capsys):
    # What is refused before a device is asked is the same on both.
    for number in HUGE if device == "numpy" else HUGE[1:2]:
        options = {**least_options(LAYERS[kind]), option: number}
        written = ", ".join(f"{key}: {value}" for key, value in options.items())
        status, text = said(capsys, with_layer(here, f"{kind}: {{{written}}}"), device)
        # A factor of 2^31 is a number like others, with which training diverges.
        if status == 0 or "not finite" in text:
            continue
        assert status == 1
        (line,) = text.splitlines()
        assert line.startswith("dnnstack: error: x.yaml:6:"), line
        assert "batch_size" not in line


@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize(("layer", "key"), cases(__file__, "the_key_and_its_place_are_named_1"))
def test_the_key_and_its_place_are_named(layer, key, device, here, capsys):
    number = 2**31 - 1
    words = with_layer(here, layer.replace("N", str(number)))
    status, text = said(capsys, words, device)
    assert status == 1
    (line,) = text.splitlines()
    assert line.startswith(("dnnstack: error: x.yaml:6:", "dnnstack: error: x.yaml:7:")), line
    assert key.replace("N", str(number)) in line, line
    assert "batch_size" not in line
    status, text = said(capsys, ("explain", *words[2:]), device)
    assert (status, text.splitlines()) == (1, [line])


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif not path.startswith("layers"):
        yield path


@pytest.mark.parametrize("number", HUGE)
def test_any_other_key(number, here, capsys, monkeypatch):
    def stopped(loop: Loop, *given: object) -> None:
        raise Interrupted("the training begins")

    monkeypatch.setattr(Loop, "run", stopped)
    words = with_layer(here, "relu: {}")
    keys = list(leaves(load_config(here / "x.yaml").config.model_dump()))
    keys += ["train.epochs", "data.dataset.strokes.train_count", "optimizer.momentum"]
    assert len(keys) > 30
    for key in keys:
        status, text = said(capsys, (*words, "--set", f"{key}={number}"))
        assert status in (0, 1), key
        lines = text.splitlines()
        assert len(lines) <= 1, key
        if status == 1:
            assert lines[0].startswith("dnnstack: error: "), key
            assert key.rpartition(".")[2] in lines[0], (key, lines)


@pytest.mark.parametrize(
    ("layer", "blamed"),
    [
        ("{flatten: {}}, {dense: {units: 9000}}", True),
        ("{conv2d: {filters: 9, kernel_size: 3}}, flatten", False),
    ],
)
def test_memory_that_runs_out_is_blamed_on_what_takes_most(
    layer, blamed, here, capsys, monkeypatch
):
    def full(loop: Loop, *given: object) -> None:
        raise MemoryError("9 GiB")

    monkeypatch.setattr(Loop, "run", full)
    text = CONFIG.replace("  - LAYER\n  - flatten\n", "")
    text = text.replace("layers:\n", f"layers: [{layer}, {{dense: {{units: 10}}}}]\n")
    (here / "x.yaml").write_text(text.replace("  - dense: {units: 10}\n", ""), "utf-8")
    status, line = said(capsys, ("train", "--quiet", "--config", "x.yaml"))
    assert status == 1
    assert ("layer 'dense_1': with units: 9000" in line) == blamed
    assert ("lower data.batch_size" in line) != blamed
