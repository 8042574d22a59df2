"""Weight gradients with their update by SGD: any sizes and tilings, and what is right."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry, UpdateTiling, update_tilings
from dnnstack.backends.cuda.fused.dense_update import CANDIDATES
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT
from dnnstack.backends.cuda.libraries.runtime import H200

from .emulated_kernels import library, loaded, pointer, stored
from .tensor_convs import numbers

# Numbers behind the end of a matrix, which a wrong load would find, or a wrong store change.
BEYOND = 64
RATE, NOW = np.float32(0.3), 2


@dataclass(frozen=True)
class Drawn:
    """A product, a tiling of it, and what follows: factor of the rate, weight decay, and so on."""

    tiling: UpdateTiling
    rule: tuple[float, float]
    momentum: float
    nesterov: bool
    early: bool

    @property
    def geometry(self) -> DenseGeometry:
        return self.tiling.geometry

    @property
    def bf16(self) -> bool:
        return self.geometry.dtype == BFLOAT

    def __str__(self) -> str:
        return f"{self.geometry}, {'-'.join(map(str, self.tiling.numbers.values()))}, {self.rule}"

    def numbers(self) -> dict[str, int]:
        """What the kernel is compiled with."""
        kept = ("ROWS", "COLUMNS", "DEPTH", "A_PITCH", "B_PITCH", "C_PITCH", "COUNTED")
        values = {name: self.geometry.numbers()[name] for name in kept}
        return values | self.tiling.numbers | {"BFLOAT": int(self.bf16), "EARLY": int(self.early)}


def draw(seed: int, most: int = 150, depth: int = 200, dtype: str | None = None) -> Drawn:
    """Anything odd: padding on every side, depths that no stage divides, frozen weights."""
    dice = random.Random(seed)
    dtype = dtype or dice.choice([FLOAT, BFLOAT])
    chunk = 8 if dtype == BFLOAT else 4

    def pitch(size: int, multiple: int) -> int:
        return (-(-size // multiple) + dice.randint(0, 2)) * multiple

    while True:
        rows, columns, deep = (dice.randint(1, size) for size in (most, most, depth))
        pitches = (pitch(rows, chunk), pitch(columns, chunk), pitch(columns, 4))
        counted = dice.randint(max(1, columns - 3), columns)
        sizes = (rows, columns, deep, pitches, False, False, counted)
        found = update_tilings(DenseGeometry(*sizes, dtype, FLOAT), 1000, H200)
        # Few rows and columns that are not deep either have no work for four warps.
        if found:
            break
    rule = dice.choice([(1.0, 0.0), (0.5, 0.01), (2.0, 0.1), (0.0, 0.1)])
    momentum = dice.choice([0.0, 0.9])
    odds = [dice.random() < 0.5 for _ in range(2)]
    return Drawn(dice.choice(found), rule, momentum, *odds)


def promising(name: str, dtype: str) -> list[Drawn]:
    """The ways that a search times for a layer of a small network."""
    inputs, depth = {"LeNet": (800, 64), "MLP": (784, 256)}[name]
    pitches = (512 if dtype == BFLOAT else 500, inputs, inputs)
    geometry = DenseGeometry(500, inputs, depth, pitches, False, False, inputs, dtype, FLOAT)
    found = update_tilings(geometry, CANDIDATES, H200)
    return [Drawn(each, (1.0, 0.0), 0.9, False, True) for each in found]


class Layer:
    """Operands, weights and momentum of a drawn product as a kernel is given them."""

    def __init__(self, drawn: Drawn, rng: np.random.Generator) -> None:
        g = self.geometry = drawn.geometry
        self.drawn = drawn
        self.a = numbers(rng, (g.depth, g.rows), drawn.bf16)
        self.b = numbers(rng, (g.depth, g.columns), drawn.bf16)
        self.weights, self.velocity = (self._lying(rng) for _ in range(2))

    def _lying(self, rng: np.random.Generator) -> np.ndarray:
        """(rows, pitch), aligned, zero in the padding."""
        g = self.geometry
        place = aligned(np.zeros((g.rows + 1) * g.pitches[2] + BEYOND, np.float32))
        place[-BEYOND:] = np.nan
        held = place[: g.rows * g.pitches[2]].reshape(g.rows, -1)
        held[:, : g.counted] = rng.standard_normal((g.rows, g.counted))
        return held

    def wanted(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and momentum after the update, in float64."""
        g, drawn = self.geometry, self.drawn
        old, velocity = self.weights.astype(np.float64), self.velocity.astype(np.float64)
        factor, decay = drawn.rule
        if factor == 0.0:
            return old, velocity
        gradient = np.zeros((g.rows, g.pitches[2]))
        found = self.a.T.astype(np.float64) @ self.b
        gradient[:, : g.counted] = found[:, : g.counted]
        gradient += decay * old
        if drawn.momentum:
            velocity = drawn.momentum * velocity + gradient
            gradient = gradient + drawn.momentum * velocity if drawn.nesterov else velocity
        return old - RATE * factor * gradient, velocity


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at an address that is a multiple of 16."""
    place = np.zeros(array.nbytes + 16, np.uint8)
    first = -place.ctypes.data % 16
    found = place[first : first + array.nbytes].view(array.dtype)
    found[...] = array
    return found


class Emulated:
    """The kernel for one tiling, on the processor."""

    def __init__(self, drawn: Drawn, folder: Path) -> None:
        self.drawn = drawn
        self._library = library("dense_update", folder, drawn.numbers())

    def sizes(self) -> tuple[int, int]:
        """Bytes of shared memory, threads."""
        found = [ctypes.c_int() for _ in range(2)]
        self._library.sizes(*map(ctypes.byref, found))
        return found[0].value, found[1].value

    def run(self, layer: Layer) -> np.ndarray:
        """Update a layer's weights and momentum; the copy in bfloat16."""
        g, drawn = self.drawn.geometry, self.drawn
        ends = [
            aligned(self._stored(values, pitch))
            for values, pitch in zip((layer.a, layer.b), g.pitches, strict=False)
        ]
        for end in ends:
            self._library.give(pointer(end), ctypes.c_longlong(end.nbytes))
        rates = np.zeros(NOW + 1, np.float32)
        rates[NOW] = RATE
        step, rule = np.array([NOW], np.int64), np.array(drawn.rule, np.float32)
        copy = aligned(stored(layer.weights, True))
        grid = (ctypes.c_int * 2)(*drawn.tiling.grid())
        self._library.run(
            *map(pointer, (*ends, layer.weights)),
            pointer(layer.velocity if drawn.momentum else None),
            *map(pointer, (copy, rule, rates, step)),
            *(ctypes.c_float(drawn.momentum), int(drawn.nesterov), grid),
        )
        assert step[0] == NOW
        return loaded(copy, True, layer.weights.shape)

    def _stored(self, values: np.ndarray, pitch: int) -> np.ndarray:
        """Rows as they lie, with NaN in their padding: it is read only beside numbers."""
        rows, columns = values.shape
        held = np.full((rows, pitch), np.nan, np.float32)
        held[:, :columns] = values
        return stored(held, self.drawn.bf16)
