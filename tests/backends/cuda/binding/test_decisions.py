"""What a kernel decides shows in what is bound behind it; on the stand-in."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("decay", [0.0, 1e-4])
@pytest.mark.parametrize("fusion", [True, False])
def test_plain_sgd_is_one_launch_or_saxpy(bound, sections, fusion, decay):
    """A small weight decay is no factor, which cublasSscal would need."""
    graphs = {"train": sections("cifar", fusion=fusion, momentum=0.0, weight_decay=decay)["train"]}
    executable, _ = bound(graphs, fusion=fusion)
    made = [call.function for call in executable.calls("train")]
    plain = ["sgd_update", "advance"] if decay else ["sgd_factor", "cublasSaxpy", "advance"]
    assert made[-1:] == ["sgd_update"] if fusion else made[-len(plain) :] == plain
    assert (fusion or decay > 0) != ("cublasSaxpy" in made)
