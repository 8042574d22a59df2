"""What to run on a machine with two GPUs: ranks on NCCL, that they are right, and how fast.

    pip install '.[cuda13,mpi,nccl13]'
    NCCL_NVLS_ENABLE=0 python3 benchmarks/gpu_ranks.py

(``[cuda12,mpi,nccl12]`` for a CUDA 12 driver.) Each line is a check or a figure:

- a training by two ranks ends in the bits of one GPU with ``train.accumulate: 2``, captured and,
  with ``--no-graph``, call by call; also with batch norm and dropout;
- a rank that is stopped or killed ends both;
- pictures a second with a fixed batch for each GPU, two GPUs beside one; then with a fixed batch
  for both.

Data are drawn by the program. ``--quick`` leaves out the speed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import safetensors.numpy

STROKES = "data.dataset={strokes: {train_count: 25600, test_count: 1000}}"
LENET = ("--config", "digits.yaml", "--set", STROKES)
NORMED = """
seed: 3
data: {dataset: {strokes: {train_count: 25600, test_count: 1000}}, batch_size: 512,
  validation: 1000}
layers:
  - conv2d: {filters: 64, kernel_size: 3, padding: same}
  - batch_norm
  - relu
  - max_pool2d
  - conv2d: {filters: 128, kernel_size: 3, padding: same}
  - batch_norm
  - relu
  - max_pool2d
  - dropout: {rate: 0.2}
  - flatten
  - dense: {units: 10}
  - softmax
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, clip_norm: 1.0, ema: {decay: 0.9}}
train: {max_steps: 60}
"""


def words(folder: Path, name: str, *given: str) -> list[str]:
    command = [sys.executable, "-m", "dnnstack.cli", "train", "--device", "cuda"]
    return [*command, *given, "--set", f"name={name}", "--runs-dir", str(folder)]


def trained(folder: Path, name: str, *given: str) -> Path:
    """The run's folder, after training."""
    done = subprocess.run(words(folder, name, *given), capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{name}: status {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    return folder / name


def arrays(run: Path) -> dict[str, bytes]:
    path = max(run.glob("checkpoints/*.safetensors"), key=lambda path: path.stat().st_mtime)
    return {name: array.tobytes() for name, array in safetensors.numpy.load_file(path).items()}


def same_bits(folder: Path) -> None:
    (folder / "normed.yaml").write_text(NORMED)
    steps = ("--set", "train.max_steps=60", "--set", "train.epochs=null")
    nets = {"lenet": (*LENET, *steps), "normed": ("--config", str(folder / "normed.yaml"))}
    for net, given in nets.items():
        # The choices of the first are found again by the others.
        one = arrays(trained(folder, f"{net}-one", *given, "--set", "train.accumulate=2"))
        for title, more in (("captured", ()), ("--no-graph", ("--no-graph",))):
            name = f"{net}-two-{title.strip('-')}"
            two = arrays(trained(folder, name, *given, "--ranks", "2", *more))
            wrong = [key for key in one if one[key] != two.get(key)]
            print(f"bits of {net}, {title}: {f'differ in {wrong}' if wrong else 'equal'}")


def failures(folder: Path) -> None:
    longer = ("--set", "train.epochs=10000", "--set", "train.log_every=100", "--ranks", "2")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        process = subprocess.Popen(
            words(folder, f"signal-{number.name}", *LENET, *longer),
            env=dict(os.environ, DNNSTACK_RANKS_DEADLINE="3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step"):
                break
        rank = rank_of(1)
        begin = time.monotonic()
        os.kill(rank, number)
        process.communicate(timeout=120)
        seconds = time.monotonic() - begin
        print(f"{number.name} of rank 1: status {process.returncode}, {seconds:.1f} s")


def rank_of(rank: int) -> int:
    """The process id of a rank that this script started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"PMI_RANK={rank}".encode() in told and b"signal-SIG" in command:
                return int(entry.name)
    sys.exit(f"rank {rank} is not there")


def speed(folder: Path) -> None:
    for config, batch in (
        ("digits.yaml", 64),
        ("digits.yaml", 1024),
        ("cifar10-resnet9.yaml", 512),
        ("cifar10-airbench.yaml", 1024),
    ):
        given = ["--config", config, "--set", "train.max_steps=600", "--set", "train.epochs=null"]
        given += ["--set", "data.validation=0", "--set", "train.log_every=100"]
        found: dict[str, float] = {}
        for title, size, more in (
            ("one GPU", batch, ()),
            ("two, batch for each", 2 * batch, ("--ranks", "2")),
            ("two, batch for both", batch, ("--ranks", "2")),
        ):
            name = f"{config}-{batch}-{title}".replace(" ", "-").replace(",", "")
            try:
                run = trained(folder, name, *given, "--set", f"data.batch_size={size}", *more)
            except SystemExit as error:
                print(f"{config}, {batch}, {title}: {error}")
                continue
            lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
            rates = [line["images_per_second"] for line in lines if line["event"] == "train"]
            # The first line has the captures.
            found[title] = median(rates[1:])
            ratio = found[title] / found.get("one GPU", found[title])
            print(f"{config}, {batch}, {title}: {found[title]:,.0f} pictures/s, {ratio:.2f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        same_bits(folder)
        failures(folder)
        if not quick:
            speed(folder)


if __name__ == "__main__":
    main()
