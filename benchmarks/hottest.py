"""The five kernels in which a training step on a GPU spends most time, as Nsight Compute sees them.

    python3 benchmarks/hottest.py lenet-64 lenet-1024 cifar-512 --precision tf32

The networks are those of gpu_worker.py. A first process times its choices, as training does; a
second one runs a step of them, every call by itself, under ``ncu``, which repeats each kernel to
read the counters. For each kernel: microseconds by ncu (caches flushed before it, so longer than in
training), warps that are on a processor (of those that fit), the share of cycles in which the
tensor cores worked, bytes from and to memory and the L2 cache with their share of what these can
move, registers of a thread, and what warps waited for most. Needs ncu, and the right to read the
GPU's counters.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

METRICS = {
    "us": "gpu__time_duration.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "memory": "dram__bytes.sum",
    "memory share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__t_bytes.sum",
    "L2 share": "lts__t_bytes.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
}
# Warps that wait, of those on a processor: what for.
STALLS = {
    "loads": "long_scoreboard",
    "barrier": "barrier",
    "shared memory": "short_scoreboard",
    "tensor or arithmetic units": "math_pipe_throttle",
    "a result of arithmetic": "wait",
    "queue of memory": "lg_throttle",
    "queue of shared memory": "mio_throttle",
}
SCALES = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3}
BYTES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
WARM_UP, SHOWN = 3, 5


def stalled(name: str) -> str:
    return f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"


def step(net: str, precision: str, profiled: bool) -> None:
    """In a process of its own: the choices of a step, or one step between the profiler's marks."""
    import gpu_ours
    from dnnstack.backends.cuda.libraries.runtime import cupy
    from gpu_worker import NETS

    if not profiled:
        gpu_ours.build("dnnstack", NETS[net], precision, "cuda").run(WARM_UP)
        return
    built = gpu_ours.build("dnnstack", NETS[net], f"{precision}/calls", "cuda")
    built.run(WARM_UP)
    cupy().cuda.profiler.start()
    built.run(1)
    cupy().cuda.profiler.stop()


def counted(net: str, precision: str, folder: Path) -> list[dict[str, str]]:
    """The rows of ncu, one for each kernel of a step; the second row has the units."""
    own = [sys.executable, str(Path(__file__).resolve()), net, "--precision", precision, "--step"]
    environment = {**os.environ, "DNNSTACK_CACHE": os.environ.get("DNNSTACK_CACHE", str(folder))}
    subprocess.run([*own, "choose"], check=True, env=environment)
    metrics = [*METRICS.values(), *map(stalled, STALLS.values())]
    ncu = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv"]
    ncu += ["--page", "raw", "--metrics", ",".join(metrics)]
    found = subprocess.run(
        [*ncu, *own, "profiled"], capture_output=True, text=True, env=environment, check=False
    )
    lines = [line for line in found.stdout.splitlines() if line.startswith('"')]
    if found.returncode or len(lines) < 3:
        raise SystemExit(f"{net}: ncu failed\n{found.stdout[-2000:]}\n{found.stderr[-2000:]}")
    return list(csv.DictReader(io.StringIO("\n".join(lines))))


def number(row: dict[str, str], units: dict[str, str], metric: str) -> float:
    """In microseconds and bytes."""
    text = row.get(metric, "").replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return float("nan")
    unit = units.get(metric, "")
    return value * SCALES.get(unit, 1.0) * BYTES.get(unit, 1.0)


def show(net: str, precision: str, rows: list[dict[str, str]]) -> None:
    units, kernels = rows[0], defaultdict(list)
    for row in rows[1:]:
        kernels[row["Kernel Name"], row["ID"]].append(row)
    read: list[dict[str, Any]] = []
    for (name, _), (row, *_) in kernels.items():
        values: dict[str, Any] = {key: number(row, units, m) for key, m in METRICS.items()}
        waits = {key: number(row, units, stalled(m)) for key, m in STALLS.items()}
        values["name"] = name.partition("(")[0][:46]
        known = {key: value for key, value in waits.items() if value == value}
        values["waits"] = ", ".join(
            f"{key} {known[key]:.1f}" for key in sorted(known, key=known.__getitem__)[::-1][:2]
        )
        read.append(values)
    total = sum(values["us"] for values in read)
    print(f"\n{net}, {precision}: {len(read)} kernels, {total:.1f} us one by one under ncu")
    heads = ("us", "blocks", "thr.", "reg.", "warps", "tensor", "issue", "MB", "", "L2 MB", "")
    print(f"  {'':46}" + "".join(f"{head:>8}" for head in heads) + "  warps wait for")
    for v in sorted(read, key=lambda values: -values["us"])[:SHOWN]:
        cells = [f"{v['us']:.1f}", *(f"{v[k]:.0f}" for k in ("blocks", "threads", "registers"))]
        cells += [f"{v[key]:.0f}%" for key in ("warps", "tensor", "issue")]
        for moved in ("memory", "L2"):
            cells += [f"{v[moved] / 1e6:.2f}", f"{v[moved + ' share']:.0f}%"]
        print(f"  {v['name']:46}" + "".join(f"{cell:>8}" for cell in cells) + f"  {v['waits']}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--precision", default="tf32", choices=["fp32", "tf32", "bf16"])
    parser.add_argument("--step", choices=["choose", "profiled"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        return step(options.nets[0], options.precision, options.step == "profiled")
    if shutil.which("ncu") is None:
        raise SystemExit("ncu is not on the PATH; it is part of the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        for net in options.nets:
            show(net, options.precision, counted(net, options.precision, Path(folder)))
    return None


if __name__ == "__main__":
    main()
