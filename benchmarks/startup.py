"""Seconds and peak memory of starting: the help, and `train` to the end of its first step.

    python3 benchmarks/startup.py --config lenet.yaml [--device cuda]

Each figure is the median over processes of their own; the first step's is the time until its line
of the log is read. Warm: the decoded data set and the tuning are cached by an earlier start; cold:
with empty caches, also of compiled kernels (the system's file cache stays warm, and Python keeps
its bytecode). Needs the config's data (DNNSTACK_DATA).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from processes import TOOL


def measured(command: list[str], cache: Path, folder: Path, until: str = "") -> tuple[float, float]:
    """Seconds to the first line that begins with ``until``, or to the end, and peak resident MB."""
    # Python may keep its bytecode.
    environment = {key: v for key, v in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"DNNSTACK_CACHE": str(cache), "CUPY_CACHE_DIR": str(cache / "cupy")}
    environment["PYTHONUNBUFFERED"] = "1"
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    assert process.stdout is not None
    seconds = 0.0
    for line in process.stdout:
        if until and not seconds and line.startswith(until):
            seconds = time.perf_counter() - begin
    _, status, usage = os.wait4(process.pid, 0)
    seconds = seconds or time.perf_counter() - begin
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_maxrss / 1024


def show(what: str, figures: list[tuple[float, float]]) -> None:
    seconds = [s for s, _ in figures]
    print(
        f"{what:44} median {median(seconds):.3f} s, fastest {min(seconds):.3f} s, "
        f"peak {max(mb for _, mb in figures):.0f} MB, {len(figures)} starts"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--starts", type=int, default=10)
    options = parser.parse_args()
    train = [*TOOL, "train", "--config", options.config, "--device", options.device]
    train += ["--set", "train.max_steps=1", "--set", "train.log_every=1"]
    step = "step 1/"
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        show("--help", [measured([*TOOL, "--help"], cache, folder) for _ in range(options.starts)])
        caches = [folder / f"cold-{number}" for number in range(options.starts // 3)]
        cold = [measured(train, each, folder, step) for each in caches]
        show("train to the end of its first step, cold", cold)
        measured(train, cache, folder)
        warm = [measured(train, cache, folder, step) for _ in range(options.starts)]
        show("train to the end of its first step, warm", warm)
        whole = [measured(train, cache, folder) for _ in range(options.starts)]
        show("the whole: validation, checkpoint, curves", whole)


if __name__ == "__main__":
    main()
