"""What `train` reaches of the bare step: images a second of both, alternating.

    python3 benchmarks/end_to_end.py --config lenet.yaml --seconds 30
    python3 benchmarks/end_to_end.py --device cuda --set run.precision=bf16

The bare step is the same compiled section run in a loop: gathering, forward, loss, backward,
update, metrics. `train` runs as a user runs it, in a process of its own with its default settings,
so it adds the epochs' order, logging, checkpoints and the loop; its time for validation is reported
apart, as it reports it. Needs the config's data (DNNSTACK_DATA).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from processes import TOOL


def bare_images_per_second(options: argparse.Namespace, seconds: float) -> float:
    """Images a second of the config's training section in a loop of its own."""
    import numpy as np
    from dnnstack.backends.select import open_backend
    from dnnstack.configs import load_config
    from dnnstack.datasets import data_root
    from dnnstack.training.assemble import build_network, describe_data, load_data
    from dnnstack.training.normalization import preprocessing
    from dnnstack.training.plan import make_plan
    from dnnstack.training.session import Session
    from dnnstack.training.setup import Setup

    config = load_config(options.config, options.overrides).config
    info = describe_data(config)
    data = load_data(config, "train", data_root(None, config.data.root))
    plan = make_plan(config, len(data))
    network = build_network(config, info)
    setup = Setup(config, network, preprocessing(config, info), plan, data)
    session = Session(setup, open_backend(options.device, options.threads))
    session.initialize()
    session.run(min(20, plan.steps_per_epoch))
    executable, step = session.executable, session.executable.graphs["train"]["step"]
    # Stretches of about a tenth of a second, so that starting one counts for nothing.
    count, done, begin = 20, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        executable.write(step, np.zeros(1, np.int64))
        before = time.perf_counter()
        executable.run("train", count)
        done += count
        if time.perf_counter() - before < 0.1:
            count = min(2 * count, plan.total_steps)
    reached = done * plan.batch_size / (time.perf_counter() - begin)
    session.close()
    return reached


def train_images_per_second(options: argparse.Namespace, steps: int) -> tuple[float, float, float]:
    """Images a second of `train` without validation, its seconds, and those of validation."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*TOOL, "train", "--config", options.config]
        command += ["--device", options.device, "--threads", str(options.threads)]
        command += ["--runs-dir", folder]
        for override in (*options.overrides, f"train.max_steps={steps}"):
            command += ["--set", override]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        log = next(Path(folder).glob("*/log.jsonl")).read_text("utf-8").splitlines()
    events = [json.loads(line) for line in log]
    end = next(e for e in events if e["event"] == "end")
    training = float(end["training_seconds"])
    validation = sum(e["seconds"] for e in events if e["event"] == "validation")
    from dnnstack.configs import load_config

    batch = load_config(options.config, options.overrides).config.data.batch_size
    return steps * batch / training, training, validation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=30, help="of training, at least")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dnnstack.configs import load_config

    batch = load_config(options.config, options.overrides).config.data.batch_size
    ratios = []
    for _ in range(options.rounds):
        before = bare_images_per_second(options, 5)
        steps = int(1.1 * options.seconds * before / batch)
        reached, training, validation = train_images_per_second(options, steps)
        after = bare_images_per_second(options, 5)
        ratios.append(reached / median((before, after)))
        print(
            f"bare step {before:.0f} and {after:.0f} images/s; train {reached:.0f} images/s over "
            f"{training:.0f} s, validation {validation:.1f} s apart: {ratios[-1]:.1%}"
        )
    print(f"median of {options.rounds}: train reaches {median(ratios):.1%} of the bare step")


if __name__ == "__main__":
    main()
