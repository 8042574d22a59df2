"""What `dnnstack compress` brings: bytes of the file and test errors, for each seed and the mean.

    python3 benchmarks/compression.py --data-dir ~/data
    python3 benchmarks/compression.py --data-dir ~/data --device cuda --jobs 8 --seeds 1 2 3 4 5
    python3 benchmarks/compression.py --config lenet.yaml --set stages.3.train.epochs=40 --label 40

For each config and seed `dnnstack train` and then `dnnstack compress`, with the stages of the same
name or those of `--stages`, and `--set` for them. Bytes are those of the whole file. Nothing is
chosen on the test set: the network before is the checkpoint that is best on the validation samples,
the one after is the end of the last stage. Results are kept in the work folder and not computed
again; a compression that was stopped goes on. Runs of other `--set` need another `--label`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

HEADS = (
    "| config | seed | error before | error after | difference | bytes | times smaller | seconds |"
)


class Failed(Exception):
    """A command that did not succeed, with what it said."""


def dnnstack(*arguments: str) -> str:
    """What the command prints. Raises Failed."""
    command = [sys.executable, "-m", "dnnstack.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=environment())
    if result.returncode:
        raise Failed(f"dnnstack {' '.join(arguments)}\n{result.stderr}")
    return result.stdout


def environment() -> dict[str, str]:
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ}


def measured(options: argparse.Namespace, config: str, seed: int) -> dict[str, Any]:
    """Figures of one seed, after a training and a compression if there were none yet."""
    place = options.work / f"{Path(config).stem}-{seed}"
    folder = place / options.label
    kept = folder / "result.json"
    if not kept.exists():
        machine = ["--device", options.device, "--threads", str(options.threads)]
        if options.data_dir is not None:
            machine += ["--data-dir", str(options.data_dir)]
        begun = sorted(folder.glob("*/compress.json"))
        runs = ["--runs-dir", str(folder)]
        what = ["--checkpoint", trained(options, config, seed, place, machine)]
        if begun:
            what += ["--resume", str(begun[0].parent)]
        stages = ["--config", options.stages or Path(config).name, *sets_of(options.overrides)]
        begin = time.perf_counter()
        found = json.loads(dnnstack("compress", "--json", *what, *stages, *runs, *machine))
        found["seconds"] = None if begun else time.perf_counter() - begin
        kept.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return dict(json.loads(kept.read_text("utf-8")))


def sets_of(overrides: list[str]) -> list[str]:
    return [word for text in overrides for word in ("--set", text)]


def trained(
    options: argparse.Namespace, config: str, seed: int, place: Path, machine: list[str]
) -> str:
    """The checkpoint of the network of a seed, trained if there is none yet."""
    from dnnstack.training.records.trained import find_trained

    kept = place / "network.json"
    if not kept.exists():
        runs = place / "network"
        sets = sets_of([f"seed={seed}", f"run.precision={options.precision}", *options.network])
        dnnstack("train", "-q", "--config", config, "--runs-dir", str(runs), *machine, *sets)
        best = find_trained(None, None, runs, lambda text: None).checkpoint.path
        kept.write_text(json.dumps(str(best.absolute())) + "\n", "utf-8")
    return str(json.loads(kept.read_text("utf-8")))


def row(name: str, seed: str, found: list[dict[str, Any]]) -> str:
    """Means over the results; errors in percent."""
    before, after = (
        mean(100 - 100 * each[key]["test"]["accuracy"] for each in found)
        for key in ("before", "after")
    )
    size, times = (mean(each[key] for each in found) for key in ("bytes", "times"))
    seconds = [each["seconds"] for each in found if each["seconds"] is not None]
    took = f"{mean(seconds):.0f}" if seconds else "-"
    errors = f"{before:.3f}% | {after:.3f}% | {after - before:+.3f}"
    return f"| {name} | {seed} | {errors} | {size:,.0f} | {times:.1f} | {took} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", nargs="*", default=["lenet-300-100.yaml", "lenet.yaml"])
    parser.add_argument("--stages", metavar="FILE", help="default: those named like the config")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--network", action="append", default=[], metavar="KEY=VALUE", help="--set of the training"
    )
    parser.add_argument("--label", default="packaged", help="name of this choice of stages")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/compression"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    todo = [(config, seed) for config in options.config for seed in options.seeds]
    failed = False
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {one: pool.submit(measured, options, *one) for one in todo}
        print(
            f"stages: {options.label}\n\n{HEADS}\n{'| --- ' * (HEADS.count('|') - 1)}|", flush=True
        )
        for config in options.config:
            found = []
            for seed in options.seeds:
                try:
                    found.append(futures[config, seed].result())
                except Failed as error:
                    failed = True
                    print(error, file=sys.stderr, flush=True)
                else:
                    print(row(config, str(seed), found[-1:]), flush=True)
            if len(found) > 1:
                print(row(config, f"mean of {len(found)}", found), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
