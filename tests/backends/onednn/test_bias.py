"""Biases that are added by a call of their own."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.ops import BiasAdd, Conv2d, Pool2d

from ...support.op_draft import Draft
from ...support.outcomes import outcome


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("layout", ["nhwc", "nChw16c"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_bias_for_one_picture_of_one_pixel(layout, dtype):
    """The bias has the picture's shape then, and the two must not be laid out differently.

    The pooling in front leaves a mask of the last channels in the processor's registers.
    """
    if dtype == "bfloat16" and not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")
    channels = 41
    draft = Draft(np.random.default_rng(1), "ties")
    x = draft.floats("x", 1, 3, 2, 2)
    w = draft.floats("w", channels, 3, 1, 1, role="parameter")
    b = draft.given("b", np.arange(channels, dtype=np.float32), "parameter")
    graph = draft.graph
    filtered = graph.tensor("filtered", (1, channels, 2, 2))
    pooled, y = graph.tensor("pooled", (1, channels, 1, 1)), draft.out("y", 1, channels, 1, 1)
    graph.add(Conv2d(x=x, w=w, y=filtered, window=Window((1, 1))))
    graph.add(Pool2d(x=filtered, y=pooled, window=Window((2, 2), (2, 2)), kind="max"))
    graph.add(BiasAdd(x=pooled, b=b, y=y))
    exactly = ReferenceBackend(1).compile({"one": graph}, Options("fp64", fusion=False))
    tuning = Tuning("onednn", choices={"": layout})
    executable = OneDnnExecutable({"one": graph}, tuning, 1, activations=dtype)
    call = executable.calls("one")[-1]
    got, want = (outcome(each, draft.values, [y]) for each in (executable, exactly))
    np.testing.assert_array_equal(got["y"], want["y"])
    assert call.function == "dnnl_binary"
    assert call.arguments["src"].startswith("bf16" if dtype == "bfloat16" else "f32")
