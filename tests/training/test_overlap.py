"""A device that still computes while the loop goes on: what is told meanwhile, what is not lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.common.errors import LibraryError
from dnnstack.configs import RunConfig
from dnnstack.training.listener import Listener, Progress
from dnnstack.training.trainer import train

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")


class Late:
    """Put in front of the reference: steps that need not be waited for are done when read."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, bad_after: int | None = None, at_once: bool = False
    ) -> None:
        self.events: list[str] = []
        self._due: list[tuple[Any, ...]] = []
        self._real_run = ReferenceExecutable.run
        self._left = bad_after
        late = self

        def run(self: Any, section: str, steps: int = 1, wait: bool = True) -> None:
            late.events.append(f"run {section}")
            late._due.append((self, section, steps))
            if wait or at_once:
                late.finish()

        monkeypatch.setattr(ReferenceExecutable, "run", run)
        for name in ("read", "write"):
            monkeypatch.setattr(ReferenceExecutable, name, self._after(name))

    def _after(self, name: str) -> Callable[..., Any]:
        real = getattr(ReferenceExecutable, name)

        def method(executable: Any, *arguments: Any) -> Any:
            self.finish()
            return real(executable, *arguments)

        return method

    def finish(self) -> None:
        due, self._due = self._due, []
        for executable, section, steps in due:
            if self._left is not None and section.startswith("train"):
                self._left -= steps
                if self._left < 0:
                    raise LibraryError("cudart", "cudaGraphLaunch", "700", {}, "resume")
            self._real_run(executable, section, steps)
            self.events.append(f"done {section}")


class Ear(Listener):
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def logged(self, progress: Progress) -> None:
        self._events.append(f"logged {progress.step}")


def lines(run: Path) -> list[str]:
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [f"{line['event']} {line['step']}" for line in found]


def test_a_line_is_written_while_the_next_steps_run(tiny, reference, monkeypatch):
    late = Late(monkeypatch)
    train(tiny(), reference, NOWHERE, listener=Ear(late.events))
    at = late.events.index("logged 4")
    assert late.events[at - 1].startswith("run train")
    assert late.events[at + 1].startswith("done train")


def test_the_results_are_the_same(tiny, reference, monkeypatch):
    first = train(tiny("name=first"), reference, NOWHERE)
    with monkeypatch.context() as patched:
        Late(patched)
        second = train(tiny("name=second"), reference, NOWHERE)
    assert lines(first.run) == lines(second.run)
    rows = [(run.run / "metrics.csv").read_text() for run in (first, second)]
    assert rows[0] == rows[1]
    assert first.training == second.training
    assert np.isfinite(first.training.loss)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_was_known_before_an_error_is_in_the_log(
    at_once, tiny, reference, monkeypatch, tmp_path
):
    """The line of step 8 waits when the steps behind it fail."""
    Late(monkeypatch, 8, at_once)
    with pytest.raises(LibraryError):
        train(tiny(), reference, NOWHERE)
    (log,) = tmp_path.rglob("log.jsonl")
    assert lines(log.parent)[:3] == ["start 0", "train 4", "train 8"]
    assert lines(log.parent)[-1].startswith("end")
