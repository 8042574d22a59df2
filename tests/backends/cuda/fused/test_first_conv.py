"""The first convolution of grey pictures: which kernels it gets, and what they compute."""

from __future__ import annotations

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.fused import first_conv
from dnnstack.backends.tuning import Tuning

from ....support.first_convs import Drawn
from ....support.tensor_convs import close_to_the_reference

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}


def test_pictures_too_large_for_shared_memory_go_without(bound, monkeypatch):
    monkeypatch.setattr(first_conv, "MOST_SHARED", 4 << 10)
    draft, _ = next(
        each.section()
        for each in map(Drawn, range(40))
        if first_conv._tensor_bytes(each.values) > 4 << 10
    )
    executable, _ = bound({"one": draft.graph}, "tf32", CHOICES)
    assert not [c for c in executable.calls("one") if c.function.startswith("tensor_first")]


@pytest.mark.parametrize(
    ("n", "most", "blocks"), [(1024, 396, 342), (64, 396, 64), (397, 396, 199)]
)
def test_blocks_have_equally_many_pictures(n, most, blocks):
    assert first_conv._shared_out(n, most) == blocks


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("parts", [1, 264])
@pytest.mark.parametrize("seed", range(20))
def test_they_compute_what_the_reference_does(cuda, monkeypatch, seed, parts, precision):
    drawn = Drawn(seed)
    monkeypatch.setattr(first_conv, "BACKWARD_PARTS", parts)
    draft, found = drawn.section()
    choices = {**DEFAULT_CHOICES[precision], "layout": "nhwc", "pad": "8"}
    options = Options(precision, tuning=Tuning("cuda", choices=choices))
    # Operands lose nothing: only sums are rounded, and a result in bfloat16.
    limit = 2.0**-8 if precision == "bf16" else 2e-5
    names = close_to_the_reference(cuda, draft, found, options, limit, 2e-5)
    plain, cores = "first_conv_pool", "tensor_first_pool"
    back = cores if precision != "fp32" and drawn.n > parts else plain
    expected = [plain if precision == "fp32" else cores, f"{back}_backward"]
    assert [name for name in names if "first" in name] == expected
