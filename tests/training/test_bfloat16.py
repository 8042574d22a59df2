"""Training in bfloat16 from a file: explained, broken off, resumed, evaluated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.configs import RunConfig
from dnnstack.reports.explain import explain
from dnnstack.reports.explain_text import as_text
from dnnstack.training.listener import Listener, Progress
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
# Batch norm's and Adam's state, and an average of it all.
OVERRIDES = (
    "run.precision=bf16",
    "layers.1=batch_norm",
    "optimizer={type: adam, lr: 0.01, ema: {decay: 0.8}}",
    "train.validate_every_epochs=1",
)


class Ear(Listener):
    """Asks for a stop at a step, and keeps what is said."""

    def __init__(self, stop_at: int = 1000) -> None:
        self.stop_at, self.step = stop_at, 0
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def progressed(self, progress: Progress) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.step >= self.stop_at


@pytest.fixture(autouse=True)
def _bfloat16(onednn):
    from dnnstack.backends.onednn.library import library

    if not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")


def test_a_resume_changes_no_bit(tiny, onednn, monkeypatch):
    monkeypatch.setattr("dnnstack.training.pace.CHUNK_SECONDS", 0.0)
    config = tiny(*OVERRIDES)
    whole = train(config, onednn, NOWHERE)
    ear = Ear(stop_at=13)
    half = train(config, onednn, NOWHERE, listener=ear, stop_requested=ear.stop)
    assert half.step == 13
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    done = train(config, onednn, NOWHERE, resume=source, listener=ear)
    assert ear.notices == []
    assert whole.checkpoint is not None
    assert done.checkpoint is not None
    one, other = (read_checkpoint(each.checkpoint) for each in (whole, done))
    assert one.provenance.tuning.environment["precision"] == "bf16"
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


def test_explain_shows_types_and_casts(tiny, onednn):
    text = as_text(explain(tiny("run.precision=bf16"), Path("tiny.yaml"), onednn, False, print))
    lines = text.splitlines()
    assert any("dnnl_convolution_forward" in line for line in lines)
    assert any("src=f32" in line and "dst=bf16" in line for line in lines)
    plain = as_text(explain(tiny(), Path("tiny.yaml"), onednn, False, print))
    assert "=bf16" not in plain
