"""What workers say to the process that has started them."""

from __future__ import annotations

from types import SimpleNamespace

from dnnstack.many import screen
from dnnstack.many.screen import Heard, Said
from dnnstack.training.listener import Progress


def test_others_hear_twice_a_second_how_far_a_training_is(monkeypatch):
    now, said, told = [100.0], list[Said](), []
    monkeypatch.setattr(screen, "perf_counter", lambda: now[0])
    heard = Heard(3, said.append, lambda text: None)
    plan = SimpleNamespace(total_steps=20, steps_per_epoch=4)
    heard.started(SimpleNamespace(plan=plan, state=SimpleNamespace(step=6)))  # type: ignore[arg-type]
    for now[0] in (100.0, 100.49, 100.5, 100.99, 101.0):
        heard.progressed(Progress(6, 20, 1.5, 5.0, None, 0.1, 0.0, 0.0))
        told.append(len(said))
    assert told == [2, 2, 3, 3, 4]
    assert said == [Said("progress", 3, 1.5, 5.0)] * 4
