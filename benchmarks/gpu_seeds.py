"""Seconds of training to an accuracy, over seeds: lenet.yaml as `dnnstack train` runs it.

    python3 benchmarks/gpu_seeds.py --data-dir ~/data --seeds 12
    python3 benchmarks/gpu_seeds.py --precisions bf16 --set data.batch_size=256 --goal 0.991

For every seed two runs: one that ends at the first validation, at the end of an epoch, whose
accuracy reaches the goal; and one of the config's whole length, of which the checkpoint that is
best on the validation samples counts. Nothing is chosen on the test set: the accuracy there is
that of the checkpoint that validation chose. Seconds are of training: steps, log and checkpoints,
without starting, compiling and validating. A seed that is too many serves to warm up.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any


def run(
    options: argparse.Namespace, overrides: list[str], folder: Path, backend: Any
) -> dict[str, Any]:
    """Train once; figures of the run, and the test accuracy of its chosen checkpoint."""
    from dnnstack.configs import load_config
    from dnnstack.datasets import data_root
    from dnnstack.training.evaluate import evaluate, load_part
    from dnnstack.training.records.trained import find_trained
    from dnnstack.training.trainer import train

    loaded = load_config(options.config, [*options.overrides, *overrides, f"run.dir={folder}"])
    root = data_root(options.data_dir, loaded.config.data.root)
    begin = time.perf_counter()
    done = train(loaded.config, backend, root, file=loaded.path)
    whole = time.perf_counter() - begin
    # A run that has ended at its goal is taken as it is, else the best on validation.
    checkpoint = done.checkpoint if done.goal else None
    trained = find_trained(str(done.run), None, folder, lambda text: None)
    if checkpoint is not None:
        trained = find_trained(None, checkpoint, folder, lambda text: None)
    images, index = load_part(trained, "test", root)
    result = evaluate(trained, backend, images, index, "test")
    return {
        "reached": done.goal,
        "epochs": done.epoch,
        "steps": done.step,
        "seconds": done.training_seconds,
        "validation_seconds": done.validation_seconds,
        "whole_seconds": whole,
        "images_per_second": done.images_per_second,
        "validation": None if done.best is None else done.best.accuracy,
        "test": result.accuracy,
        "correct": result.correct,
        "count": result.count,
    }


def measure(options: argparse.Namespace, precision: str, backend: Any) -> list[dict[str, Any]]:
    rows = []
    for seed in range(options.first - 1, options.first + options.seeds):
        chosen = [f"seed={seed}", f"run.precision={precision}"]
        goal = [*chosen, f"train.goal={{accuracy: {options.goal}}}"]
        with tempfile.TemporaryDirectory() as folder:
            short = run(options, goal, Path(folder), backend)
            whole = run(options, chosen, Path(folder), backend) if options.whole else None
        if seed < options.first:
            continue
        row = {"precision": precision, "seed": seed, "goal": short, "whole": whole}
        rows.append(row)
        line = f"{precision} seed {seed}: "
        if short["reached"]:
            line += f"{options.goal:.1%} on validation after {short['seconds']:.3f} s"
            line += f" ({short['epochs']:.0f} epochs), then {short['test']:.2%} on test"
        else:
            line += f"never {options.goal:.1%} on validation"
        if whole is not None:
            line += f"; whole run {whole['seconds']:.2f} s, {whole['test']:.2%} on test"
        print(line, flush=True)
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    return rows


def spread(values: list[float], form: str) -> str:
    deviation = stdev(values) if len(values) > 1 else 0.0
    figures = (median(values), mean(values), deviation, min(values), max(values))
    shown = [format(value, form) for value in figures]
    return f"median {shown[0]}, mean {shown[1]} +- {shown[2]}, {shown[3]} to {shown[4]}"


def show(options: argparse.Namespace, precision: str, rows: list[dict[str, Any]]) -> None:
    reached = [row["goal"] for row in rows if row["goal"]["reached"]]
    print(f"\n{precision}: {len(reached)} of {len(rows)} seeds reached {options.goal:.1%}")
    if reached:
        print(f"  seconds of training   {spread([r['seconds'] for r in reached], '.3f')}")
        print(f"  epochs                {spread([r['epochs'] for r in reached], '.1f')}")
        print(f"  test accuracy then    {spread([r['test'] for r in reached], '.4f')}")
        above = sum(r["test"] >= options.goal for r in reached)
        print(f"  of them at least {options.goal:.1%} on test: {above}")
    whole = [row["whole"] for row in rows if row["whole"] is not None]
    if whole:
        print(f"  whole run, seconds    {spread([r['seconds'] for r in whole], '.3f')}")
        print(f"  its test accuracy     {spread([r['test'] for r in whole], '.4f')}")
        print(f"  its images a second   {spread([r['images_per_second'] for r in whole], '.0f')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", nargs="*", default=["tf32", "bf16"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="first seed that counts")
    parser.add_argument("--goal", type=float, default=0.99, help="accuracy on validation")
    parser.add_argument("--no-whole", dest="whole", action="store_false", help="to the goal alone")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, help="append every seed's figures to this file")
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dnnstack.backends.select import open_backend

    backend = open_backend(options.device)
    print(", ".join(f"{name} {version}" for name, version in backend.versions().items()))
    found = {}
    for precision in options.precisions:
        found[precision] = measure(options, precision, backend)
    for precision, rows in found.items():
        show(options, precision, rows)


if __name__ == "__main__":
    main()
