"""Command lines run under the shim, each in a forked child of one warm process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..support.stored import beside
from .calls import EVERY, Call, kinds, read_trace

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
HERE = Path(__file__).parent
NET = beside(__file__, "net.yaml")


@dataclass(frozen=True)
class Ended:
    """A command after its end; ``status`` is negative for a signal's number."""

    status: int
    out: str
    err: str
    calls: list[Call]

    @property
    def numbers(self) -> dict[int, Call]:
        """The calls that count."""
        return {call.number: call for call in self.calls if call.number}


Play = Callable[..., Ended]


@pytest.fixture(scope="module")
def quick_folder():
    """A folder in memory, if there is one: thousands of fsyncs of a disk take long."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dnnstack-faults-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library, built by the host's compiler."""
    if COMPILER is None:
        pytest.skip("no C compiler: neither cc nor gcc nor clang is on the path")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    options = ("-O1", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    command = [COMPILER, *options, "-o", str(library), str(HERE / "shim.c"), "-ldl", "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return library


@pytest.fixture(scope="session")
def play(shim, tmp_path_factory):
    """Run a command line in ``<root>/work``, under a fault or none; with ``data`` the trace has it.

    ``out``: a file below the root for standard output.
    """
    home = tmp_path_factory.mktemp("driver")
    own = ("DNNSTACK_", "OPENBLAS_", "PYTHONUNBUFFERED")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    environment = {
        **kept,
        "LD_PRELOAD": str(shim),
        "DNNSTACK_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(HERE / "driver.py")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def ask(job: dict[str, Any]) -> int:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        def run(
            root: Path,
            *argv: str,
            fault: dict[str, int] | None = None,
            data: bool = False,
            out: Path | None = None,
            answer: str = "",
        ) -> Ended:
            nothing = {"number": 0, "action": 0, "error": 0, "lasting": 0, "kinds": kinds(EVERY)}
            job = {
                "argv": argv,
                "cwd": str(root / "work"),
                "root": str(root),
                "out": str(out or home / "out"),
                "err": str(home / "err"),
                "trace": str(home / "trace"),
                "fault": fault or nothing,
                "data": data,
                "answer": answer,
            }
            code = os.waitstatus_to_exitcode(ask(job))
            texts = (Path(job[name]).read_text("utf-8") for name in ("out", "err"))
            return Ended(code, *texts, read_trace(home / "trace"))

        make_root(home / "warm")
        warm = [
            ["train", "--config", "net.yaml", "--device", "numpy", "--threads", "1"],
            ["eval", "--device", "numpy", "--threads", "1"],
            ["predict", "a.png", "--csv", "--device", "numpy", "--threads", "1"],
            ["new", "photos", "--output", "new.yaml"],
        ]
        told = {name: str(home / name) for name in ("out", "err")}
        place = {"cwd": str(home / "warm/work"), "root": str(home / "warm")}
        assert ask({"argv": warm, "warm": True, "trace": "", **place, **told}) == 0
        yield run
        server.stdin.close()


OWN = {
    "photos": "image_folder: {train: photos, test_fraction: 0.4, size: 8, mode: grey}",
    "rows": "csv: {train: rows.csv, targets: y}",
}
OWN_NET = """\
name: net
data: {dataset: {DATA}, batch_size: 2, validation: 0, normalize: measured}
layers: [flatten, dense: {units: 2}]
optimizer: {type: sgd, lr: 0.1}
train: {max_steps: 5, log_every: 2}
checkpoint: {every_steps: 2, keep: 2}
"""


def make_root(root: Path) -> None:
    """A folder with a config, two pictures, a folder of them, and a file of somebody else."""
    from PIL import Image, ImageDraw

    work = root / "work"
    work.mkdir(parents=True)
    (work / "net.yaml").write_text(NET, encoding="utf-8")
    for name, data in OWN.items():
        (work / f"{name}.yaml").write_text(OWN_NET.replace("DATA", data), encoding="utf-8")
    rows = (f"{n},{'uvw'[n % 3]},{'yn'[n % 2]}\n" for n in range(20))
    (work / "rows.csv").write_text(f"a,b,y\n{''.join(rows)}", encoding="utf-8")
    (work / "stranger.txt").write_text("not ours\n", encoding="utf-8")
    for name, line in (("a", (30, 8, 30, 52)), ("b", (10, 10, 50, 50))):
        picture = Image.new("L", (60, 60), 255)
        ImageDraw.Draw(picture).line(line, fill=0, width=6)
        picture.save(work / f"{name}.png")
        for number in range(2):
            (work / "photos" / name).mkdir(parents=True, exist_ok=True)
            small = picture.resize((8, 8))
            # Unlike all others, as whether two are alike is found by reading them.
            small.putpixel((7, 7), number)
            small.save(work / "photos" / name / f"{number}.png")
