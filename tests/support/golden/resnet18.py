"""Weights and pictures for ResNet-18 by the names that PyTorch gives its arrays; no pattern."""

from __future__ import annotations

import json
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .golden_nets import weights

STORED = Path(__file__).with_name("resnet18.json")


def stored() -> dict[str, Any]:
    """Shapes by name and scores by size of the picture, as PyTorch gave them."""
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


def values(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array that lets signals keep their size through the network."""
    drawn = weights(shape, zlib.crc32(name.encode()) % 997)
    if len(shape) > 1:
        # A deviation of sqrt(2 / inputs).
        return drawn * np.float32(np.sqrt(24.0 / prod(shape[1:])))
    if name.endswith("running_var"):
        return drawn + np.float32(1.0)
    if name.endswith("weight"):
        return np.float32(0.2) * drawn + np.float32(0.3)
    return np.float32(0.2) * drawn


def picture(size: int) -> NDArray[np.float32]:
    """(1, 3, size, size), between -2 and 2."""
    return 4 * weights((1, 3, size, size), size)
