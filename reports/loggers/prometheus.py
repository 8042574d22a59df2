"""Prometheus: ``metrics.prom`` of a run, for the collector of text files of its node exporter."""

from __future__ import annotations

from ...common.files import atomic_write
from ..callbacks import Logs
from . import Logger as Base


class Logger(Base):
    """Replaces the file with each line of the log, and each validation."""

    def on_train_begin(self, logs: Logs) -> None:
        self._values: Logs = {}
        self.write("", logs["step"], {"running": 1, "total_steps": logs["total_steps"]})

    def write(self, split: str, step: int, values: Logs) -> None:
        label = f',split="{split}"' if split else ""
        self._values |= {f'step{{run="{self.run.name}"}}': step}
        self._values |= {f'{k}{{run="{self.run.name}"{label}}}': v for k, v in values.items()}
        lines: dict[str, None] = {}
        for key, value in sorted(self._values.items()):
            if value is not None:
                lines[f"# TYPE dnnstack_{key.partition('{')[0]} gauge\n"] = None
                lines[f"dnnstack_{key} {float(value)!r}\n"] = None
        atomic_write(self.run / "metrics.prom", "".join(lines).encode(), durable=False)

    def close(self) -> None:
        step = next(value for key, value in self._values.items() if key.startswith("step{"))
        self.write("", step, {"running": 0})
