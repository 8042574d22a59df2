"""Pages on experiments of the lectures: programs run, and figures are those that are recorded."""

from __future__ import annotations

import csv
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.datasets.download import Downloads
from dnnstack.datasets.idx_set import IdxSet
from dnnstack.datasets.image_set import ImageSet
from dnnstack.layers.losses.expected_cost import OneMinusP, SquaredDistance

from ..support.mnist_files import write
from ..support.pages import blocks
from ..support.plugin_files import forgetting

ROOT = Path(__file__).resolve().parents[2]
PAGE, ERRORS = (
    (ROOT / "docs" / name).read_text("utf-8") for name in ("reproduction.md", "error-functions.md")
)
STEPS = range(200, 1601, 200)


def records(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


RUNS, OF_LOSSES = (
    records(ROOT / "benchmarks" / name) for name in ("reproduction.csv", "error_functions.csv")
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the page has you write, and no plugin known behind it."""
    marks = {"first_488.py": "class First488", "slides.yaml": "name: slides", "figures.py": "csv.w"}
    for name, mark in marks.items():
        (text,) = (block for block in blocks(PAGE) if mark in block)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with forgetting():
        yield tmp_path


def test_batches_begin_at_256_t_modulo_234(folder, monkeypatch):
    def load(dataset: IdxSet, split: str, root: Path, downloads: Downloads) -> ImageSet:
        """As many pictures as MNIST has, each of which is its number in four pixels."""
        numbers = np.arange(60_000 if split == "train" else 10_000, dtype=np.uint32)
        images = numbers.view(np.uint8).reshape(-1, 1, 1, 4)
        return ImageSet(split, images, np.zeros(len(numbers), np.int32), dataset.classes)

    monkeypatch.setattr(IdxSet, "load", load)
    first = runpy.run_path("first_488.py")["First488"]

    def numbers(split: str, seed: int) -> np.ndarray:
        found = first(shuffle_seed=seed).load(split, Path(), Downloads())
        return np.ascontiguousarray(found.images).view(np.uint32).ravel()

    places: dict[int, int] = {}
    for step, batch in enumerate(numbers("train", 1).reshape(117, 256)):
        for place, number in enumerate(batch, step * 256 % 234):
            assert places.setdefault(number, place) == place
    assert sorted(places.values()) == list(range(488))
    assert set(numbers("train", 2)) != set(places)
    assert numbers("validation", 1).tolist() == list(range(1000))
    assert numbers("test", 1).tolist() == list(range(10_000))


def test_the_programs_of_the_page_run(folder, monkeypatch):
    digits = np.arange(1000 * 784).reshape(-1, 28, 28) % 251
    for part in ("train", "t10k"):
        names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        write(folder, digits, np.arange(1000) % 10, names=names)
    monkeypatch.setenv("DNNSTACK_DATA", str(folder))
    short = ("search.trials=2", "train.max_steps=120", "layers.dense_1.units=8")
    sweep = re.search(r"^    dnnstack (sweep .*)$", PAGE, re.MULTILINE)
    assert sweep is not None
    assert main([*sweep[1].split(), *(word for each in short for word in ("--set", each))]) == 0
    runpy.run_path("figures.py")
    one, other = records(Path("seeds.csv"))
    assert [*one] == [*RUNS[0]]
    assert all(one[seed] != other[seed] for seed in ("seed", "shuffle_seed"))
    rows = records(Path("runs/slides-sweep/trial-1/metrics.csv"))
    rows = [row for row in rows if row["split"] == "train"]
    for step in STEPS:
        steps = np.arange(step - 200, step)
        those = [rows[at] for at in np.where(steps < 120, steps, (steps - 3) % 117 + 3)]
        mean = np.mean([float(row["accuracy"]) for row in those])
        assert one[f"loss {step}"] == f"{float(those[-1]['loss']):.3f}"
        assert one[f"accuracy {step}"] == f"{100 * mean:.3f}"
    assert one["first 1000"] == one["all 10000"]


def test_the_page_says_of_the_seeds_what_is_recorded():
    """The slides' figures are those of its first table."""
    found = {name: np.array([float(run[name]) for run in RUNS]) for name in RUNS[0]}
    slides = dict.fromkeys(("first 1000", "all 10000"), 80.9)
    for name, start in (("loss", "| loss |"), ("accuracy", "| accuracy, % |")):
        line = next(line for line in PAGE.splitlines() if line.startswith(start))
        cells = line.removeprefix(start).strip("| ").split("|")
        slides |= {f"{name} {n}": float(cell) for n, cell in zip(STEPS, cells, strict=True)}
    for name, figure in slides.items():
        all_of_them, digits = found[name], 3 if name.startswith("loss") else 2
        mean, low, high = all_of_them.mean(), all_of_them.min(), all_of_them.max()
        near = 100 * (abs(all_of_them - mean) <= abs(figure - mean)).mean()
        spread = f"{mean:.{digits}f} ± {all_of_them.std(ddof=1):.{digits}f}"
        row = f" {spread} | {low:.{digits}f} to {high:.{digits}f} | {(all_of_them < figure).sum()}"
        row = rf"^\| {name}.*{re.escape(row)} \| {near:.0f}% \|$"
        assert re.search(row, PAGE, re.MULTILINE), row

    names = [f"{name} {step}" for step in STEPS for name in ("loss", "accuracy")]
    runs, slide = np.array([found[name] for name in names]).T, np.array([*map(slides.get, names)])
    apart, theirs = ((each - runs.mean(0)) / runs.std(0, ddof=1) for each in (runs, slide))
    size, sizes = np.sqrt((theirs**2).mean()), np.sqrt((apart**2).mean(1))
    trained, tested = runs[:, -1].mean(), found["first 1000"].mean()
    alike = np.mean([np.corrcoef(one, slide[::2])[0, 1] for one in runs[:, ::2]])
    said, count = " ".join(PAGE.split()), len(runs)
    for words in (
        f"ends at {trained:.1f}% in training and {tested:.1f}% in testing",
        f", {trained - tested:.1f} points apart",
        f"## The figures among {count} seeds",
        f"has {100 * np.linalg.eigvalsh(np.corrcoef(runs.T))[-1] / 16:.0f}% of the variance",
        f"of the mean, {(abs(theirs) > 2).sum()} of them by more than two",
        f"is {size:.2f} deviations from the mean; {(sizes <= size).sum()} of the {count} seeds are",
        f"at step 1000 in {(runs[:, 1::2].argmax(1) == 4).sum()} of the {count}",
        f"differ by {np.ptp(runs[:, 5::2], 1).mean():.3f} points on average",
        f"by {np.ptp(slide[5::2]):.3f} on the slides",
        f"with those of the slides is {alike:.2f} on average",
        f"and by {abs(runs[:, 2] - runs[:, 12]).mean():.3f} here",
        f"of {count} seeds, {'some have' if (apart[:, 1] >= theirs[1]).any() else 'none has'} that",
    ):
        assert words in said
    assert (theirs[::2] < 0).all()
    assert (theirs[1::2] > 0).all()


def test_the_table_of_error_functions_is_that_of_the_recorded_trainings():
    reached: dict[str, dict[str, list[float]]] = {}
    for row in OF_LOSSES:
        of_loss = reached.setdefault(row["loss"], {"dnnstack": [], "PyTorch": []})
        of_loss[row["program"]].append(float(row["accuracy"]))
    lines = [line.replace("`", "") for line in ERRORS.splitlines() if line.count(" ± ") == 2]
    for line, (loss, programs) in zip(lines, reached.items(), strict=True):
        means = (f"{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}" for each in programs.values())
        assert line.startswith(f"| {loss} |")
        assert line.endswith(f"| {' | '.join(means)} |")


def test_the_first_gradient_of_squared_distance_is_as_the_page_says():
    (told,) = (line for line in ERRORS.splitlines() if line.startswith("| mean gradient |"))
    uniform, classes = np.full((10, 10), 0.1), np.arange(10)
    wanted = {SquaredDistance(): told.strip("| ").split(" | ")[1:], OneMinusP(): ["0.0"] * 10}
    for rule, numbers in wanted.items():
        slope = rule.gradient(uniform, classes)
        of_scores = uniform * (slope - (uniform * slope).sum(1, keepdims=True))
        assert [f"{each:.1f}" for each in of_scores.mean(0) + 0.0] == numbers
