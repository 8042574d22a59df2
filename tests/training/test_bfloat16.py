"""A training in bfloat16, broken off and resumed."""

from __future__ import annotations

import pytest

from ..support.resuming import go, resume
from ..support.trainings import end_of, same

# Batch norm's and Adam's state, and an average of it all.
OVERRIDES = (
    "run.precision=bf16",
    "layers.1=batch_norm",
    "optimizer={type: adam, lr: 0.01, ema: {decay: 0.8}}",
    "train.validate_every_epochs=1",
)


@pytest.fixture(autouse=True)
def _bfloat16(onednn):
    from dnnstack.backends.onednn.library import library

    if not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")


def test_a_resume_changes_no_bit(tiny, onednn, monkeypatch):
    monkeypatch.setattr("dnnstack.training.pace.CHUNK_SECONDS", 0.0)
    config = tiny(*OVERRIDES)
    whole = end_of(go(config, onednn))
    half = go(config, onednn, stop_at=13)
    assert half.step == 13
    assert whole.provenance.tuning.environment["precision"] == "bf16"
    same(whole, end_of(resume(config, onednn, half.run)))
