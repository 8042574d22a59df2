"""What to run on a machine with two GPUs: ranks on NCCL, that they are right, and how fast.

    pip install '.[cuda13,mpi,nccl13]'
    NCCL_NVLS_ENABLE=0 python3 benchmarks/gpu_ranks.py --seconds 470

(``[cuda12,mpi,nccl12]`` for a CUDA 12 driver.) Every part has a time limit of its own and prints
each line at once, so what hangs is ended and the next part begins; what does not fit into
``--seconds`` is left out, and said to be. The parts, in this order, and what each shows:

- bits: a training by two ranks ends in the bits of one GPU with ``train.accumulate: 2``, captured
  and call by call, with batch norm and dropout, by NCCL, and after a resume on one GPU;
- speed: pictures a second on two GPUs beside one, by ranks.py;
- whole: the same with all gradients in front of the update, none beside backward;
- nccl: whole, but NCCL adds up; buckets: in four pieces, all but the last beside backward;
- failures: a rank that is killed or stopped, Ctrl-C; what was saved goes on to the same bits.

Data are drawn by the program. ``--parts bits speed`` runs these alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy
from processes import TOOL

# In the environment of all that this program starts, whoever its parent is.
MARK = ("DNNSTACK_GPU_RANKS", str(os.getpid()))
STROKES = "data.dataset={strokes: {train_count: 6400, test_count: 1000}}"
LENET = ("--config", "digits.yaml", "--set", STROKES, "--set", "data.validation=1000")
LENET = (*LENET, "--set", "train.epochs=null", "--set", "schedule=fixed")
NORMED = """
seed: 3
data: {dataset: {strokes: {train_count: 6400, test_count: 1000}}, batch_size: 256, validation: 1000}
layers: [
  {conv2d: {filters: 64, kernel_size: 3, padding: same}}, batch_norm, relu, max_pool2d,
  {dropout: {rate: 0.2}}, flatten, {dense: {units: 10}}, softmax]
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, clip_norm: 1.0, ema: {decay: 0.9}}
train: {max_steps: 60, log_every: 10}
"""
WHOLE, FOUR = ("--set", "parallel.buckets=1"), ("--set", "parallel.buckets=4")
SPEEDS = (
    *(("lenet.yaml", 64), ("lenet.yaml", 1024)),
    *(("cifar10-resnet9.yaml", 512), ("cifar10-airbench.yaml", 1024)),
)


def say(text: str) -> None:
    print(text, flush=True)


class Running:
    """A command with its output, line by line; ``told`` is set when a line holds ``awaited``."""

    def __init__(
        self, command: list[str], more: dict[str, str], awaited: str = "\0", loud: bool = False
    ) -> None:
        self.command, self.awaited, self.loud = command, awaited, loud
        self.lines: list[str] = []
        self.told = threading.Event()
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", MARK[0]: MARK[1], **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if self.loud:
                say(f"  {self.lines[-1]}")
            if self.awaited in line:
                self.told.set()

    def ended(self, seconds: float) -> bool:
        """Whether it ends within so many seconds; else it is ended, with all that it started."""
        try:
            self.process.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            say(f"  NOT DONE after {seconds:.0f} s, ended: {shlex.join(self.command[-8:])}")
            end_all()
            return False
        self._reader.join(5)
        return True


def those_left() -> list[int]:
    """The process ids of what this program has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if "=".join(MARK).encode() in told and state[0] != "Z":
                found.append(int(entry.name))
    return found


def end_all() -> None:
    """End what this program has started, however it hangs."""
    until = time.monotonic() + 8
    while (left := those_left()) and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.2)


class Bench:
    """Where runs go, and when the time is over."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder, self.device, self.rounds = folder, given.device, given.rounds
        cpu = ["--set", "run.threads=1", "--set", "run.tune=false"]
        self.options = cpu if given.device == "cpu" else []
        self.until = time.monotonic() + given.seconds
        self.part_until = self.until

    def left(self, most: float) -> float:
        """Seconds for a command; raises TimeoutError where they would not do."""
        left = min(self.part_until, self.until) - time.monotonic()
        if left < 3:
            raise TimeoutError("its time is over, what follows is left out")
        return min(most, left)

    def train(self, *given: str, awaited: str = "\0", **more: str) -> Running:
        words = [*TOOL, "train", "--device", self.device, *given, *self.options]
        return Running([*words, "--runs-dir", str(self.folder)], more, awaited)

    def trained(self, name: str, *given: str, **environment: str) -> Path | None:
        """The run's folder after training; None, and it is said why, where that failed."""
        running = self.train(*given, "--set", f"name={name}", **environment)
        if not running.ended(self.left(60)):
            return None
        if running.process.returncode:
            say(f"  {name}: status {running.process.returncode}")
            for line in running.lines[-25:]:
                say(f"    {line}")
            return None
        return self.folder / name


def newest(run: Path) -> Path:
    return max(run.glob("checkpoints/*.safetensors"), key=lambda path: int(path.stem.split("-")[1]))


def compare(title: str, one: Path | None, other: Path | None, lines: bool = True) -> None:
    """Say whether the newest checkpoints of two runs have equal bits, and their logs the lines."""
    if one is None or other is None:
        say(f"{title}: NOT COMPARED")
        return
    a, b = (safetensors.numpy.load_file(newest(run)) for run in (one, other))
    wrong = [name for name in a if name not in b or a[name].tobytes() != b[name].tobytes()]
    far = max((float(np.abs(a[name] - b[name]).max()) for name in wrong if name in b), default=0.0)
    same = "equal" if not wrong else f"DIFFER in {len(wrong)} of {len(a)} arrays, most by {far:.2g}"
    logs = [(run / "metrics.csv").read_text() for run in (one, other)]
    told = f"; metrics.csv {'equal' if logs[0] == logs[1] else 'DIFFERS'}" if lines else ""
    say(f"{title}: bits {same}{told}")


def bits(bench: Bench) -> None:
    (bench.folder / "normed.yaml").write_text(NORMED)
    sixty, two = ("--set", "train.max_steps=60"), ("--ranks", "2")
    nets = {
        "lenet": (*LENET, *sixty),
        "normed": ("--config", str(bench.folder / "normed.yaml")),
    }
    for net, given in nets.items():
        # The choices of the first are found again by the others.
        one = bench.trained(f"{net}-one", *given, "--set", "train.accumulate=2")
        ways: dict[str, tuple[str, ...]] = {"two": (), "no-graph": ("--no-graph",), "whole": WHOLE}
        for way, words in ways.items():
            ranks = bench.trained(f"{net}-{way}", *given, *two, *words)
            compare(f"{net}, two ranks ({way}) and accumulate 2", one, ranks)
        nccl = bench.trained(f"{net}-nccl", *given, *two, DNNSTACK_PEER_SUMS="0")
        compare(f"{net}, two ranks by NCCL and accumulate 2", one, nccl)
        if net == "lenet":
            half = ("--set", "train.max_steps=30")
            begun = bench.trained("lenet-half", *LENET, *half, *two)
            if begun is not None:
                more = ("--config", str(begun / "config.yaml"), *sixty, "--resume", str(begun))
                resumed = bench.trained("lenet-half", *more)
                compare("lenet, resumed on one GPU", one, resumed, lines=False)


def failures(bench: Bench) -> None:
    steps = 200 if bench.device == "cpu" else 20_000
    # So often that a checkpoint is there when the signal comes.
    given = (*LENET, "--set", f"train.max_steps={steps}", "--set", f"train.log_every={steps // 40}")
    given += ("--set", f"checkpoint.every_steps={steps // 20}", "--ranks", "2")
    quiet = bench.trained("undisturbed", *given)
    for number, target in ((signal.SIGKILL, 1), (signal.SIGSTOP, 1), (signal.SIGINT, None)):
        failure(bench, given, f" {steps // 8}/{steps} ", number, target, quiet)


def failure(
    bench: Bench,
    given: tuple[str, ...],
    awaited: str,
    number: signal.Signals,
    target: int | None,
    quiet: Path | None,
) -> None:
    """Send a signal to a rank, or to the launcher; say how it ended, and resume what was saved."""
    name = f"{number.name}-{'launcher' if target is None else target}".lower()
    words = (*given, "--set", f"name={name}")
    running = bench.train(*words, awaited=awaited, DNNSTACK_RANKS_DEADLINE="4")
    if not running.told.wait(bench.left(40)):
        running.ended(0.1)
        return
    pid = running.process.pid if target is None else rank_of(target)
    begin = time.monotonic()
    os.kill(pid, number)
    if not running.ended(bench.left(30)):
        return
    seconds = time.monotonic() - begin
    while those_left() and time.monotonic() < begin + 30:
        time.sleep(0.05)
    gone = time.monotonic() - begin
    end_all()
    say(
        f"{name}: status {running.process.returncode} after {seconds:.1f} s, nobody left after "
        f"{gone:.1f} s; said: {' | '.join(running.lines[-3:])}"
    )
    if quiet is not None:
        run = bench.folder / name
        more = ("--config", str(run / "config.yaml"), "--resume", str(run), "--ranks", "2")
        compare(f"{name}, resumed", quiet, bench.trained(name, *more), lines=False)


def rank_of(rank: int) -> int:
    """The process id of a rank that this program has started, not that which watches over it."""
    for pid in sorted(those_left(), reverse=True):
        told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"PMI_RANK={rank}".encode() in told:
            return pid
    raise RuntimeError(f"rank {rank} is not there")


def speed(bench: Bench, *added: str) -> None:
    """``added``: words for ranks.py."""
    script = [sys.executable, str(Path(__file__).with_name("ranks.py")), "--device", bench.device]
    for config, batch in SPEEDS:
        words = ["--config", config, "--batch", str(batch), "--rounds", str(bench.rounds), *added]
        running = Running([*script, *words], {}, loud=True)
        if running.ended(bench.left(120)) and running.process.returncode:
            say(f"  {' '.join(words)}: status {running.process.returncode}")


PARTS: dict[str, tuple[Callable[[Bench], None], float]] = {
    "bits": (bits, 240),
    "speed": (speed, 220),
    "whole": (lambda bench: speed(bench, *WHOLE), 200),
    "nccl": (lambda bench: speed(bench, *WHOLE, "--nccl"), 200),
    "buckets": (lambda bench: speed(bench, *FOUR, "--nccl"), 200),
    "failures": (failures, 100),
}


def measured(bench: Bench, wanted: list[str]) -> None:
    for name in wanted:
        part, most = PARTS[name]
        left = bench.until - time.monotonic()
        if left < 10:
            say(f"{name}: LEFT OUT, {left:.0f} s are left")
            continue
        say(f"== {name}, at most {min(most, left):.0f} s")
        begin, bench.part_until = time.monotonic(), time.monotonic() + most
        try:
            part(bench)
        except Exception as error:
            say(f"{name}: BROKE OFF: {type(error).__name__}: {error}")
        end_all()
        say(f"== {name} took {time.monotonic() - begin:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=470.0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cuda", help="cpu: to try the program itself")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    # Multicast of NVLink may put GPUs that others share out of service.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["DNNSTACK_CACHE"] = f"{temporary}/cache"
        measured(Bench(Path(temporary), given), given.parts)


if __name__ == "__main__":
    main()
