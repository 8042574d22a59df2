"""What ``compress`` prints beside its tables: stages, files, and the command that goes on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from dnnstack.cli.main import main

from .conftest import TINY

STAGES = "stages: [{prune: {keep: {'*.weight': 0.5}}, train: {epochs: 1, log_every: 5}}]\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, cache):
    """With a trained network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    Path("tiny.yaml").write_text(TINY)
    Path("small stages.yaml").write_text(STAGES)
    assert main(["train", "--config", "tiny.yaml", "--device", "numpy", "-q"]) == 0
    return tmp_path


def test_a_stage_that_ended_with_what_is_damaged_is_not_replaced_by_an_older_one(folder, capsys):
    words = ["compress", "--config", "small stages.yaml", "--device", "numpy", "-q"]
    words += ["--set", "stages.0.train.epochs=2"]
    assert main(words) == 0
    place = Path("runs/tiny-compressed")
    saved = sorted((place / "1-prune" / "checkpoints").glob("*.safetensors"))
    assert len(saved) > 1
    saved[-1].write_bytes(b"")
    capsys.readouterr()
    assert main([*words, "--resume", str(place)]) == 1
    said = capsys.readouterr().err
    assert f"what this stage ended with cannot be used ({saved[-1]}: is damaged" in said
    assert "using" not in said


def test_the_files_of_a_sensitivity_are_named_from_here(folder, capsys, monkeypatch):
    words = ["compress", "--sensitivity", "--device", "numpy"]
    assert main(words) == 0
    out = capsys.readouterr().out
    for name in ("sensitivity.json", "sensitivity.png"):
        assert f"written     runs/tiny/{name}\n" in out
    monkeypatch.chdir("runs/tiny/checkpoints")
    checkpoint = max(Path().glob("*.safetensors"))
    assert main([*words, "--checkpoint", str(checkpoint)]) == 0
    assert "written     ../sensitivity.json\n" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_with_the_command_that_goes_on(folder, command, environment, run_in, number):
    changes = ["--set", "stages.0.train.epochs=100000", "--device", "numpy", "--threads", "1"]
    words = ["compress", "tiny", "--config", "small stages.yaml", *changes]
    place = Path("runs/tiny-compressed")
    with subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        log, until = place / "1-prune" / "log.jsonl", time.monotonic() + 120
        while not (log.exists() and b'"train"' in log.read_bytes()):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(process.pid, number)
        text = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number
    last = text.splitlines()[-1]
    assert last.startswith("resume with dnnstack compress tiny --config 'small stages.yaml' --set ")
    assert last.endswith(f" --device numpy --threads 1 --resume {place}")
    given = shlex.split(last.removeprefix("resume with dnnstack "))
    # Other stages are refused, which says that the folder was found, and trains nothing.
    again = run_in(folder, *[each.replace("=100000", "=1") for each in given], status=1)
    assert str(place) in again.stderr
