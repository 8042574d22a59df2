"""Trainings by several ranks, as a person starts them, on pictures that the program draws."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.training.ranks.world import check_mpi, launcher
from dnnstack.training.records.formats.checkpoint import read_checkpoint

from .stored import beside

LIMIT = 280
"""Seconds for a training; one takes five on two quiet cores."""
NET = "\n" + beside(__file__, "ranks_net.yaml")
SGD = """
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01, clip_norm: 0.5,
  ema: {decay: 0.8}}
"""
MUON = """
optimizer: {type: muon, lr: 0.05, rest: {type: adam, lr: 0.01}, lookahead: {every: 3},
  swa: {start_step: 6, every_steps: 3}, groups: [
  {parameters: conv2d_1.*, freeze_after_epoch: 0.5},
  {parameters: dense_2.*, freeze_until_epoch: 0.3}]}
"""


def lacking() -> str:
    """Why ranks cannot be started here; "" if they can."""
    try:
        launcher()
        check_mpi()
    except BackendUnavailableError as error:
        return str(error)
    return ""


needs_launcher = pytest.mark.skipif(bool(lacking()), reason=lacking())


def command(
    ranks: int, *arguments: str, own_launcher: bool = False, machines: Sequence[str] = ()
) -> list[str]:
    """The words that train with so many ranks; ``own_launcher``: by the user's own mpiexec.

    ``machines``: names of as many as this one plays, whose ranks share no memory with others.
    """
    program = [sys.executable, "-m", "dnnstack.cli", "train", *arguments]
    if machines:
        each = str(ranks // len(machines))
        played = ["-launcher", "fork", "-hosts", ",".join(machines), "-ppn", each]
        return [str(launcher()), *played, "-n", str(ranks), *program]
    if own_launcher:
        return [str(launcher()), "-n", str(ranks), *program]
    return [*program, "--ranks", str(ranks)] if ranks > 1 else program


def environment(**more: str) -> dict[str, str]:
    """That of this process, without what says that it is a rank itself."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "SLURM", "OMPI"))}
    return {**kept, "DNNSTACK_OFFLINE": "1", **more}


def trained(
    folder: Path,
    ranks: int,
    *arguments: str,
    own_launcher: bool = False,
    machines: Sequence[str] = (),
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """A training that ends by itself, in this folder."""
    return subprocess.run(
        command(ranks, *arguments, own_launcher=own_launcher, machines=machines),
        cwd=folder,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def trained_alone(folder: Path, *arguments: str) -> str:
    """A training in this folder by this process, which need not be started; what it says."""
    before, said = Path.cwd(), io.StringIO()
    os.chdir(folder)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            status = main(["train", *arguments])
    finally:
        os.chdir(before)
    assert status == 0, said.getvalue()
    return said.getvalue()


def bits(run: Path, step: int, counts: bool = True) -> str:
    """A mark of all arrays of a checkpoint, and of its sums and counts.

    Without the counts where one run had ends, with validations, that another had not.
    """
    found = read_checkpoint(run / "checkpoints" / f"step-{step}.safetensors")
    state = found.state.to_json() if counts else found.state.step
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name, array in sorted(found.arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def events(run: Path, name: str) -> list[dict[str, Any]]:
    """The lines of the log of one kind."""
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


def ranks_in(folder: Path) -> dict[int, int]:
    """The processes of the ranks that run in a folder, not those that watch over them."""
    found: dict[int, int] = {}
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            told = (entry / "environ").read_bytes().split(b"\0")
            here = os.readlink(entry / "cwd") == str(folder)
        except OSError:
            continue
        for item in told:
            if here and item.startswith(b"PMI_RANK="):
                found[int(item.partition(b"=")[2])] = int(entry.name)
    return found
