"""Where ``dnnstack eval`` draws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dnnstack.cli.evaluate import _plots_dir


@pytest.mark.parametrize(
    ("dataset", "name"), [("strokes", "eval-test"), ("mnist", "eval-mnist-test")]
)
def test_another_data_set_has_a_folder_of_its_own(trained, dataset, name):
    path = trained / "runs/tiny/checkpoints/step-26.safetensors"
    checkpoint = SimpleNamespace(provenance=SimpleNamespace(dataset="strokes"))
    found: Any = SimpleNamespace(path=path, checkpoint=checkpoint)
    result: Any = SimpleNamespace(dataset=dataset, part="test")
    assert _plots_dir(found, result) == trained / "runs" / "tiny" / name
