"""What configs reach: a training, then an evaluation of its last step, for several seeds.

    python3 benchmarks/results.py cifar10-quick.yaml mnist-best.yaml --seeds 5 --data-dir ~/data
    python3 benchmarks/results.py cifar10-resnet20.yaml --device cuda --set run.precision=bf16

Prints a line a seed, and a row of docs/results.md a config: mean and deviation of the accuracy on
the test set after the last step, and the median of the seconds of training. Nothing is chosen on
the test set.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from statistics import mean, median, stdev

import dnnstack


def run(options: argparse.Namespace, config: str, seed: int) -> tuple[float, float]:
    """The accuracy in percent, and the seconds, of one training."""
    data, how = options.data_dir, {"device": options.device, "threads": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        changes = [*options.overrides, f"seed={seed}"]
        done = dnnstack.train(config, overrides=changes, runs_dir=folder, data_dir=data, **how)
        seconds = json.loads((done.run / "log.jsonl").read_text().splitlines()[-1])
        with dnnstack.load(done.run / f"checkpoints/step-{done.step}.safetensors", **how) as last:
            found = last.evaluate(data_dir=data)
    print(f"{config} seed {seed}: {found}, {seconds['training_seconds']:.1f} s", flush=True)
    return 100 * found.accuracy, seconds["training_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    rows = []
    for config in options.configs:
        seeds = range(options.first, options.first + options.seeds)
        reached, seconds = zip(*(run(options, config, seed) for seed in seeds), strict=True)
        spread = f" +- {stdev(reached):.2f}" if len(reached) > 1 else ""
        took = f"{options.device}, {median(seconds):.0f} s"
        rows.append(f"| `{config}` | {mean(reached):.2f}%{spread} | {len(reached)} | {took} |")
    print("\n" + "\n".join(rows))


if __name__ == "__main__":
    main()
