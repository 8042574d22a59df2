"""A run in a precision that another device has not is resumed, evaluated and used there in fp32."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.configs import parse_config
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from PIL import Image

Run = Callable[..., subprocess.CompletedProcess[str]]
EPOCH = 13


@pytest.mark.parametrize(
    ("device", "precision"), [("cpu", "tf32"), ("numpy", "tf32"), ("numpy", "bf16")]
)
def test_a_precision_of_another_device(run, tmp_path, device, precision):
    here = ("--device", device, "--threads", "1")
    train = ("train", "--config", "tiny.yaml", *here)
    notice = f"dnnstack: warning: device '{device}' does not have precision '{precision}': "
    notice += "computing in fp32"
    assert run(*train, "--set", "train.epochs=1").returncode == 0
    # Training on another device goes on from here, as far as this one can tell.
    config = tmp_path / "tiny.yaml"
    config.write_text(f"{config.read_text('utf-8')}run: {{precision: {precision}}}\n", "utf-8")

    refused = [run(*train), run(*train, "--set", f"run.precision={precision}", "--resume")]
    for done in refused:
        assert done.returncode == 1, done.stderr
        assert f"error: precision '{precision}': " in done.stderr
        assert "computing in fp32" not in done.stderr

    resumed = run(*train, "--resume", status=0)
    assert resumed.stderr.count(notice) == 1
    saved = read_checkpoint(
        tmp_path / f"runs/tiny/checkpoints/step-{2 * EPOCH}.safetensors"
    ).provenance
    assert parse_config(saved.config, "saved").run.precision == precision
    assert saved.tuning is not None
    assert saved.tuning.environment["precision"] == "fp32"

    evaluated = run("eval", "--run", "tiny", "--json", "--no-plots", *here, status=0)
    assert evaluated.stderr.count(notice) == 1
    assert json.loads(evaluated.stdout)["count"] == 100

    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(tmp_path / "line.png")
    predicted = run("predict", "line.png", "--run", "tiny", *here, status=0)
    assert predicted.stderr.count(notice) == 1


def test_a_precision_that_this_device_has_is_kept(run, tmp_path):
    train = ("train", "--config", "tiny.yaml", "--device", "numpy")
    assert run(*train, "--set", "train.epochs=1").returncode == 0
    resumed = run(*train, "--set", "run.precision=fp32", "--resume", status=0)
    assert "computing in" not in run("eval", "--device", "numpy").stderr + resumed.stderr
