"""``dnnstack config``: the effective config and the schema."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from dnnstack.configs import load_config

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("name", ["digits", "lenet", "lenet5", "mlp"])
def test_the_output_is_an_equal_config(run, tmp_path, name):
    done = run("config", "--config", f"{name}.yaml", "--set", "train.epochs=3")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "mine.yaml").write_text(done.stdout, encoding="utf-8")
    mine = load_config(tmp_path / "mine.yaml").config
    assert mine == load_config(f"{name}.yaml", ["train.epochs=3"]).config
    assert "evaluation_batch_size" in done.stdout


def test_the_schema_is_json(run):
    done = run("config", "--schema")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert set(found["required"]) == {"data", "layers", "optimizer", "train"}
    # For people, too: a line for each key.
    assert done.stdout == f"{json.dumps(found, indent=2)}\n"
