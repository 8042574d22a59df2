"""What a person does wrong: exit status 1, no traceback, what and where and what to do next."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

_TINY = ("--config", "tiny.yaml", "--device", "numpy")
_CHECKPOINT = "runs/tiny/checkpoints/step-26.safetensors"


@pytest.mark.parametrize(
    ("arguments", "pieces"),
    [
        pytest.param(
            ("train", "--config", "digit.yaml"),
            ("digit.yaml: no such file", "did you mean 'digits.yaml'?", "lenet.yaml"),
            id="unknown config",
        ),
        pytest.param(
            ("train", *_TINY, "--set", "optimizer.learning_rate=1"),
            ("--set optimizer.learning_rate=1", "unknown key"),
            id="unknown key in --set",
        ),
        pytest.param(
            ("train", "--config", "typo.yaml"),
            ("typo.yaml:2:", "batchsize", "did you mean 'batch_size'?", "typo.yaml:4:", "filter"),
            id="two typos in the file",
        ),
        pytest.param(
            ("train", "--config", "flat.yaml", "--device", "numpy"),
            ("flat.yaml: layer 2 'dense_1' (dense)", "(2, 24, 24)", "insert 'flatten' before it"),
            id="missing flatten",
        ),
        pytest.param(
            ("explain", "--config", "flat.yaml", "--device", "numpy"),
            ("flat.yaml: layer 2 'dense_1' (dense)", "insert 'flatten' before it"),
            id="missing flatten, explained",
        ),
        pytest.param(
            ("train", *_TINY[:2], "--device", "cuda"),
            ("device 'cuda'", "use --device cpu"),
            id="no cuda",
        ),
        pytest.param(
            ("train", "--config", "lenet.yaml", "--device", "numpy", "--data-dir", "data"),
            ("MNIST is not in data/mnist", "train-images-idx3-ubyte.gz", "--config digits.yaml"),
            id="no MNIST",
        ),
        pytest.param(
            ("train", *_TINY, "--resume"),
            ("runs: no run of 'tiny' to resume", "without --resume"),
            id="nothing to resume",
        ),
        pytest.param(
            ("train", *_TINY, "--resume", "elsewhere"),
            ("elsewhere: no such run",),
            id="no such run to resume",
        ),
        pytest.param(
            ("train", *_TINY, "--set", "data.batch_size=1000"),
            ("data.batch_size: 1000", "416"),
            id="batch larger than the set",
        ),
        pytest.param(("eval",), ("no run yet", "dnnstack train --config digits.yaml"), id="no run"),
        pytest.param(
            ("predict", "x.png"), ("no run yet", "dnnstack train --config digits.yaml"), id="no net"
        ),
        pytest.param(("eval", "--run", "lenet"), ("lenet: no such run",), id="no such run"),
        pytest.param(
            ("eval", "--checkpoint", "flat.yaml"),
            ("flat.yaml", "no checkpoint of dnnstack"),
            id="not a checkpoint",
        ),
        pytest.param(
            ("eval", "--checkpoint", "."), ("is a folder", "--run"), id="folder as checkpoint"
        ),
        pytest.param(
            ("config", "--config", "typo.yaml"), ("typo.yaml:2:", "batchsize"), id="config"
        ),
    ],
)
def test_without_a_run(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], pieces: tuple[str, ...]
) -> None:
    flat = "data: {dataset: strokes}\nlayers:\n  - conv2d: {filters: 2, kernel_size: 5}\n"
    rest = "  - dense: {units: 10}\noptimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    (tmp_path / "flat.yaml").write_text(flat + rest, encoding="utf-8")
    typo = (flat + rest).replace("{dataset: strokes}", "\n  {dataset: strokes, batchsize: 3}")
    (tmp_path / "typo.yaml").write_text(typo.replace("filters", "filter"), encoding="utf-8")
    _check(run(*arguments), pieces)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "pieces"),
    [
        pytest.param(
            ("train", *_TINY, "--set", "layers.conv2d.filters=5", "--resume"),
            (_CHECKPOINT, "filters: 4 -> 5"),
            id="resume of another network",
        ),
        pytest.param(
            ("train", *_TINY, "--resume", "flat.safetensors"),
            ("flat.safetensors", "no checkpoint of dnnstack"),
            id="resume of no checkpoint",
        ),
        pytest.param(
            ("eval", "--checkpoint", "flipped.safetensors"),
            ("flipped.safetensors", "damaged", "SHA-256"),
            id="flipped byte",
        ),
        pytest.param(
            ("eval", "--data", "mnits"), ("'mnits'", "did you mean 'mnist'?"), id="unknown data"
        ),
        pytest.param(
            ("eval", "--data", "mnist", "--data-dir", "data"),
            ("MNIST is not in data/mnist", "t10k-images-idx3-ubyte.gz"),
            id="data not there",
        ),
        pytest.param(("eval", "--device", "cuda"), ("device 'cuda'",), id="no cuda"),
        pytest.param(
            ("predict", "flat.safetensors"),
            ("flat.safetensors: is not a picture of a known format", "PNG"),
            id="not a picture",
        ),
        pytest.param(("predict", "blank.png"), ("blank.png:",), id="blank picture"),
    ],
)
def test_with_a_run(
    run_in: Run, trained: Path, arguments: tuple[str, ...], pieces: tuple[str, ...]
) -> None:
    from PIL import Image

    (trained / "flat.safetensors").write_bytes(b"no tensors at all")
    data = bytearray((trained / _CHECKPOINT).read_bytes())
    data[-1] ^= 1
    (trained / "flipped.safetensors").write_bytes(data)
    Image.new("L", (50, 50), 255).save(trained / "blank.png")
    _check(run_in(trained, *arguments), pieces)


def test_no_validation_samples(run: Run) -> None:
    done = run("train", *_TINY, "--set", "data.validation=0", "--set", "train={max_steps: 1}")
    assert done.returncode == 0, done.stderr
    _check(run("eval", "--split", "validation"), ("without validation samples", "--split test"))


def _check(done: subprocess.CompletedProcess[str], pieces: tuple[str, ...]) -> None:
    errors = done.stderr[done.stderr.index("dnnstack: error: ") :]
    assert (done.returncode, errors.count("dnnstack: error: ")) == (1, 1), done.stderr
    assert "Traceback" not in done.stderr
    for piece in pieces:
        assert piece in errors
