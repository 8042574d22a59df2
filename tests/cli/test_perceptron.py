"""The perceptron as a person trains it: what the end says, and the exit status."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

Run = Callable[..., CompletedProcess[str]]


def test_a_hidden_layer_learns_xor(run):
    done = run("train", "--config", "mlp-xor.yaml", "--device", "numpy", status=0)
    assert "converged" in done.stdout
