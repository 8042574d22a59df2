"""Small fixed nets whose weights and data follow from formulas, so that any library can have them.

``make_golden.py`` trains them elsewhere; the suite trains them here. NumPy and ``nets.yaml``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

STEPS = 10
BATCH = 6
CLASSES = 5
COUNT = 24


class Net(NamedTuple):
    """Layers as (kind, options), the picture's shape, and how the net is trained."""

    layers: list[tuple[str, dict[str, Any]]]
    picture: tuple[int, int, int]
    lr: float
    label_smoothing: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    loss: str = "cross_entropy"


def _layers(written: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Kinds and options of layers as a config writes them."""
    found = []
    for each in written:
        kind, options = next(iter(each.items())) if isinstance(each, dict) else (each, {})
        for key in ("body", "shortcut"):
            if isinstance(options.get(key), list):
                options[key] = _layers(options[key])
        if "branches" in options:
            options["branches"] = [_layers(branch) for branch in options["branches"]]
        found.append((kind, options))
    return found


def _net(layers: list[Any], picture: list[int], **training: Any) -> Net:
    return Net(_layers(layers), (picture[0], picture[1], picture[2]), **training)


_WRITTEN = yaml.safe_load(Path(__file__).with_name("nets.yaml").read_text("utf-8"))
NETS: dict[str, Net] = {name: _net(**written) for name, written in _WRITTEN.items()}


def weights(shape: tuple[int, ...], place: int) -> NDArray[np.float32]:
    """Values between -0.5 and 0.5 with no pattern to speak of, by integers alone."""
    index = np.arange(np.prod(shape), dtype=np.int64) + 1000 * place
    return ((index * index * 31 + index * 17) % 1009 / 1009 - 0.5).astype(np.float32).reshape(shape)


def images(picture: tuple[int, int, int]) -> NDArray[np.uint8]:
    index = np.arange(COUNT * np.prod(picture), dtype=np.int64)
    pixels = (index * index * 7 + index * 113 + index // 61) % 251
    return pixels.astype(np.uint8).reshape(COUNT, *picture)


def labels() -> NDArray[np.int32]:
    index = np.arange(COUNT)
    return ((index * index + index // 3) % CLASSES).astype(np.int32)


def order() -> NDArray[np.int32]:
    """Which samples each step takes: STEPS * BATCH entries."""
    return (np.arange(STEPS * BATCH) * 7 % COUNT).astype(np.int32)


# x = pixel * SCALE + SHIFT; both are exact in binary, so that no library rounds them.
SCALE = 1 / 128
SHIFT = -1.0
