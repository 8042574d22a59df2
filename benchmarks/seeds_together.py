"""`train --seeds N` one after the other, and with --workers K --together: seconds of the clock.

    python3 benchmarks/seeds_together.py --data-dir ~/data
    python3 benchmarks/seeds_together.py --cases "lenet.yaml train.epochs=20" --seeds 8 --automatic

A case is a config and its settings. One training warms it up, which chooses the calls; then the
ways take turns, so many rounds. The seconds are those of the whole command, with starting, reading
the pictures, validation, checkpoints and curves; all ways train the same runs, to the bit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

CASES = [
    "lenet.yaml train.epochs=1",
    "lenet.yaml train.epochs=3",
    "lenet.yaml",
    "mlp.yaml",
    "mnist-fast.yaml data.validation=5000",
    "cifar10-quick.yaml train.epochs=4",
    "cifar10-resnet9.yaml train.epochs=4",
    "cifar10-resnet20.yaml train={max_steps:1000}",
    "cifar10-airbench-muon.yaml",
]


def train(options: argparse.Namespace, case: str, words: list[str]) -> dict[str, float]:
    """Seconds of one call, and of training, as its runs' records have them."""
    config, *settings = case.split()
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "dnnstack.cli", "train", "--config", config, "-q"]
        line += ["--device", options.device, "--runs-dir", folder, "--offline", *words]
        for each in settings:
            line += ["--set", each.replace(":", ": ")]
        line += ["--data-dir", str(options.data_dir)] if options.data_dir else []
        begin = time.perf_counter()
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begin
        if done.returncode not in (0, 3):
            print(f"{' '.join(line)}\n{done.stderr}", flush=True)
            return {"failed": float(done.returncode)}
        training = 0.0
        for log in Path(folder).rglob("log.jsonl"):
            lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
            training += sum(one["training_seconds"] for one in lines if one["event"] == "end")
    return {"seconds": seconds, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[4])
    parser.add_argument("--automatic", action="store_true", help="and as it chooses by itself")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=600.0, help="no round begins later")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, help="write all figures")
    options = parser.parse_args()
    end, record = time.monotonic() + options.seconds, {}
    seeds = ["--seeds", str(options.seeds)]
    ways = {"in turn": [*seeds, "--workers", "1"]}
    for count in options.workers:
        ways[f"{count} together"] = [*seeds, "--workers", str(count), "--together"]
    if options.automatic:
        ways["by itself"] = seeds
    for case in options.cases:
        train(options, case, [])
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for number in range(options.rounds):
            if time.monotonic() > end:
                break
            for name in [*ways][:: -1 if number % 2 else 1]:
                found[name].append(train(options, case, ways[name]))
        record[case] = found
        shown = []
        for name, calls in found.items():
            failed = sum("failed" in each for each in calls)
            calls = [each for each in calls if "failed" not in each]
            if failed:
                shown.append(f"{name}: {failed} of {failed + len(calls)} failed")
            if calls:
                middle = [median(each[key] for each in calls) for key in ("seconds", "training")]
                shown.append(f"{name} {middle[0]:.2f} s ({middle[1]:.2f} of training)")
        print(f"{case}: {', '.join(shown)}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main()
