"""``dnnstack.train_group``."""

from __future__ import annotations

import re

import dnnstack
import pytest
from dnnstack.training.groups import shelf

from ..support.training_fixtures import TINY


def test_a_group_and_its_report(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    config = tmp_path / "tiny.yaml"

    given = {"device": "numpy", "runs_dir": tmp_path / "runs", "seeds": 2}
    whole = dnnstack.train_group(config, resume="auto", **given)  # type: ignore[arg-type]
    assert (whole.finished, whole.planned) == (2, 2)
    assert whole.spreads["accuracy"].minimum <= whole.spreads["accuracy"].mean
    for resume in (True, "auto"):
        again = dnnstack.train_group(config, resume=resume, **given)  # type: ignore[arg-type]
        assert (again.path, again.runs) == (whole.path, whole.runs)
    assert re.fullmatch(
        r"<GroupReport of '.*tiny-seeds': 2 of 2 seeds finished, accuracy [\d.]+% on average, "
        r"deviation [\d.]+%>",
        repr(again),
    )
    compared = dnnstack.compare(*(again.path / name for name in again.runs), device="numpy")
    assert re.fullmatch(
        r"<Comparison on strokes \(test\), 20 samples: [\d.]+% and [\d.]+%, difference [+-][\d.]+%"
        r" \(95%: [+-][\d.]+% to [+-][\d.]+%\), p = [\d.]+>",
        repr(compared),
    )
    with pytest.raises(dnnstack.DnnstackError, match=r"^seeds: expected at least 2"):
        dnnstack.train_group(config, seeds=1)
    with pytest.raises(dnnstack.DnnstackError, match=r'take all with dnnstack.load_ensemble\("'):
        dnnstack.load("tiny-seeds", runs_dir=tmp_path / "runs")
    with pytest.raises(TypeError, match="either seeds or folds"):
        dnnstack.train_group(config)


def test_the_trainings_of_a_group_read_their_data_once(tmp_path, monkeypatch):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    read: list[object] = []

    def counted(*given: object) -> object:
        read.append(given[1])
        return load_data(*given)  # type: ignore[arg-type]

    load_data = shelf.load_data
    monkeypatch.setattr(shelf, "load_data", counted)
    dnnstack.train_group(
        tmp_path / "tiny.yaml", seeds=2, device="numpy", runs_dir=tmp_path / "runs"
    )
    assert read == ["train"]
