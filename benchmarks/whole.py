"""A whole training beside its steps and the forward passes of its validations, in seconds.

    python3 benchmarks/whole.py --config digits.yaml --rounds 5

All are timed in the same trainings. Data and compiling come before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from dnnstack.backends.select import open_backend
from dnnstack.configs import load_config
from dnnstack.datasets import data_root
from dnnstack.training.loop import Loop
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

TEXT = "whole {:.3f}, steps {:.3f}, forward {:.3f}, rest {:.3f}: {:.1%}"
SPENT: dict[str, float] = defaultdict(float)


def timed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose seconds are added up."""

    def run(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = real(*given, **named)
        SPENT[name] += time.perf_counter() - began
        return found

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="digits.yaml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    run, validate = Session.run, Session.validate

    def validated(session: Session, *given: Any) -> Any:
        own = session.executable.run
        session.executable.run = timed("forward", own)
        found = validate(session, *given)
        session.executable.run = own
        return found

    Loop.run, Session.validate = timed("whole", Loop.run), validated
    # Not without waiting: the time of a step would be that of what comes after it.
    Session.run = timed("steps", lambda session, steps, wait=True: run(session, steps))
    rows = []
    for _ in range(options.rounds):
        SPENT.clear()
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            loaded = load_config(options.config, [*options.overrides, f"run.dir={folder}"])
            root = data_root(None, loaded.config.data.root)
            train(loaded.config, open_backend(options.device), root, file=loaded.path)
        whole, steps, forward = (SPENT[name] for name in ("whole", "steps", "forward"))
        rows.append((whole, steps, forward, whole - steps - forward, (steps + forward) / whole))
        print(TEXT.format(*rows[-1]))
    print("medians:", TEXT.format(*map(median, zip(*rows, strict=True))))


if __name__ == "__main__":
    main()
