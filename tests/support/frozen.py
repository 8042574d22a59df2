"""Numbers and texts that are stored beside a test: what was made is made again.

With ``DNNSTACK_STORE=1`` they are stored anew, after a deliberate change; the difference that git
shows is to be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from dnnstack.backends.base import Array

from .described import differences

MOST = 8
"""Of more elements two sums are kept, in which each has a weight of its own."""


def kept(values: Array) -> Array:
    # The words of a masked target are no number.
    flat = np.nan_to_num(np.asarray(values, np.float64).ravel(), nan=-1.0)
    if flat.size <= MOST:
        return flat
    places = np.arange(flat.size)
    return np.array([flat @ np.cos(turn * places) for turn in (1.0, 2.3)])


def _differs(found: Mapping[str, Array], stored: Mapping[str, list[float]], rtol: float) -> bool:
    if found.keys() != stored.keys():
        return True
    for key, values in found.items():
        atol = rtol * max(1.0, float(np.nansum(np.abs(values))))
        numbers = kept(values)
        wanted = np.array(stored[key])
        if numbers.shape != wanted.shape or not np.allclose(numbers, wanted, rtol=0.0, atol=atol):
            return True
    return False


def changed(test: str, found: Mapping[str, Mapping[str, Array]], rtol: float = 1e-10) -> list[str]:
    """Names whose arrays are not those in the JSON file that is called as the test's own.

    rtol: of the sum of an array's absolute values; by default for results in float64.
    """
    file = Path(test).with_name(f"{Path(test).stem.removeprefix('test_')}.json")
    if os.environ.get("DNNSTACK_STORE") == "1":
        lines = []
        for name, arrays in found.items():
            rounded = {k: [float(f"{x:.13g}") for x in kept(v)] for k, v in arrays.items()}
            lines.append(f"{json.dumps(name)}: {json.dumps(rounded)}")
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    stored = json.loads(file.read_text("utf-8"))
    lost = sorted(stored.keys() - found.keys())
    return [*lost, *(n for n, v in found.items() if _differs(v, stored.get(n, {}), rtol))]


def retold(test: str, text: str) -> Sequence[str]:
    """How the text differs from that in the file that is called as the test's own."""
    file = Path(test).with_name(f"{Path(test).stem.removeprefix('test_')}.txt")
    if os.environ.get("DNNSTACK_STORE") == "1":
        file.write_text(text, encoding="utf-8")
    return differences(text, file.read_text("utf-8"))
