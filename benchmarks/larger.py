"""What `train` reaches on pictures that memory cannot hold, of its rate on pictures that fit.

    python3 benchmarks/larger.py --gib 12 --memory 2 --folder /var/tmp
    python3 benchmarks/larger.py --gib 3 --memory 0.5 --set data.batch_size=50

As root, for it makes a control group with so much memory, the system's copies of files included,
and joins it. There it draws JPEG pictures of 128 x 128 pixels, as many as fill --gib when they are
decoded, and a set of a tenth of the memory; each picture has several names, to be drawn soon. The
first start on either set decodes it; then both are trained in turn by the layers of cifar10-quick,
each time after the decoded pictures have left memory. Both folders are deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from decode import draw
from end_to_end import train_images_per_second

SIDE, CLASSES, NAMES = 128, 4, 25
# The folder of each version of control groups, and its file of the limit.
GROUPS = (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))


@contextmanager
def group_of(gib: float) -> Iterator[None]:
    """Inside this block the process is in a new group with so much memory."""
    root, limit = next((Path(r), name) for r, name in GROUPS if (Path(r) / "cgroup.procs").exists())
    group = root / f"dnnstack-larger-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text(str(int(gib * 2**30)), "ascii")
    (group / "cgroup.procs").write_text(str(os.getpid()), "ascii")
    try:
        yield
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()), "ascii")
        group.rmdir()


def config_of(folder: Path, gib: float) -> str:
    """A config, and its pictures."""
    count = int(gib * 2**30) // (3 * SIDE * SIDE * NAMES)
    draw(folder / "drawn", count, (SIDE, SIDE))
    for path in (folder / "drawn").rglob("*.jpg"):
        place = folder / "pictures" / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
        for name in range(NAMES):
            os.link(path, place / f"{path.stem}-{name}.jpg")
    lines = Path(__file__).parents[1].joinpath("configs", "cifar10-quick.yaml").read_text("utf-8")
    config = folder / "config.yaml"
    chosen = f"{{image_folder: {{train: pictures, size: {SIDE}, test_fraction: 0.001}}}}"
    lines = lines.replace("dataset: cifar10", f"dataset: {chosen}")
    config.write_text(lines.replace("units: 10,", f"units: {CLASSES},"), "utf-8")
    return str(config)


def forget(cache: Path) -> None:
    for path in cache.rglob("images.npy"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def compare(options: argparse.Namespace, configs: dict[str, str], cache: Path) -> None:
    ratios = []
    for kind, options.config in configs.items():
        began = time.perf_counter()
        train_images_per_second(options, 1)
        print(f"{kind}: first start {time.perf_counter() - began:.0f} s", flush=True)
    for _ in range(options.rounds):
        rates = {}
        for kind, options.config in configs.items():
            forget(cache)
            began = time.perf_counter()
            rates[kind], training, _ = train_images_per_second(options, options.steps)
            start = time.perf_counter() - began - training
            print(f"{kind}: start {start:.1f} s, {rates[kind]:.0f} images/s", flush=True)
        ratios.append(rates["larger"] / rates["fits"])
    print(f"median of {options.rounds}: {median(ratios):.1%} of the rate of a set that fits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=12)
    parser.add_argument("--memory", type=float, default=2, help="GiB")
    parser.add_argument("--folder", default=None, help="on the disk to be measured")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.device = "cpu"
    os.environ.pop("DNNSTACK_DATA", None)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        os.environ["DNNSTACK_CACHE"] = f"{name}/cache"
        sets = {"fits": options.memory / 10, "larger": options.gib}
        configs = {kind: config_of(Path(name) / kind, gib) for kind, gib in sets.items()}
        with group_of(options.memory):
            compare(options, configs, Path(name) / "cache")


if __name__ == "__main__":
    main()
