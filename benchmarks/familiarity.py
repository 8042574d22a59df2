"""What a calibrated digit network takes for a digit: false alarms and AUROC by the familiarity, and
in brackets by the largest probability, where both keep the same share of its validation pictures.

    DNNSTACK_DATA=~/data python3 benchmarks/familiarity.py runs/lenet cifar10/test

The second argument is a folder of photographs, which are made grey and scaled to 28 x 28 pixels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from dnnstack import load
from dnnstack.reports.fonts import font
from dnnstack.training.metrics import roc_auc
from PIL import Image, ImageDraw

COUNT, LETTERS = 2000, "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghkmnpqrtuvwxyz"


def letter(number: int, draws: np.random.Generator) -> Image.Image:
    """As large as a digit, turned by up to 15 degrees and moved by up to 2 pixels."""
    page, size = Image.new("L", (28, 28)), int(draws.integers(20, 28))
    sign = LETTERS[number % len(LETTERS)]
    ImageDraw.Draw(page).text((14, 14), sign, 255, font(size), anchor="mm")
    moved, bilinear = draws.integers(-2, 3, 2).tolist(), Image.Resampling.BILINEAR
    return page.rotate(draws.uniform(-15, 15), bilinear, translate=moved)


run, photographs = sys.argv[1:]
network, draws = load(run), np.random.default_rng(0)
every, index = network.load_part("validation")
digits = np.asarray(network.load_part("test")[0].images)
first, files = digits[:COUNT], sorted(Path(photographs).rglob("*.jpg"))[::2][:COUNT]
kinds = {
    "letters of a font": [letter(number, draws) for number in range(COUNT)],
    "noise": draws.integers(0, 256, first.shape, np.uint8),
    "turned by 45 degrees": [Image.fromarray(each[0]).rotate(45) for each in first],
    "turned by 90 degrees": np.rot90(first, 1, (2, 3)),
    "upside down": np.rot90(first, 2, (2, 3)),
    "in a mirror": first[..., ::-1],
    "inverted": 255 - first,
    "photographs": [Image.open(path).convert("L").resize((28, 28)) for path in files],
}
rows: dict[str, list[str]] = {name: [] for name in kinds}
keep = np.mean(network.familiarity(every.images[index]) >= 0)
for score in (network.familiarity, lambda pictures: network.predict_proba(pictures).max(1)):
    least, own = np.quantile(score(every.images[index]), 1 - keep), score(digits)
    print(f"{np.mean(own >= least):.1%} of the test are kept")
    for name, pictures in kinds.items():
        found = score(np.stack([np.asarray(each).reshape(1, 28, 28) for each in pictures]))
        area = roc_auc(np.repeat([True, False], [len(own), len(found)]), np.append(own, found))
        rows[name] += [f"{np.mean(found >= least):.1%}", f"{area:.3f}"]
for name, (alarms, area, alarms_by_p, area_by_p) in rows.items():
    print(f"| {name} | {alarms} ({alarms_by_p}) | {area} ({area_by_p}) |")
