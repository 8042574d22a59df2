"""``dnnstack.train_group``."""

from __future__ import annotations

from pathlib import Path

import dnnstack
import pytest

from ..support.training_fixtures import TINY


def test_a_group_and_its_report(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    config = tmp_path / "tiny.yaml"

    given = {"device": "numpy", "runs_dir": tmp_path / "runs", "seeds": 2}
    whole = dnnstack.train_group(config, **given)  # type: ignore[arg-type]
    assert (whole.finished, whole.planned) == (2, 2)
    assert whole.spreads["accuracy"].minimum <= whole.spreads["accuracy"].mean
    again = dnnstack.train_group(config, resume=True, **given)  # type: ignore[arg-type]
    assert again.runs == whole.runs
    with pytest.raises(TypeError, match="either seeds or folds"):
        dnnstack.train_group(config)
