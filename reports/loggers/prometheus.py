"""Prometheus: ``metrics.prom`` of a run, for the collector of text files of its node exporter."""

from __future__ import annotations

import math

from ...common.files import atomic_write
from ..callbacks import Logs
from ..history import History
from . import logger

FILE = "metrics.prom"
_HELP = {
    "step": "Updates so far.",
    "total_steps": "Updates at the end of the training.",
    "epoch": "Passes over the training set so far.",
    "running": "1 while the training runs, 0 after it.",
}


class Logger(logger.Logger):
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

    def on_train_end(self, history: History) -> None:
        self._write("", {"step": history.step, "epoch": history.epoch})

    def close(self) -> None:
        self._write("", {"running": 0})

    def _write(self, split: str, found: Logs) -> None:
        known = {(key, split): value for key, value in found.items() if value is not None}
        self._values |= known
        name = self.run.name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines = []
        for (key, part), value in sorted(self._values.items()):
            metric, label = f"dnnstack_{key}", f',split="{part}"' if part else ""
            if f"# TYPE {metric} gauge" not in lines:
                about = _HELP.get(key, f"{key} of the last line of the log.".replace("_", " "))
                lines += [f"# HELP {metric} {about}", f"# TYPE {metric} gauge"]
            lines.append(f'{metric}{{run="{name}"{label}}} {_number(value)}')
        atomic_write(self.run / FILE, "".join(f"{line}\n" for line in lines).encode(), False)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
