"""How long launches take, on a clock that they advance. Needs no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda.libraries import timing

# What the host takes to launch by itself.
HOST = 8e-6


class Device:
    """Runs launches of so many seconds, the next one of ``disturbed`` more."""

    def __init__(self, seconds, disturbed=0.0):
        self.now, self.launches, self.captured = 0.0, 0, 0
        self.seconds, self.disturbed = seconds, disturbed

    def run(self):
        self.launches += 1
        self.now += self.seconds
        if self.launches > 1:
            self.now, self.disturbed = self.now + self.disturbed, 0.0

    def launch(self):
        self.run()
        self.now += max(0.0, HOST - self.seconds)

    def capture(self, work, _):
        calls, self.captured = len(list(work)), self.captured + 1
        return SimpleNamespace(launch=lambda _: [self.run() for _ in range(calls)])

    def event(self, **_):
        made = SimpleNamespace(at=0.0, synchronize=lambda: None)
        made.record = lambda _: setattr(made, "at", self.now)
        made.seconds_until = lambda later: later.at - made.at
        return made


@pytest.fixture
def timed(fake_cuda, monkeypatch):
    def seconds(device, repeats):
        monkeypatch.setattr(fake_cuda, "Event", device.event)
        monkeypatch.setattr(timing, "captured", device.capture)
        return timing.captured_seconds(device.launch, fake_cuda.Stream(), repeats)

    return seconds


@pytest.mark.parametrize("repeats", [1, 5])
def test_of_short_launches_the_host_s_time_does_not_count(timed, repeats):
    device = Device(2e-6)
    assert timed(device, repeats) == pytest.approx(2e-6)
    assert device.captured == 1


@pytest.mark.parametrize("repeats", [1, 5])
def test_long_launches_are_timed_one_by_one(timed, repeats):
    device = Device(4e-3)
    assert timed(device, repeats) == pytest.approx(4e-3)
    # The first, one that tells that it is long, and those that count.
    assert (device.launches, device.captured) == (2 + repeats, 0)


def test_a_short_launch_that_was_disturbed_is_no_long_one(timed):
    device = Device(2e-6, disturbed=5e-3)
    assert timed(device, 5) == pytest.approx(2e-6)
    assert device.captured == 1


def test_a_long_launch_that_was_disturbed_has_its_own_time(timed):
    assert timed(Device(4e-3, disturbed=5e-3), 3) == pytest.approx(4e-3)
