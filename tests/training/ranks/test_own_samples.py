"""Ranks that go on where pictures have changed take the samples that rank 0 names."""

from __future__ import annotations

import shutil

from ...support.picture_folders import paint
from ...support.ranks import bits, needs_launcher, trained, trained_alone
from ...support.stored import beside

pytestmark = needs_launcher
CONFIG = beside(__file__, "own_samples_config.yaml")
ROWS = """\
name: own
data:
  dataset: {csv: {train: rows.csv, kind: numbers, targets: y}}
  batch_size: 8
  validation: 4
layers: [dense: {units: 3}, tanh, dense: {units: 1}]
loss: mse
"""
LONGER = ("--config", "own.yaml", "--set", "train.epochs=4", "--resume")


def test_ranks_take_the_samples_of_the_run(tmp_path):
    (tmp_path / "own.yaml").write_text(CONFIG)
    for seed in range(24):
        folder = tmp_path / ("pics" if seed < 20 else "unseen")
        paint(folder / "bc"[seed % 2] / f"{seed:02}.png", seed)
    run = tmp_path / "runs" / "own"
    trained_alone(tmp_path, "--config", "own.yaml")
    shutil.copytree(run, tmp_path / "copy")
    trained_alone(tmp_path, *LONGER)
    wanted = bits(run, 8)
    shutil.rmtree(run)
    (tmp_path / "copy").rename(run)
    # Labels and places of all samples are others with a class in front.
    for folder in ("pics", "unseen"):
        paint(tmp_path / folder / "a" / "0.png", 99)
    refused = trained(tmp_path, 2, *LONGER)
    assert refused.returncode == 1
    assert "1 added: a/0.png" in refused.stderr
    done = trained(tmp_path, 2, *LONGER, "--same-samples")
    assert done.returncode == 0, done.stderr
    assert bits(run, 8) == wanted


def test_ranks_read_a_table_by_the_columns_of_the_run(tmp_path):
    """A category and some rows are gone: other inputs, and targets that are no whole numbers."""
    net = CONFIG[CONFIG.index("optimizer:") :]
    (tmp_path / "own.yaml").write_text(ROWS + net)
    rows = [f"{seed * 7 % 11},{'abc'[seed % 3]},{seed % 5 / 7:.4f}" for seed in range(40)]
    table, run = tmp_path / "rows.csv", tmp_path / "runs" / "own"
    table.write_text("\n".join(["x,c,y", *rows]))
    trained_alone(tmp_path, "--config", "own.yaml")
    shutil.copytree(run, tmp_path / "copy")
    table.write_text("\n".join(["x,c,y", *(row for row in rows[1:] if ",c," not in row)]))
    same = (*LONGER[:2], "--set", "train.epochs=9", "--resume", "--same-samples")
    trained_alone(tmp_path, *same)
    wanted = (run / "metrics.csv").read_bytes()
    shutil.rmtree(run)
    (tmp_path / "copy").rename(run)
    done = trained(tmp_path, 2, *same)
    assert done.returncode == 0, done.stderr
    assert (run / "metrics.csv").read_bytes() == wanted
