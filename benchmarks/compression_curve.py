"""Accuracy against the size of the file: a network pruned further and further, with shared weights.

    python3 benchmarks/compression_curve.py --data-dir ~/data --device cuda --precision tf32

Each seed's network is trained, then pruned to one share after the other, each with retraining from
where the one before ended; from each of these, files of several bits a weight are made. Printed are
the bytes and test errors of all, means over the seeds, and at which size ``--lost`` points of
accuracy are lost: on the line through the points that no smaller one exceeds, straight over the
logarithm of the size. Nothing is chosen on the test set but this reading. A picture is drawn into
the work folder. What is done is kept there and not computed again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from compression import Failed, dnnstack, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST, CONVOLUTIONS, DENSE = "conv2d_1.weight", "*conv2d_*.weight", "*dense_*.weight"
HEADS = ("kept", "bits", "bytes", "times smaller", "test error", "difference", "validation error")


@dataclass(frozen=True)
class Point:
    """A file, or the network before, of which ``bits`` is 0; means over seeds."""

    kept: float
    bits: int
    bytes: float
    test: float
    validation: float


def compressed(place: Path, checkpoint: str, stages: list[Any], machine: list[str]) -> Any:
    """What ``dnnstack compress`` says of these stages, and ``folder``."""
    kept = place / "result.json"
    if not kept.exists():
        place.mkdir(parents=True, exist_ok=True)
        config = place / "stages.yaml"
        config.write_text(json.dumps({"name": "files", "stages": stages}), "utf-8")
        words = ["--checkpoint", checkpoint, "--config", str(config), "--runs-dir", str(place)]
        begun = place / "files"
        if (begun / "compress.json").exists():
            words += ["--resume", str(begun)]
        found = dnnstack("compress", "--json", *words, *machine)
        kept.write_text(found, "utf-8")
    return json.loads(kept.read_text("utf-8"))


def prunings(options: argparse.Namespace) -> list[Any]:
    """A stage for each share; the first convolution and the last layer keep more."""
    stages = []
    for share in options.keep:
        dense = {DENSE: min(1.0, options.dense * share)}
        keep = {FIRST: max(share, 0.8), CONVOLUTIONS: share, **dense}
        stages.append({"prune": {"keep": keep}})
    stages[0] |= {
        "optimizer": {**rule(options.lr), "nesterov": True, "weight_decay": options.decay},
        "schedule": "cosine",
        "train": length(options.epochs),
    }
    return stages


def sharing(options: argparse.Namespace, bits: int) -> list[Any]:
    shared = {CONVOLUTIONS: bits, DENSE: max(bits, 5)}
    optimizer, train = rule(options.share_lr), length(options.share_epochs)
    return [{"share": {"bits": shared}, "optimizer": optimizer, "train": train}]


def rule(lr: float) -> dict[str, Any]:
    return {"type": "sgd", "lr": lr, "momentum": 0.9}


def length(epochs: float) -> dict[str, Any]:
    """Less than one epoch: for a trial, as many hundredths of steps."""
    return {"epochs": int(epochs)} if epochs >= 1 else {"max_steps": max(1, int(100 * epochs))}


def curve(options: argparse.Namespace, seed: int, machine: list[str]) -> list[Point]:
    """The points of a seed, that of the network before first."""
    place = options.work / f"{Path(options.config).stem}-{seed}"
    network = trained(options, options.config, seed, place, machine)
    pruned = place / options.label
    before = compressed(pruned, network, prunings(options), machine)
    stages = json.loads((pruned / "files" / "compress.json").read_text("utf-8"))["stages"]
    found = [point(1.0, 0, before["float32_bytes"], before["before"])]

    def file(number: int, bits: int) -> Point:
        here = pruned / f"{number + 1}-{bits}"
        each = compressed(here, stages[number]["checkpoint"], sharing(options, bits), machine)
        return point(each["stages"][-1]["kept"], bits, each["bytes"], each["after"])

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            pool.submit(file, number, bits)
            for number in range(len(stages))
            for bits in options.bits
        ]
        return found + [future.result() for future in futures]


def point(kept: float, bits: int, size: int, measured: dict[str, Any]) -> Point:
    validation = measured.get("validation", {}).get("accuracy", math.nan)
    return Point(kept, bits, size, measured["test"]["accuracy"], validation)


def means(curves: list[list[Point]]) -> list[Point]:
    return [
        Point(
            mean(each.kept for each in column),
            column[0].bits,
            mean(each.bytes for each in column),
            mean(each.test for each in column),
            mean(each.validation for each in column),
        )
        for column in zip(*curves, strict=True)
    ]


def front(points: list[Point]) -> list[Point]:
    """Those that no smaller or equal file exceeds, the smallest first."""
    found: list[Point] = []
    for each in sorted(points, key=lambda each: (each.bytes, -each.test)):
        if not found or each.test > found[-1].test:
            found.append(each)
    return found


def size_at(points: list[Point], accuracy: float) -> float | None:
    """The bytes at which the front of the files has this accuracy; None if all are on one side."""
    edge = front([each for each in points if each.bits])
    for low, high in pairwise(edge):
        if low.test <= accuracy <= high.test:
            part = (accuracy - low.test) / (high.test - low.test)
            return math.exp((1 - part) * math.log(low.bytes) + part * math.log(high.bytes))
    return None


def picture(points: list[Point], lost: float, title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for bits in sorted({each.bits for each in points} - {0}, reverse=True):
        line = sorted((each.bytes, 100 * each.test) for each in points if each.bits == bits)
        axes.plot(*zip(*line, strict=True), "o-", ms=4, label=f"{bits} bits a weight")
    before = points[0]
    axes.plot(before.bytes, 100 * before.test, "ks", ms=5, label="float32")
    axes.axhline(100 * (before.test - lost), color="grey", lw=1, ls="--")
    axes.set_xscale("log")
    # What is far below would press all else together.
    axes.set_ylim(bottom=max(min(100 * each.test for each in points), 100 * before.test - 6) - 0.3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,g}")
    axes.set_xlabel("file in KB")
    axes.set_ylabel("test accuracy in %")
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(title, loc="left", fontsize=10)
    return figure


def table(points: list[Point]) -> list[str]:
    before = points[0]
    lines = [f"| {' | '.join(HEADS)} |", "| --- " * len(HEADS) + "|"]
    for each in points:
        sizes = f"{each.bytes:,.0f} | {before.bytes / each.bytes:.1f}"
        difference = f"{100 * (before.test - each.test):+.2f}" if each.bits else "-"
        errors = f"{1 - each.test:.2%} | {difference} | {1 - each.validation:.2%}"
        bits = each.bits or "float32"
        lines.append(f"| {each.kept:.1%} | {bits} | {sizes} | {errors} |")
    return lines


def reading(points: list[Point], lost: float) -> list[str]:
    """What the front says about the loss that is allowed."""
    before = points[0]
    least = before.test - lost
    size, said = size_at(points, least), f"{100 * lost:g} points"
    lines = []
    if size is not None:
        lines.append(
            f"{said} are lost at {size:,.0f} bytes, {before.bytes / size:.1f} times smaller"
        )
    within = [each for each in points if each.bits and each.test >= least]
    if within:
        best = min(within, key=lambda each: each.bytes)
        lines.append(
            f"smallest file that loses at most {said}: {best.bytes:,.0f} bytes, "
            f"{before.bytes / best.bytes:.1f} times smaller: {best.kept:.1%} kept, {best.bits} bits"
        )
    return lines or [f"no file loses at most {said}"]


def main() -> None:
    from dnnstack.reports.plots import drawn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="cifar10-resnet9.yaml")
    parser.add_argument(
        "--network", action="append", default=[], metavar="KEY=VALUE", help="--set of the training"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--jobs", type=int, default=1, help="files made at the same time")
    parser.add_argument(
        "--keep", type=float, nargs="*", default=[0.5, 0.3, 0.2, 0.12, 0.08, 0.05, 0.03]
    )
    parser.add_argument("--dense", type=float, default=4.0, help="what dense layers keep more")
    parser.add_argument("--bits", type=int, nargs="*", default=[5, 4, 3])
    parser.add_argument("--epochs", type=float, default=8, help="after each pruning")
    parser.add_argument("--share-epochs", type=float, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=5e-4)
    parser.add_argument("--share-lr", type=float, default=1e-4)
    parser.add_argument("--lost", type=float, default=0.005, help="allowed loss of accuracy")
    parser.add_argument("--label", default="curve", help="name of this choice of stages")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/compression-curve"))
    options = parser.parse_args()
    machine = ["--device", options.device, "--threads", str(options.threads)]
    if options.data_dir is not None:
        machine += ["--data-dir", str(options.data_dir)]
    begin = time.perf_counter()
    try:
        points = means([curve(options, seed, machine) for seed in options.seeds])
    except Failed as error:
        sys.exit(str(error))
    print(f"{options.config}, {len(options.seeds)} seeds: {options.label}\n")
    print("\n".join([*table(points), "", *reading(points, options.lost)]))
    path = options.work / f"{options.label}.png"
    path.write_bytes(drawn(lambda: picture(points, options.lost, Path(options.config).stem)))
    print(f"drawn: {path}; {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
