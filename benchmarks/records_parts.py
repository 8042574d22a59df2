"""What records.py searches, and small data to try it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
OWN = HERE / "records"
# Pictures to train on and to judge by, to try the program.
TINY = (1400, 100)


@dataclass(frozen=True)
class Part:
    """What is searched.

    ``search``: the files that make the config, one behind the other. ``present``: the recipe to
    beat, if any. ``goal``: the accuracy to reach; None: that of the present recipe. ``fastest``:
    take the fastest that reaches it, else the most accurate. ``fits``: candidates are where a
    function fitted to all trials points to; ``costs``: keys on which the seconds depend; each
    combination of their values has candidates. ``tested``: what is looked for on the test set, if
    that is not ``goal``.
    """

    search: tuple[Path, ...]
    present: str | None
    goal: float | None
    fastest: bool
    held_out: int
    workers: int
    judged: int
    tiny: tuple[str, ...] = ()
    fits: bool = False
    costs: tuple[str, ...] = ()
    tested: float | None = None


_MUON = CONFIGS / "cifar10-airbench-muon.yaml"
PARTS = {
    "lenet": Part(
        (CONFIGS / "search" / "lenet-search.yaml",), None, 0.995, False, 10_000, 3, 5,
        tiny=("train={max_steps: 20}", "data.batch_size=32"),
    ),
    "mnist": Part(
        (OWN / "mnist.yaml",), None, 0.988, True, 10_000, 1, 25,
        tiny=("train={max_steps: 20}",), fits=True, costs=("train.max_steps",), tested=0.99,
    ),
    "cifar10": Part(
        (CONFIGS / "cifar10-fast.yaml", OWN / "cifar10.yaml"), str(_MUON), None, True, 5_000, 1, 25,
        tiny=("data.batch_size=16", "data.evaluation_batch_size=50", "train.max_steps=12"),
        fits=True, costs=("train.max_steps",),
    ),
}  # fmt: skip


def shapes(key: str) -> bool:
    """Whether other values of a key are other shapes, for which calls are chosen anew."""
    return key.startswith("layers.") or key in ("data.batch_size", "optimizer.iterations")


def noise(name: str, count: int) -> Any:
    """Random pictures of the shape of a data set, to try the program."""
    import numpy as np
    from dnnstack.datasets import ImageSet, describe

    info, draw = describe(name), np.random.default_rng(count)
    images = draw.integers(0, 256, (count, *info.shape), np.uint8)
    return ImageSet(name, images, draw.integers(0, 10, count).astype(np.int32), info.classes)


def small_set(name: str, folder: Path) -> str:
    """A small data set for the sweep, to try the program."""
    if name != "cifar10":
        return f"{{strokes: {{train_count: {TINY[0]}, test_count: {TINY[1]}}}}}"
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(1)
    for number in range(400):
        path = folder / "pictures" / str(number % 10) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    return f"{{image_folder: {{train: {folder / 'pictures'}, size: 32}}}}"
