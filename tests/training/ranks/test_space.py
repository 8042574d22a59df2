"""Layers whose rows lie on the ranks: the same training as by one rank, but for roundings."""

from __future__ import annotations

import pytest
from dnnstack.cli.main import main
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.share import shared_out

from ...support.ranks import SGD, needs_launcher, trained
from ...support.stored import beside, cases
from .test_split import BACKENDS, GROUPED, assert_near, configured, states

HALVES = "\n" + beside(__file__, "space_halves.yaml")


@pytest.mark.parametrize("backend", BACKENDS)
def test_bands_on_the_ranks_change_roundings_alone(backend):
    """Halos above, below and beyond the neighbour, bands of unequal sizes."""
    config, device = configured(HALVES + GROUPED), BACKENDS[backend]()
    want, right = states(config, device, 1)
    for ranks in (2, 3, 4):
        got, sums = states(config, device, ranks)
        assert_near(got, want, 2e-6)
        assert abs(sums - right).max() <= 1e-5 * abs(right).max()


def test_a_batch_in_one_part_stays_in_one_part():
    """So batch norm behind the bands sees the batch: the step of one process, but for roundings."""
    given = configured(HALVES.replace(", accumulate: 2", "") + SGD)
    config, chosen = shared_out(given, 2, None)
    assert (config.train.accumulate, chosen) == (1, 0)
    device = BACKENDS["numpy"]()
    want, _ = states(config, device, 1, steps=1)
    got, _ = states(config, device, 2, steps=1)
    assert_near(got, want, 1e-6)


@pytest.mark.parametrize(
    ("layer", "ranks"),
    [
        ("conv2d: {filters: 4, kernel_size: 2, stride: 2, padding: same", 4),
        ("max_pool2d: {pool_size: 3, ceil_mode: true", 5),
    ],
)
def test_windows_below_the_picture_see_no_row_of_a_band(layer, ranks):
    """13 rows, of which every rank has what its windows need: the last one also what lies below."""
    split = "parallel: {split: space}"
    text = HALVES[: HALVES.index("layers:")] + (
        f"layers: [conv2d: {{filters: 4, kernel_size: 4, stride: [2, 1], {split}}}, relu, "
        f"{layer}, {split}}}, flatten, dense: {{units: 10}}, softmax]\n"
        "loss: cross_entropy\ntrain: {max_steps: 2}\noptimizer: {type: sgd, lr: 0.05}\n"
    )
    config, device = configured(text), BACKENDS["numpy"]()
    want, _ = states(config, device, 1, steps=1)
    got, _ = states(config, device, ranks, steps=1)
    assert_near(got, want, 1e-6)


@needs_launcher
def test_a_checkpoint_of_bands_goes_on_anywhere(tmp_path, monkeypatch):
    """By two ranks to step 3, then by one, as one process would have done it."""
    (tmp_path / "net.yaml").write_text(HALVES + SGD)
    given = ("--config", "net.yaml", "--set", "train.max_steps=3")
    done = trained(tmp_path, 2, *given)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    assert main(["train", *given, "--set", "name=alone", "--quiet"]) == 0
    both, alone = (
        read_checkpoint(tmp_path / "runs" / name / "checkpoints" / "step-3.safetensors")
        for name in ("net", "alone")
    )
    assert both.provenance.shared_parts == 0
    assert_near(both.arrays, alone.arrays, 2e-6)
    assert main(["train", *given[:2], "--resume", "--set", "train.max_steps=5", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("change", "said"), cases(__file__, "what_has_no_bands_is_named_with_its_place")
)
def test_what_has_no_bands_is_named_with_its_place(change, said, tmp_path, capsys):
    text = HALVES
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "net.yaml").write_text(text + SGD)
    assert main(["summary", "--config", str(tmp_path / "net.yaml"), "--ranks", "2"]) != 0
    shown = capsys.readouterr().err
    assert said in " ".join(shown.split())
    assert f"{tmp_path / 'net.yaml'}:" in shown
    assert "Traceback" not in shown
