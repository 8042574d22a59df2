"""Convolutions of few channels on tensor cores, with the activation behind them taken along."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.fused.direct_conv import shapes_of
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window

from ....support.op_draft import Draft
from .test_direct_conv import computed

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1", "one//forward": "d2"}
WHITENING = ((7, 3, 32, 32), Window((2, 2)), 24)


def chain(kind="gelu", picture=WHITENING[0], window=WHITENING[1], filters=WHITENING[2]):
    """A convolution, an activation, and back to the bias; nobody asks for what lies between."""
    draft = Draft(np.random.default_rng(filters), "normal")
    x, w = draft.floats("x", *picture), draft.floats("w", filters, picture[1], *window.kernel)
    w = replace(w, role="parameter")
    draft.values[w] = draft.values.pop(replace(w, role="input"))
    b = draft.floats("b", filters, role="parameter")
    shape = (picture[0], filters, *window.output(*picture[2:]))
    dy, y, db = draft.floats("dy", *shape), draft.out("y", *shape), draft.gradient("db", filters)
    before, dx = (draft.graph.tensor(name, shape) for name in ("before", "dx"))
    value = y if kind in ops.FROM_OUTPUT else before
    for op in (
        ops.Conv2d(x=x, w=w, y=before, window=window, bias=b),
        ops.Activation(x=before, y=y, kind=kind),
        ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind),
        ops.BiasGrad(dy=dx, db=db),
    ):
        draft.graph.add(op)
    for tensor, values in draft.values.items():
        if tensor != b:
            values.view(np.uint32)[...] &= 0xFFFF0000
    return draft, y, db


def functions(bound, graph, precision="bf16", choices=CHOICES):
    executable, _ = bound({"one": graph}, precision, choices)
    found = [call.function for call in executable.calls("one")]
    held = {tensor.name for tensor in executable.binders()[0].buffers}
    executable.close()
    return [name for name in found if not name.startswith("convert")], held


def _result(draft, name):
    written = (tensor for op in draft.graph.ops for tensor in op.writes())
    draft.graph.results[name] = next(tensor for tensor in written if tensor.name == name)


def _filters_too(draft):
    conv, _, back, _ = draft.graph.ops
    dw = draft.gradient("dw", *conv.w.shape)
    draft.graph.add(ops.Conv2dBackwardFilter(x=conv.x, dy=back.dx, dw=dw, window=conv.window))


def _pool(draft):
    conv = draft.graph.ops[0]
    n, channels, rows, columns = conv.y.shape
    out = draft.out("pooled", n, channels, rows // 2, columns // 2)
    draft.graph.add(ops.Pool2d(x=conv.y, y=out, kind="max", window=Window((2, 2), (2, 2))))


@pytest.mark.parametrize(
    ("change", "gradient"),
    [
        (lambda d: _result(d, "before"), False),
        (lambda d: _result(d, "dx"), True),
        (_filters_too, True),
        (_pool, False),
    ],
    ids=["its input is read", "its gradient is read", "filters are trained", "a pool reads it"],
)
def test_what_others_read_is_stored(bound, change, gradient):
    draft, _, _ = chain()
    change(draft)
    found, held = functions(bound, draft.graph)
    assert "wide_activation" in found
    assert "tensor_direct_sums" not in found
    assert "before" in held
    assert ("dx" in held) == gradient


@pytest.mark.parametrize(
    ("stored", "nhwc", "dtype", "count"),
    [
        (24, True, BFLOAT, 4),
        (256, True, BFLOAT, 4),
        (264, True, BFLOAT, 2),
        (20, True, BFLOAT, 2),
        (24, False, BFLOAT, 2),
        (24, True, FLOAT, 2),
    ],
)
def test_shapes_on_tensor_cores_where_they_fit(stored, nhwc, dtype, count):
    conv = chain(filters=20)[0].graph.ops[0]
    n, _, rows, columns = conv.y.shape
    layout = Layout(conv.y.shape, (n, stored, rows, columns), nhwc, dtype=dtype)
    shapes = list(shapes_of(conv, layout))
    assert len(shapes) == count
    assert ["OCTETS" in shape for shape in shapes] == [False, False, True, True][:count]


def test_a_search_begins_with_those_on_tensor_cores(bound):
    draft, _, _ = chain()
    choices = {key: value for key, value in CHOICES.items() if key != "one//forward"}
    executable, _ = bound({"one": draft.graph}, "bf16", choices)
    (direct,) = (
        make() for mark, make in executable.binders()[0].variants["one//forward"] if mark == "d"
    )
    executable.close()
    assert direct.order() == [2, 3, 0, 1]


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [2, 3])
@pytest.mark.parametrize("kind", ["gelu", "silu", "softplus", "tanh", "relu"])
def test_both_ways_are_those_of_the_reference(cuda, kind, shape):
    # So many that a block has several rows.
    draft, y, db = chain(kind, (300, 3, 32, 32))
    choices = {**DEFAULT_CHOICES["bf16"], "one//forward": f"d{shape}"}
    options = Options("bf16", tuning=Tuning("cuda", choices=choices))
    got, executable = computed(cuda, draft, y, options)
    assert not executable.notices
    names = [call.function for call in executable.calls("one")]
    assert "tensor_direct_conv" in names
    assert ("tensor_direct_sums" in names) == (kind not in ops.FROM_OUTPUT)
    sums = executable.read(db)
    want, reference = computed(ReferenceBackend(1), draft, y, Options("fp64"))
    np.testing.assert_allclose(got, want, rtol=2.0**-8, atol=1e-5)
    total = reference.read(db)
    # The slope of one that follows from its output is that of a rounded one.
    near = 8e-3 if kind in ops.FROM_OUTPUT else 2e-3
    np.testing.assert_allclose(sums, total, rtol=near, atol=near * np.abs(total).max())
    executable.run("one")
    np.testing.assert_array_equal(executable.read(db), sums)
