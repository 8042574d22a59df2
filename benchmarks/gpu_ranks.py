"""What to run on a machine with two GPUs: ranks on NCCL, that they are right, and how fast.

    pip install '.[cuda13,mpi,nccl13]'
    NCCL_NVLS_ENABLE=0 python3 benchmarks/gpu_ranks.py --seconds 470

(``[cuda12,mpi,nccl12]`` for a CUDA 12 driver.) Every part has a time limit of its own and prints
each line at once, so what hangs is ended and the next part begins; what does not fit into
``--seconds`` is left out, and said to be. The parts, in this order, and what each shows:

- facts: versions, which MPI was found, and that every rank has a GPU of its own;
- collectives: NCCL in a CUDA graph, its bits and microseconds by size;
- bits: a training by two ranks ends in the bits of one GPU with ``train.accumulate: 2``, captured
  and call by call, with batch norm and dropout, by NCCL, and after a resume on one GPU;
- speed: pictures a second on two GPUs beside one, in turn, with a batch for each and for both;
- whole: the same with all gradients in front of the update, none beside backward;
- nccl: whole, but NCCL adds up; buckets: in four pieces, all but the last beside backward;
- failures: a rank that is killed or stopped, Ctrl-C; what was saved goes on to the same bits;
- explain: the sums in a step, with their times;
- split: units and rows of layers shared out, beside one GPU;
- more: asynchronous training, rank 0 killed or stopped, the speed in bfloat16.

Data are drawn by the program. ``--parts bits speed`` runs these alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import safetensors.numpy
from gpu_ranks_commands import Running, end_all, say, those_left

HERE = Path(__file__).resolve().parent
LAUNCHER = Path(sys.prefix) / "bin" / "mpiexec"
STROKES = "data.dataset={strokes: {train_count: 6400, test_count: 1000}}"
LENET = ("--config", "digits.yaml", "--set", STROKES, "--set", "data.validation=1000")
LENET = (*LENET, "--set", "train.epochs=null", "--set", "schedule=fixed")
NORMED = """
seed: 3
data: {dataset: {strokes: {train_count: 6400, test_count: 1000}}, batch_size: 256, validation: 1000}
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
train: {max_steps: 60, log_every: 10}
"""
NETS = (
    ("lenet.yaml", 64),
    ("lenet.yaml", 1024),
    ("cifar10-resnet9.yaml", 512),
    ("cifar10-airbench.yaml", 1024),
)


class Bench:
    """Where runs go, and when the time is over."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder = folder
        self.device: str = given.device
        cpu = ["--set", "run.threads=1", "--set", "run.tune=false"]
        self.options = cpu if given.device == "cpu" else []
        self.rounds: int = given.rounds
        self.nets: list[str] = given.nets
        self.until = time.monotonic() + given.seconds
        self.part_until = self.until

    def left(self, most: float) -> float:
        """Seconds for a command; raises TimeoutError where they would not do."""
        left = min(self.part_until, self.until) - time.monotonic()
        if left < 3:
            raise TimeoutError("its time is over, what follows is left out")
        return min(most, left)

    def train(self, *given: str, awaited: str = "\0", **more: str) -> Running:
        words = [sys.executable, "-m", "dnnstack.cli", "train", "--device", self.device]
        words += [*given, *self.options, "--runs-dir", str(self.folder)]
        return Running(words, awaited, more=more)

    def trained(
        self, name: str, *given: str, most: float = 60.0, **environment: str
    ) -> Path | None:
        """The run's folder after training; None, and it is said why, where that failed."""
        begin = time.monotonic()
        running = self.train(*given, "--set", f"name={name}", **environment)
        if not running.ended(self.left(most)):
            return None
        if running.process.returncode:
            say(f"  {name}: status {running.process.returncode}")
            for line in running.lines[-25:]:
                say(f"    {line}")
            return None
        say(f"  {name}: trained in {time.monotonic() - begin:.1f} s")
        return self.folder / name

    def worker(self, part: str, *given: str, most: float) -> None:
        words = [str(LAUNCHER), "-n", "2", sys.executable, str(HERE / "gpu_ranks_worker.py"), part]
        running = Running([*words, "--device", self.device, *given], loud=True)
        if running.ended(self.left(most)) and running.process.returncode:
            say(f"  {part} {' '.join(given)}: status {running.process.returncode}")


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
    tables = [_tuning(run) for run in (one, other)]
    logs = [(run / "metrics.csv").read_text() for run in (one, other)]
    told = f"; metrics.csv {'equal' if logs[0] == logs[1] else 'DIFFERS'}" if lines else ""
    also = "equal" if tables[0] == tables[1] else f"DIFFER: {tables}"
    say(f"{title}: bits {same}{told}; choices {also}")


def _tuning(run: Path) -> object:
    with safetensors.safe_open(newest(run), "numpy") as opened:
        return json.loads(opened.metadata()["dnnstack"])["tuning"]["choices"]


def facts(bench: Bench) -> None:
    say(f"  {sys.version.split()[0]} at {sys.executable}, launcher {LAUNCHER}")
    for command in (["nvidia-smi", "-L"], ["nvidia-smi", "topo", "-m"]):
        if bench.device == "cuda":
            Running(command, loud=True).ended(20)
    bench.worker("facts", most=60)


def collectives(bench: Bench) -> None:
    bench.worker("collectives", most=60)


def bits(bench: Bench) -> None:
    (bench.folder / "normed.yaml").write_text(NORMED)
    pictures(bench.folder / "pictures")
    sixty, two = ("--set", "train.max_steps=60"), ("--ranks", "2")
    resnet = ("--config", "cifar10-resnet9.yaml", "--data-dir", str(bench.folder / "pictures"))
    resnet += ("--set", "train.epochs=null", "--set", "train.max_steps=20")
    resnet += ("--set", "schedule=fixed", "--set", "optimizer.lr=0.01")
    if bench.device == "cpu":
        resnet += ("--set", "data.batch_size=8", "--set", "train.max_steps=2")
    nets = {
        "lenet.yaml": (*LENET, *sixty),
        "normed": ("--config", str(bench.folder / "normed.yaml")),
        "cifar10-resnet9.yaml": resnet,
    }
    for title, given in nets.items():
        if bench.nets and title not in bench.nets:
            continue
        net = title.removesuffix(".yaml").removeprefix("cifar10-")
        # The choices of the first are found again by the others.
        one = bench.trained(f"{net}-one", *given, "--set", "train.accumulate=2")
        two_ranks = bench.trained(f"{net}-two", *given, *two)
        compare(f"{net}, two ranks and accumulate 2", one, two_ranks)
        if net != "resnet9":
            plain = bench.trained(f"{net}-plain", *given, *two, "--no-graph")
            compare(f"{net}, two ranks with --no-graph and accumulate 2", one, plain)
            whole = bench.trained(f"{net}-whole", *given, *two, "--set", "parallel.buckets=1")
            compare(f"{net}, two ranks in one piece and accumulate 2", one, whole)
            nccl = bench.trained(f"{net}-nccl", *given, *two, DNNSTACK_PEER_SUMS="0")
            compare(f"{net}, two ranks by NCCL and accumulate 2", one, nccl)
        if net == "lenet":
            half = ("--set", "train.max_steps=30")
            begun = bench.trained("lenet-half", *LENET, *half, *two)
            if begun is not None:
                more = ("--config", str(begun / "config.yaml"), *sixty, "--resume", str(begun))
                resumed = bench.trained("lenet-half", *more)
                compare("lenet, resumed on one GPU", one, resumed, lines=False)


def pictures(root: Path) -> None:
    """Files of CIFAR-10 with pictures that are noise."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = draw.integers(0, 256, (10_000, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())


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


def speed(bench: Bench, *added: str, nccl: bool = False) -> None:
    for config, batch in NETS:
        if bench.nets and config not in bench.nets:
            continue
        words = [word for change in added for word in ("--set", change)]
        words += ["--nccl"] if nccl else []
        if bench.device == "cpu":
            words += ["--set", "run.tune=false", "--count", str(8 * batch)]
        sizes = ["--batch", str(batch), "--rounds", str(bench.rounds)]
        bench.worker("speed", "--config", config, *sizes, *words, most=120)


def explain(bench: Bench) -> None:
    for config in ("digits.yaml", "cifar10-resnet9.yaml"):
        words = [sys.executable, "-m", "dnnstack.cli", "explain", "--config", config, "--measure"]
        running = Running([*words, "--device", bench.device, "--ranks", "2"])
        if running.ended(bench.left(40)):
            shown = [line for line in running.lines if "AllReduce" in line]
            say(f"{config}: {len(running.lines)} lines, status {running.process.returncode}")
            for line in shown or running.lines[-12:]:
                say(f"  {line}")


def split(bench: Bench) -> None:
    few = ("--set", "train.max_steps=3", "--set", "run.precision=fp32")
    whole = bench.trained("whole", *LENET, *few)
    parts = bench.trained("parts", *LENET, *few, "--set", "train.accumulate=2")
    units = ("--set", "layers.dense_1.parallel={split: units}")
    ways = [("units", units, parts), ("rows", rows("conv2d_1", "max_pool2d_1"), whole)]
    both = rows("conv2d_1", "max_pool2d_1", "conv2d_2", "max_pool2d_2")
    ways += [("rows of all", both, whole)]
    for name, words, one in ways:
        two = bench.trained(f"split-{name.replace(' ', '-')}", *LENET, *few, *words, "--ranks", "2")
        compare(f"{name} split over two GPUs, within roundings", one, two)


def rows(*layers: str) -> tuple[str, ...]:
    changes = (f"layers.{layer}.parallel={{split: space}}" for layer in layers)
    return tuple(word for change in changes for word in ("--set", change))


def more(bench: Bench) -> None:
    stale = ("--ranks", "2", "--async", "--set", "optimizer.momentum=0.5")
    run = bench.trained("asynchronous", *LENET, "--set", "train.max_steps=200", *stale)
    if run is not None:
        say(f"asynchronous: {(run / 'log.jsonl').read_text().splitlines()[-2][:300]}")
    given = (*LENET, "--set", "train.max_steps=200000", "--set", "train.log_every=500")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        failure(bench, (*given, "--ranks", "2"), " 1000/200000 ", number, 0, None)
    speed(bench, "run.precision=bf16")


PARTS: dict[str, tuple[Callable[[Bench], None], float]] = {
    "facts": (facts, 70),
    "collectives": (collectives, 60),
    "bits": (bits, 240),
    "speed": (speed, 220),
    "whole": (lambda bench: speed(bench, "parallel.buckets=1"), 200),
    "nccl": (lambda bench: speed(bench, "parallel.buckets=1", nccl=True), 200),
    "buckets": (lambda bench: speed(bench, "parallel.buckets=4", nccl=True), 200),
    "failures": (failures, 100),
    "explain": (explain, 40),
    "split": (split, 100),
    "more": (more, 400),
}


def measured(bench: Bench, wanted: Iterable[str]) -> None:
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
    known = sorted({"normed", *(config for config, _ in NETS)})
    parser.add_argument(
        "--nets", nargs="+", choices=known, default=[], help="of bits and speed; else all"
    )
    given = parser.parse_args()
    # Multicast of NVLink may put GPUs that others share out of service.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["DNNSTACK_CACHE"] = f"{temporary}/cache"
        measured(Bench(Path(temporary), given), given.parts)


if __name__ == "__main__":
    main()
