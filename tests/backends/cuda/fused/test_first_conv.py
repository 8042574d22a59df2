"""The first convolution of grey pictures: which kernels it gets, and what they compute."""

from __future__ import annotations

import pytest
from dnnstack.backends.cuda.fused import first_conv

from ....support.first_convs import Drawn

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
