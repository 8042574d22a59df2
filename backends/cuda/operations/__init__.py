"""What every operation becomes: calls of libraries, kernels of ours. All are registered here."""

from __future__ import annotations

from . import (  # noqa: F401  # they register
    augment,
    classic,
    combine,
    convolution,
    im2col,
    linear,
    losses,
    lrn,
    muon,
    norm,
    optimizers,
    pointwise,
    pool,
    step,
)
