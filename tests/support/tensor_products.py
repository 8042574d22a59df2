"""Products for the kernel on tensor cores: any sizes, transpositions and tilings."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry, DenseTiling, dense_tilings
from dnnstack.backends.cuda.fused.tensor_dense import TensorDense
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import MatMul

from . import emulated_build
from .op_draft import Draft
from .tensor_convs import numbers

# Numbers behind the end of a matrix, which a wrong load would find.
BEYOND = 64
ALPHA = 0.3
# Of a dense layer's three products: whether a, b are transposed.
TRANSPOSED = {"forward": (False, True), "data": (False, False), "filter": (True, False)}


@dataclass(frozen=True)
class DrawnProduct:
    """kernel: bias and activation that it ends with."""

    tiling: DenseTiling
    bias: bool
    activation: str | None

    @property
    def geometry(self) -> DenseGeometry:
        return self.tiling.geometry

    @property
    def bf16(self) -> bool:
        return self.geometry.dtype == BFLOAT

    def __str__(self) -> str:
        g, tail = self.geometry, f"{self.bias} {self.activation}"
        return f"{g}, {'-'.join(map(str, self.tiling.numbers.values()))}, {tail}"


def draw_product(seed: int, kind: str, most: int = 70, depth: int = 200) -> DrawnProduct:
    """A product with anything odd, and one of its tilings.

    kind: "forward" (a b^T), "data" (a b), "filter" (a^T b) or "both" (a^T b^T).
    """
    dice = random.Random(f"{seed} {kind}")
    deep_a, deep_b = kind in ("forward", "data"), kind in ("forward", "both")
    while True:
        dtype, result = dice.choice([(FLOAT, FLOAT), (BFLOAT, BFLOAT), (BFLOAT, FLOAT)])
        chunk = 8 if dtype == BFLOAT else 4
        rows, columns, deep = (dice.randint(1, size) for size in (most, most, depth))
        if deep_a or deep_b:
            deep = -(-deep // chunk) * chunk

        def pitch(size: int, multiple: int) -> int:
            return (-(-size // multiple) + dice.randint(0, 2)) * multiple

        a, b = deep if deep_a else rows, deep if deep_b else columns
        c = pitch(columns, dice.choice([1, 2, 4]))
        geometry = DenseGeometry(
            *(rows, columns, deep, (pitch(a, chunk), pitch(b, chunk), c), deep_a, deep_b),
            *(dice.randint(max(1, columns - 3), columns), dtype, result),
        )
        found = dense_tilings(geometry, 1000, H200)
        if found:
            activation = dice.choice([None, "relu", "leaky_relu", "tanh"])
            activation = activation if dtype == result else None
            return DrawnProduct(dice.choice(found), dice.random() < 0.6, activation)


def operands(
    drawn: DrawnProduct, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """a and b as stored, without padding, and the bias of the columns that count.

    Normal numbers, that bfloat16 holds where the operands are; sums are of about 1.
    """
    g = drawn.geometry
    a = numbers(rng, (g.rows, g.depth) if g.deep_a else (g.depth, g.rows), drawn.bf16)
    b = numbers(rng, (g.columns, g.depth) if g.deep_b else (g.depth, g.columns), drawn.bf16)
    a *= 2.0 ** -round(np.log2(g.depth) / 2)
    return a, b, numbers(rng, (g.counted,), False) if drawn.bias else None


def product(
    drawn: DrawnProduct, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """c in float64 of a, b as stored."""
    g = drawn.geometry
    left, right = (a if g.deep_a else a.T), (b.T if g.deep_b else b)
    c = left.astype(np.float64) @ right.astype(np.float64)
    if bias is not None:
        c[:, : g.counted] += bias
    ends = {
        None: lambda v: v,
        "relu": lambda v: np.maximum(v, 0.0),
        "leaky_relu": lambda v: np.where(v > 0.0, v, ALPHA * v),
        "tanh": np.tanh,
    }
    c = ends[drawn.activation](c)
    c[:, g.counted :] = 0.0
    return c


class EmulatedProduct:
    """The kernel for one tiling, on the processor."""

    def __init__(self, drawn: DrawnProduct, folder: Path, **defines: int) -> None:
        self.drawn = drawn
        values = drawn.geometry.numbers() | drawn.tiling.numbers | {"BFLOAT": int(drawn.bf16)}
        self._library = emulated_build.library("tensor_dense", folder, values | defines)

    def sizes(self) -> tuple[int, int, int]:
        """Bytes of shared memory, threads, stages."""
        found = [ctypes.c_int() for _ in range(3)]
        self._library.sizes(*map(ctypes.byref, found))
        bytes_, threads, stages = (each.value for each in found)
        return bytes_, threads, stages

    def run(self, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """c as stored, (rows, pitch), of a, b without their padding; NaN where nothing is written,
        and in the operands' padding and behind them."""
        g = self.drawn.geometry
        lying = [self._stored(v, pitch) for v, pitch in zip((a, b), g.pitches, strict=False)]
        layout = Layout((g.rows, g.pitches[2]), (g.rows, g.pitches[2]), dtype=g.result)
        c = layout.pack(np.full(layout.shape, np.nan, np.float32))
        ends = [ctypes.c_void_p(array.ctypes.data) for array in (*lying, c)]
        given = None if bias is None else ctypes.c_void_p(bias.ctypes.data)
        grid = (ctypes.c_int * 2)(*self.drawn.tiling.grid())
        self._library.run(ends[0], ends[1], given, ends[2], ctypes.c_float(ALPHA), grid)
        return layout.unpack(c)

    def _stored(self, values: np.ndarray, pitch: int) -> np.ndarray:
        rows, columns = values.shape
        held = np.full(rows * pitch + BEYOND, np.nan, np.float32)
        held[: rows * pitch].reshape(rows, pitch)[:, :columns] = values
        flat = Layout((held.size,), (held.size,), dtype=self.drawn.geometry.dtype).pack(held)
        place = np.zeros(flat.nbytes + 16, np.uint8)
        first = -place.ctypes.data % 16
        aligned = place[first : first + flat.nbytes].view(flat.dtype)
        aligned[...] = flat
        return aligned


def offered(executable: Any, section: int = 0) -> dict[str, TensorDense]:
    """The candidates of a section's products, by the names of their choices."""
    return {
        name: make()
        for name, variants in executable.binders()[section].variants.items()
        for mark, make in variants
        if mark == "t" and name.endswith("/gemm")
    }


def chosen(found: dict[str, TensorDense]) -> dict[str, str]:
    """A choice of the first way of each."""
    return {name: f"t{each.choice(0)}" for name, each in found.items()}


def functions(executable: Any, section: str) -> list[str]:
    """What a section calls."""
    return [call.function for call in executable.calls(section)]


def section(seed: int, kind: str) -> tuple[Draft, list[Tensor]]:
    """A product alone, of values that bfloat16 holds, with any bias and activation forward."""
    dice = random.Random(f"{seed} {kind}")
    m, n, k = (dice.choice([8, 16, 40, 64, 100, 132, 256, 500]) for _ in range(3))
    m += 0 if kind == "filter" else dice.randint(0, 3)
    draft = Draft(np.random.default_rng(seed), "normal")
    transpose_a, transpose_b = TRANSPOSED[kind]
    a = draft.floats("a", *((k, m) if transpose_a else (m, k)))
    b = draft.floats("b", *((n, k) if transpose_b else (k, n)), role="parameter")
    tail: dict[str, Any] = {}
    if kind == "forward":
        bias = draft.floats("bias", n, role="parameter") if dice.random() < 0.7 else None
        activation = dice.choice([None, "relu", "tanh", "gelu"])
        tail = {"bias": bias, "activation": activation, "activation_alpha": 0.3}
    found = [draft.gradient("c", m, n) if transpose_a else draft.out("c", m, n)]
    op = MatMul(a=a, b=b, c=found[0], transpose_a=transpose_a, transpose_b=transpose_b, **tail)
    draft.graph.add(op)
    for value in draft.values.values():
        value.view(np.uint32)[...] &= 0xFFFF0000
    return draft, found


def any_way(seed: int, candidates: TensorDense) -> str:
    """A choice of any tiling of the product."""
    every = dense_tilings(candidates._geometry, 1000, H200)
    tiling = random.Random(seed).choice(every)
    return "t" + "-".join(map(str, tiling.numbers.values()))
