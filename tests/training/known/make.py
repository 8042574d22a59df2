"""Makes ``diabetes.csv``, ``iris.csv`` and ``figures.json`` from scikit-learn's data and fits.

python3 -m pip install scikit-learn==1.9.1, then python3 make.py. Of iris two kinds are left out or
united where one would be told exactly: then the likelihood has no greatest value.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score

HERE = Path(__file__).parent


def write(name: str, names: list[str], rows: list[list[object]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *rows])


diabetes, iris = load_diabetes(scaled=False), load_iris()
rows = [[*x, y] for x, y in zip(diabetes.data.tolist(), diabetes.target.tolist(), strict=True)]
write("diabetes.csv", [*diabetes.feature_names, "progression"], rows)
names = [name.removesuffix(" (cm)") for name in iris.feature_names]
kinds = [str(iris.target_names[each]) for each in iris.target]
flowers = [[*x, kind] for x, kind in zip(iris.data.tolist(), kinds, strict=True)]
write("iris.csv", [*names, "kind"], [row for row in flowers if row[-1] != "setosa"])

line = LinearRegression().fit(diabetes.data, diabetes.target)
told = line.predict(diabetes.data)
x, y = iris.data[iris.target > 0], iris.target[iris.target > 0] - 1
curve = LogisticRegression(C=np.inf, tol=1e-12, max_iter=100_000).fit(x, y)
chances = curve.predict_proba(x)[:, 1]
figures = {
    "diabetes": {"r2": r2_score(diabetes.target, told), "answers": told[:5].tolist()},
    "iris": {"loss": log_loss(y, chances), "chances": chances[:5].tolist()},
}
(HERE / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
