"""Prometheus: ``metrics.prom`` of a run, for the collector of text files of its node exporter."""

from __future__ import annotations

from ...common.files import atomic_write
from ..callbacks import Logs
from . import Logger as Base


class Logger(Base):
    """Replaces the file with each line of the log, and each validation."""

    def on_train_begin(self, logs: Logs) -> None:
        self._values: dict[tuple[str, str], float] = {("running", ""): 1}
        self._write("", {key: logs[key] for key in ("step", "total_steps")})

    def on_log(self, logs: Logs) -> None:
        self._write("", {key: logs.pop(key) for key in ("step", "epoch")})
        self._write("train", logs)

    def on_validation_end(self, logs: Logs) -> None:
        found = {key.removeprefix("val_"): logs[key] for key in logs if key.startswith("val_")}
        self._write("validation", found)

    def close(self) -> None:
        self._write("", {"running": 0})

    def _write(self, split: str, found: Logs) -> None:
        known = {(key, split): value for key, value in found.items() if value is not None}
        self._values |= known
        lines: dict[str, None] = {}
        for (key, part), value in sorted(self._values.items()):
            label = f',split="{part}"' if part else ""
            lines[f"# TYPE dnnstack_{key} gauge\n"] = None
            lines[f'dnnstack_{key}{{run="{self.run.name}"{label}}} {value!r}\n'] = None
        atomic_write(self.run / "metrics.prom", "".join(lines).encode(), durable=False)
