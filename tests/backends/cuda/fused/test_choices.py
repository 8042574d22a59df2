"""Choices of a tuning that no kernel of ours can have."""

from __future__ import annotations

from itertools import product

import pytest
from dnnstack.backends.cuda.fused import tensor_conv

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
CONV = [f"train/conv2d_2/{kind}" for kind in ("forward", "data", "filter")]
DENSE = [f"train/dense_1/{kind}/gemm" for kind in ("forward", "data", "filter")]
# The choices of each kind of kernels, at the names that may have them.
NONE = (
    (CONV, ("t", "t1-2", "tx", "t2-8-8-8-2-2-2-5-1-0-0", f"t{'9-' * 10}9")),
    # In float32 there are no products of warpgroups.
    (CONV, ("w", "wx", "w4-2-3-1")),
    (CONV, ("p", "p1-2", "px")),
    # A warp with three columns does not have both of every window.
    (CONV[:1], ("p2-8-8-3-1-2-2-3-1-0-1",)),
    (DENSE, ("t", "t1-2", "tx", "t1-1-3", "t1-1-1-1", "t9-9-1", "t0-1-1")),
    (DENSE[2:], ("e", "e1-2", "ex", "e1-1-3-1", "e9-9-1-1", "e0-1-1-1", "e1-1-4-1")),
)


@pytest.mark.parametrize(("name", "choice"), [pair for each in NONE for pair in product(*each)])
def test_a_choice_that_cannot_be_had_is_an_error(bound, sections, monkeypatch, name, choice):
    """One that compiling for the device answers with a search."""
    # Small convolutions have every way that large ones have.
    monkeypatch.setattr(tensor_conv, "LEAST_WORK", 0)
    with pytest.raises(ValueError, match=r"tuning's tiling .* is unknown|'.*' for 'train/"):
        bound(sections("lenet"), "tf32", CHOICES | {name: choice})
