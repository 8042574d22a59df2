"""Weights & Biases: one run there for a run here, also where it goes on."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from ...common.files import atomic_write, read_regular
from ..callbacks import Logs
from . import Logger as Base
from . import Pictures


class Logger(Base):
    """Sends lines of the log, validations, pictures and the config.

    A file of the run says under which name, and up to which step: what is computed again where a
    training goes on has been sent.
    """

    module = "wandb"
    _tracked: Any = None

    def on_train_begin(self, logs: Logs) -> None:
        self._tool = import_module(self.module)
        self._file = self.run / f"{self.module}.json"
        self._state: dict[str, Any] = {"id": uuid.uuid4().hex[:16], "steps": {}}
        with suppress(OSError, ValueError):
            self._state |= json.loads(read_regular(self._file, 1 << 16))
        config = self.setup.config
        project = os.environ.get(f"{self.module.upper()}_PROJECT", config.name)
        given = {"project": project, "config": config.model_dump(mode="json"), "resume": "allow"}
        self._tracked = self._tool.init(**given, **self._named(self._state["id"]))

    def on_log(self, logs: Logs) -> None:
        self._send("train", logs.pop("step"), logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._send("validation", logs.pop("step"), logs)

    def on_pictures(self, drawn: Callable[[], Pictures], step: int) -> None:
        for name, picture in drawn():
            self._send(name, step, {name: self._tool.Image(picture)})

    def close(self) -> None:
        if self._tracked is not None:
            self._finish()

    def _named(self, key: str) -> dict[str, Any]:
        """How the run is found again; its files lie in that of here."""
        return {"id": key, "name": self.run.name, "dir": str(self.run), "reinit": "create_new"}

    def _finish(self) -> None:
        self._tracked.finish()

    def _send(self, kind: str, step: int, values: Logs) -> None:
        if step > self._state["steps"].get(kind, -1):
            self._tracked.log(values, step=step)
            self._state["steps"][kind] = step
            atomic_write(self._file, json.dumps(self._state).encode(), durable=False)
