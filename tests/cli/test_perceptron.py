"""The perceptron as a person trains it: what the end says, and the exit status."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

Run = Callable[..., CompletedProcess[str]]
TRAIN = ("train", "--config", "perceptron-nand.yaml", "--device", "numpy")
XOR = ("--set", "data.dataset.table.targets=[0,1,1,0]")


def test_nand_converges(run):
    done = run(*TRAIN, status=0)
    assert "goal        reached at step 24 (epoch 6.00): converged" in done.stdout.splitlines()
    assert "training    loss 0.0000, accuracy 100.00%" in done.stdout
    found = run("eval", "--json", "--device", "numpy", status=0)
    assert '"accuracy": 1.0' in found.stdout
    text = run("eval", "--device", "numpy").stdout
    assert "on table, split test: 4 rows\n" in text
    assert "class  rows  right" in text
    same = run("compare", "perceptron-nand", "perceptron-nand", "--device", "numpy").stdout
    assert "on table, split test: 4 rows\n" in same
    refused = run("predict", "some.png", "--device", "numpy", status=1)
    assert "name another run with --run (dnnstack runs lists them)" in refused.stderr


def test_xor_does_not_and_says_so(run):
    done = run(*TRAIN, *XOR, status=3)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "goal        not reached: has not converged" in lines
    assert any(line.startswith("finished    at step 400 of 400 ") for line in lines)
    # All the same it is a finished run, saved and listed.
    assert run("runs").stdout.splitlines()[1].split()[:2] == ["perceptron-nand", "finished"]


def test_going_on_after_convergence_says_that_it_is_done(run):
    assert run(*TRAIN).returncode == 0
    again = run(*TRAIN, "--resume", status=0)
    assert "training has already reached its goal" in again.stdout + again.stderr


def test_a_hidden_layer_learns_xor(run):
    done = run("train", "--config", "mlp-xor.yaml", "--device", "numpy", status=0)
    assert "converged" in done.stdout


def test_a_threshold_before_another_loss_is_refused(run):
    done = run(*TRAIN, "--set", "loss=mse", status=1)
    assert "layer 'heaviside_1' (heaviside) has no gradient, so 'mse' cannot train" in done.stderr
    assert "'loss: perceptron' with 'heaviside' as the last layer" in done.stderr


def test_explain_shows_the_calls_of_im2col(run):
    """Unrolling, the matrix product and the way back, in the place of a convolution."""
    change = ("--set", "layers.conv2d_1.algorithm=im2col")
    done = run("explain", "--config", "tiny.yaml", "--device", "numpy", *change, status=0)
    for word in ("Im2col", "MatMul", "Col2im"):
        assert word in done.stdout
    assert "Conv2d" not in done.stdout
