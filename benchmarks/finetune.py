"""What a start from trained weights brings, where pictures are few: three classes of CIFAR-10.

    python3 benchmarks/finetune.py --archive ~/data/cifar10/cifar10-jpeg.tar.xz --threads 2

The archive has one JPEG file for each picture, as train/CLASS/NNNN.jpg and test/CLASS/NNNN.jpg. A
small residual network (75,095 parameters) is trained on seven classes once. Then, for each seed,
20 pictures of each of the other three classes are drawn, and networks are trained on these 60
alone, in four ways:

    scratch    from initial weights, with each of three learning rates
    head       from the seven classes, everything but the last layer frozen
    all        from the seven classes, all layers, the others at a tenth of the last one's rate
    unfrozen   as head, but batch norm goes on counting: only its parameters are frozen

Prints each accuracy on the 3,000 test pictures of the three classes, then a table of mean and
deviation. Every training takes the same number of steps, and its last step is evaluated; nothing
is chosen on the test set, except for the learning rate of `scratch`, whose best one counts.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import mean, stdev

TOOL = (sys.executable, "-m", "dnnstack.cli")
OTHERS = ("horse", "ship", "truck")
PICTURES = 20
EPOCHS, STEPS = 10, 300
NET = """
data:
  dataset: {{image_folder: {{train: {train}, test: {test}, size: 32}}}}
  batch_size: {batch}
  validation: 0
  normalize: {{mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}}
  augment: [random_crop: {{padding: 4}}, random_flip]
blocks:
  basic:
    parameters: {{name: , filters: , stride: 1, shortcut: identity}}
    layers:
      - residual:
          name: $name
          body:
            - conv2d: {{filters: $filters, kernel_size: 3, stride: $stride, padding: 1,
                        use_bias: false, kernel_initializer: he_normal}}
            - batch_norm
            - relu
            - conv2d: {{filters: $filters, kernel_size: 3, padding: 1,
                        use_bias: false, kernel_initializer: he_normal}}
            - batch_norm
          shortcut: $shortcut
      - relu
layers:
  - sequential:
      name: body
      layers:
        - conv2d: {{filters: 16, kernel_size: 3, padding: 1, use_bias: false,
                    kernel_initializer: he_normal}}
        - batch_norm
        - relu
        - basic: {{name: small, filters: 16}}
        - basic: {{name: middle, filters: 32, stride: 2, shortcut: padding}}
        - basic: {{name: large, filters: 64, stride: 2, shortcut: padding}}
        - global_avg_pool2d
  - dense: {{name: head, units: {classes}}}
  - softmax
optimizer: {{type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5e-4}}
schedule: cosine
train: {length}
checkpoint: {{keep: 1}}
"""
WAYS = {
    "scratch, lr 0.1": ("optimizer.lr=0.1",),
    "scratch, lr 0.03": ("optimizer.lr=0.03",),
    "scratch, lr 0.01": ("optimizer.lr=0.01",),
    "head": ("optimizer.lr=0.1", "freeze=body"),
    "all": ("optimizer.lr=0.1", "optimizer.groups=[{parameters: body.*, lr_factor: 0.1}]"),
    "unfrozen": ("optimizer.lr=0.1", "optimizer.groups=[{parameters: body.*, frozen: true}]"),
}


def call(*words: str) -> str:
    """The standard output of a command of the tool; ends the benchmark with its message."""
    done = subprocess.run([*TOOL, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dnnstack {' '.join(words)}\n{done.stderr}")
    return done.stdout


def unpack(archive: Path, folder: Path) -> None:
    """The pictures as seven/train, seven/test, three/every and three/test, by class."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = member.name.split("/")
            if not member.isfile() or len(parts) != 3:
                continue
            split, kind, name = parts
            other = kind in OTHERS
            part = "every" if other and split == "train" else split
            target = folder / ("three" if other else "seven") / part / kind / name
            target.parent.mkdir(parents=True, exist_ok=True)
            data = tar.extractfile(member)
            assert data is not None
            target.write_bytes(data.read())


def draw(folder: Path, seed: int) -> Path:
    """A folder of links to as many pictures of each of the three classes."""
    target = folder / "three" / f"train-{seed}"
    for kind in OTHERS:
        (target / kind).mkdir(parents=True)
        every = sorted((folder / "three" / "every" / kind).iterdir())
        for path in random.Random(f"{seed} {kind}").sample(every, PICTURES):
            (target / kind / path.name).hardlink_to(path)
    return target


def write(path: Path, train: Path, test: Path, classes: int, batch: int, length: str) -> Path:
    fields = {"train": train, "test": test, "classes": classes, "batch": batch, "length": length}
    path.write_text(NET.format(**fields))
    return path


def accuracy(runs: Path) -> float:
    return float(
        json.loads(call("eval", "--runs-dir", str(runs), "--json", "--no-plots"))["accuracy"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the seven classes")
    parser.add_argument("--folder", type=Path, help="keep pictures and runs here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "seven").exists():
            unpack(options.archive, folder)
        given = ["--threads", str(options.threads), "--device", "cpu", "--quiet"]
        base = folder / "base"
        if not base.exists():
            seven, length = folder / "seven", f"{{epochs: {options.epochs}}}"
            config = write(folder / "seven.yaml", seven / "train", seven / "test", 7, 128, length)
            call("train", "--config", str(config), "--runs-dir", str(base), *given)
        print(f"the seven classes: {accuracy(base):.2%} of their test pictures", flush=True)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in range(options.first, options.first + options.seeds):
            few, test = draw(folder, seed), folder / "three" / "test"
            config = write(folder / "three.yaml", few, test, 3, 20, f"{{max_steps: {STEPS}}}")
            for way, changes in WAYS.items():
                runs = folder / f"runs-{seed}-{way.replace(', lr ', '-')}"
                start = [] if "scratch" in way else ["--init-from", str(base / "seven")]
                chosen = [word for each in (f"seed={seed}", *changes) for word in ("--set", each)]
                where = ["--runs-dir", str(runs)]
                call("train", "--config", str(config), *chosen, *start, *where, *given)
                found[way].append(accuracy(runs))
                print(f"seed {seed}, {way}: {found[way][-1]:.2%}", flush=True)
    print("\n| way | accuracy | lowest to highest |\n| --- | --- | --- |")
    for way, each in found.items():
        spread = f", deviation {100 * stdev(each):.2f}" if len(each) > 1 else ""
        print(f"| {way} | {mean(each):.2%}{spread} | {min(each):.2%} to {max(each):.2%} |")


if __name__ == "__main__":
    main()
