"""``dnnstack compare`` of two checkpoints: text, JSON, mistakes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.reports.compare_text import as_text
from dnnstack.training.groups.comparison import Comparison
from dnnstack.training.inference.evaluate import Evaluation
from dnnstack.training.inference.intervals import mcnemar

Run = Callable[..., subprocess.CompletedProcess[str]]
FILES = [f"runs/tiny/checkpoints/step-{step}.safetensors" for step in (13, 26)]


def test_two_checkpoints(run_in, trained):
    done = run_in(trained, "compare", *FILES, "--device", "numpy", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    names = ("both", "only_first", "only_second", "neither")
    both, first, second, neither = (found[name] for name in names)
    assert both + first + second + neither == found["count"] == 100
    # What each network alone gets right is what ``eval`` counts.
    for file, network, right in zip(FILES, found["networks"], (first, second), strict=True):
        alone = json.loads(run_in(trained, "eval", "--json", "--device", "numpy", "--no-plots",
                                  "--checkpoint", file).stdout)  # fmt: skip
        assert network["correct"] == alone["correct"] == both + right
        assert network["loss"] == alone["loss"]
    assert found["difference"] == (first - second) / 100
    assert found["mcnemar_p"] == mcnemar(first, second)
    low, high = found["difference_interval"]
    assert low < found["difference"] < high
    text = run_in(trained, "compare", *FILES, "--device", "numpy").stdout.splitlines()
    assert max(map(len, text)) <= 80
    assert f"only the second      {second}" in text
    assert any(line.startswith("McNemar's test       p = ") for line in text)


@pytest.mark.parametrize(
    ("first", "shown"),
    [(3, "p = 0.250"), (40, "p = 1.8e-12"), (1400, "p < 1e-300"), (60_000, "p < 1e-300")],
)
def test_no_probability_is_shown_as_zero(first, shown):
    count = 60_000
    right, wrong = (np.array([[n, count - n], [0, 0]]) for n in (first, 0))
    one, other = (
        Evaluation(Path(name), "digits", "test", ("a", "b"), 0.5, confusion, {}, ())
        for name, confusion in (("a", right), ("b", wrong))
    )
    found = Comparison(one, other, 0, first, 0, count - first)
    assert f"McNemar's test       {shown}: chance" in as_text(found)
    assert f", {shown}>" in repr(found)
