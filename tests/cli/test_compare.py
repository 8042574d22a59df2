"""``dnnstack compare`` of two checkpoints: text, JSON, mistakes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.many.comparison import Comparison
from dnnstack.reports.compare_text import as_text
from dnnstack.training.inference.evaluate import Evaluation

Run = Callable[..., subprocess.CompletedProcess[str]]
FILES = [f"runs/tiny/checkpoints/step-{step}.safetensors" for step in (13, 26)]


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
