"""Trials of a plan for exact float32, on arrays of NumPy in place of a device's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries import conv_check, operand
from dnnstack.backends.cuda.libraries.conv_check import LOST, OUTPUT, is_exact
from dnnstack.backends.cuda.libraries.layout import Layout
from dnnstack.backends.cuda.libraries.operand import Operand
from dnnstack.backends.known import signs
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter

GEOMETRIES = {
    "first": ((6, 1, 28, 28), (20, 1, 5, 5), Window((5, 5))),
    "padded": ((4, 16, 9, 7), (24, 16, 3, 3), Window((3, 3), (2, 2), (1, 1, 1, 1))),
    "groups": ((3, 12, 8, 8), (6, 4, 3, 2), Window((3, 2))),
    "filter of one": ((2, 3, 5, 5), (1, 3, 1, 1), Window((1, 1))),
}


@pytest.fixture(autouse=True)
def arrays_of_numpy(monkeypatch):
    stand_in = SimpleNamespace(zeros=np.zeros, asarray=np.asarray, lib=np.lib)
    for module in (conv_check, operand):
        monkeypatch.setattr(module, "cupy", lambda: stand_in)
    monkeypatch.setattr(conv_check, "addresses", lambda arrays: arrays)


def to_tf32(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def verdict(kind, geometry, rounding=(), share=0.0, relu=False, nhwc=True):
    """That of a plan which rounds these operands, and whose results are off by a share."""
    x, w, window = GEOMETRIES[geometry]
    shapes = {"x": x, "w": w, "y": (x[0], w[0], *window.output(x[2], x[3]))}
    tensors = {name: Tensor(name, shape) for name, shape in shapes.items()}
    rest = {"window": window, "groups": x[1] // w[1]}
    op = {
        "forward": lambda x, w, y: Conv2d(x=x, w=w, y=y, **rest),
        "data": lambda x, w, y: Conv2dBackwardData(dy=y, w=w, dx=x, **rest),
        "filter": lambda x, w, y: Conv2dBackwardFilter(x=x, dy=y, dw=w, **rest),
    }[kind](**tensors)
    operands = {name: Operand.of(Layout(shape, shape, nhwc)) for name, shape in shapes.items()}

    def computed(values):
        inputs = [getattr(op, name) for name in op.inputs]
        found = KERNELS[type(op)].compute(op, *(t and values[t.name] for t in inputs))
        return found[0] if isinstance(found, tuple) else found

    def run(arrays):
        values = {
            name: np.lib.stride_tricks.as_strided(
                arrays[name], operands[name].sizes, [4 * step for step in operands[name].strides]
            )
            for name in shapes
        }
        found = computed({n: to_tf32(v) if n in rounding else v for n, v in values.items()})
        size = computed({name: values[name].astype(float) ** 2 for name in shapes}).mean()
        if kind == "filter":
            size *= signs(x[0]).sum() ** 2 / x[0]
        off = share * size**0.5 * np.where(np.arange(found.size) % 2, 1, -1)
        found = found + off.reshape(found.shape)
        values[OUTPUT[kind]][...] = found.clip(0) if relu else found

    return is_exact(kind, operands, window, run, relu)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", OUTPUT)
def test_what_is_lost_shows(kind, geometry):
    assert verdict(kind, geometry)
    for operand_ in {"x", "w", "y"} - {OUTPUT[kind]}:
        assert not verdict(kind, geometry, operand_)
    assert verdict(kind, geometry, share=0.9 * LOST)
    assert not verdict(kind, geometry, share=1.1 * LOST)


def test_a_plan_with_relu_is_compared_with_relu():
    assert verdict("forward", "padded", relu=True)
    assert not verdict("forward", "padded", "xw", relu=True)


def test_a_plain_layout_is_tried_too():
    assert verdict("filter", "padded", nhwc=False)
    assert not verdict("filter", "padded", "xy", nhwc=False)


def test_signs_never_cancel_and_sums_stay_small():
    for pictures in (1, 2, 3, 4, 9, 10, 128, 1000):
        sums = np.cumsum(signs(pictures))
        assert pictures**0.5 - 1 < sums[-1] <= sums.max() < pictures**0.5 + 3
