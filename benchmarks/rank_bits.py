"""Packaged networks trained by one, two and four ranks on a CPU: whether they end in the same bits.

    python3 benchmarks/rank_bits.py --data-dir ~/data
    python3 benchmarks/rank_bits.py --data-dir ~/data --configs lenet.yaml --steps 40

Each is trained with ``train.accumulate: 4`` and one thread for each rank: by one process, by two
ranks, by four, and by four whose run two go on with, then one. A line for each says whether all end
in the arrays of one process's checkpoint, to the bit, and the first three in its ``metrics.csv``;
exit status 1 if not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.numpy import load_file

# Steps of each, and pictures of a batch where the config's own takes long.
NETS: dict[str, tuple[int, tuple[str, ...]]] = {
    "lenet.yaml": (30, ()),
    "mnist-best.yaml": (6, ()),
    "cifar10-resnet9.yaml": (3, ("data.batch_size=32",)),
    "cifar10-airbench-muon.yaml": (3, ("data.batch_size=32",)),
}
# What each has besides: rates that do not depend on how many steps follow, and short validations.
COMMON = ("train.accumulate=4", "schedule=fixed", "data.validation=64", "train.log_every=1")
COMMON += ("run.tune=false",)


def train(folder: Path, name: str, ranks: int, options: argparse.Namespace, *given: str) -> None:
    """Raises CalledProcessError, with what the command said."""
    words = [sys.executable, "-m", "dnnstack.cli", "train", "--threads", "1", "--offline", "-q"]
    words += ["--data-dir", str(options.data_dir), "--runs-dir", str(folder), *given]
    words += ["--ranks", str(ranks)] if ranks > 1 else []
    changes = (*COMMON, f"name={name}")
    words += [word for change in changes for word in ("--set", change)]
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=3600)


def ended(run: Path) -> tuple[dict[str, bytes], str]:
    """The arrays of the newest checkpoint, and the log's numbers."""
    files = run.glob("checkpoints/*.safetensors")
    newest = max(files, key=lambda path: int(path.stem.split("-")[1]))
    arrays = {name: array.tobytes() for name, array in load_file(newest).items()}
    return arrays, (run / "metrics.csv").read_text("utf-8")


def compared(config: str, options: argparse.Namespace) -> bool:
    steps, own = NETS.get(config, (options.steps or 10, ()))
    steps = options.steps or steps
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = (*own, "train.epochs=null", f"train.max_steps={steps}")
        given = ["--config", config, *(word for change in own for word in ("--set", change))]
        for ranks in (1, 2, 4):
            train(folder, f"by-{ranks}", ranks, options, *given)
        third = max(1, steps // 3)
        for number, ranks in enumerate((4, 2, 1)):
            until = steps if ranks == 1 else third * (number + 1)
            words = ["--set", f"train.max_steps={until}"]
            words += ["--resume", str(folder / "in-turn")] if number else []
            train(folder, "in-turn", ranks, options, *given, *words)
        found = {name: ended(folder / name) for name in ("by-1", "by-2", "by-4", "in-turn")}
    one = found.pop("by-1")
    wrong = [name for name, each in found.items() if each[0] != one[0]]
    # The log of the run that was resumed has lines of where it ended besides.
    lines = [name for name in ("by-2", "by-4") if found[name][1] != one[1]]
    told = "equal" if not wrong and not lines else f"NOT EQUAL: {wrong}, metrics.csv {lines}"
    print(f"{config}: {steps} steps, {told}; {time.monotonic() - begin:.0f} s", flush=True)
    return not wrong and not lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--configs", nargs="+", default=list(NETS))
    parser.add_argument("--steps", type=int, help="of each training")
    options = parser.parse_args()
    try:
        equal = [compared(config, options) for config in options.configs]
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}\n{error.stderr}")
    sys.exit(not all(equal))


if __name__ == "__main__":
    main()
