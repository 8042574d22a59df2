"""Convolutions side by side: errors, repeats, and what the tables show."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Engine
from dnnstack.common.errors import CudnnError
from dnnstack.graph.ops import Conv2d
from dnnstack.reports import algorithms as report_module

from ..support.algorithms import summed
from ..support.opened import opened


class Odd:
    """A backend whose ways differ: off by 1, changing, denying to repeat, failing."""

    name = "odd"

    def engines(self, op: Conv2d, x: Array, w: Array) -> list[Engine]:
        want = summed(op, x.astype(np.float64), w.astype(np.float64))
        self.off = 1 / np.abs(want).max()
        drawn = iter([want, want + 1])

        def fail() -> Array:
            raise CudnnError("cuDNN frontend", "pygraph", "no memory", {})

        rows = {
            "off": ((), lambda: want + 1),
            "changes": ((), lambda: next(drawn)),
            "denies": (("NONDETERMINISTIC",), lambda: want),
            "fails": ((), fail),
        }
        return [
            Engine("odd", name, notes, None, 2048, run, lambda: 1e-9)
            for name, (notes, run) in rows.items()
        ]


def test_a_comparison_tells_errors_and_repeats(tiny, monkeypatch):
    monkeypatch.setattr(report_module, "check_memory", lambda network, backend: None)
    odd = Odd()
    layers = "layers=[{conv2d: {filters: 2, kernel_size: 3}}, flatten, {dense: {units: 10}}]"
    found = report_module.compare(tiny(layers, "data.batch_size=2"), Path("tiny.yaml"), odd)
    (one,) = found.to_json()["convolutions"]
    ways = {each["name"]: each for each in one["algorithms"]}
    assert list(ways) == ["direct", "im2col", "fft", "winograd", "off", "changes", "denies"]
    assert [each["repeats"] for each in ways.values()] == [True] * 5 + [False] * 2
    assert ways["off"]["error"] == pytest.approx(odd.off)
    assert all(0 < ways[name]["error"] < 1e-5 for name in list(ways)[:4])
    (fails,) = one["refused"]
    assert fails.startswith("odd fails: cuDNN frontend")
    text = found.as_text()
    assert text.index("odd off") < text.index("numpy direct")
    row = r"odd denies +1 ns +2.00 KiB +\d\.\de-1\d +- +no +NONDETERMINISTIC"
    assert re.search(row, text)
    assert "NONDETERMINISTIC" not in found.as_text(60)


def test_equal_convolutions_are_computed_once(tiny, monkeypatch):
    computed = list[Conv2d]()

    def count(op: Conv2d, backend: Backend) -> dict[str, object]:
        computed.append(op)
        return {"algorithms": [], "refused": ["fft is no friend of it"]}

    monkeypatch.setattr(report_module, "_computed", count)
    end = "flatten, {dense: {units: 10}}]"
    same = "{conv2d: {filters: 1, kernel_size: 3, padding: same}}"
    layers = f"layers=[{same}, {same}, {{conv2d: {{filters: 1, kernel_size: 3}}}}, {end}"
    found = report_module.compare(tiny(layers), Path("tiny.yaml"), opened("numpy"))
    assert [each["layer"] for each in found.convolutions] == ["conv2d_1", "conv2d_2", "conv2d_3"]
    assert len(computed) == 2
    assert found.as_text().count("refused: fft is no friend of it") == 3
    none = report_module.compare(tiny(f"layers=[{end}"), Path("tiny.yaml"), opened("numpy"))
    assert none.as_text().splitlines()[1] == "There are none."
