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
    """Sends lines of the log, validations, pictures and the config to wandb, or to trackio.

    A file of the run says under which name, and up to which step: what is computed again where a
    training goes on has been sent.
    """

    _tracked: Any = None

    def on_train_begin(self, logs: Logs) -> None:
        self._tool, self._file = import_module(self.name), self.run / f"{self.name}.json"
        self._state: dict[str, Any] = {"id": uuid.uuid4().hex[:16], "steps": {}}
        with suppress(OSError, ValueError):
            self._state |= json.loads(read_regular(self._file, 1 << 16))
        key, config, name = self._state["id"], self.setup.config, self.run.name
        given = {"id": key, "name": name, "dir": str(self.run), "reinit": "create_new"}
        if self.name == "trackio":
            given = {"name": f"{name}-{key[:6]}"}
        project = os.environ.get(f"{self.name.upper()}_PROJECT", config.name)
        dump = config.model_dump(mode="json")
        self._tracked = self._tool.init(project=project, config=dump, resume="allow", **given)

    def write(self, split: str, step: int, values: Logs) -> None:
        self._send(split, step, {f"{split}/{name}": value for name, value in values.items()})

    def on_pictures(self, drawn: Callable[[], Pictures], step: int) -> None:
        for name, picture in drawn():
            self._send(name, step, {name: self._tool.Image(picture)})

    def close(self) -> None:
        if self._tracked is not None:
            # Trackio would finish once more at the end of the program what its module has not.
            (self._tool if self.name == "trackio" else self._tracked).finish()

    def _send(self, kind: str, step: int, values: Logs) -> None:
        if step > self._state["steps"].get(kind, -1):
            self._tracked.log(values, step=step)
            self._state["steps"][kind] = step
            atomic_write(self._file, json.dumps(self._state).encode(), durable=False)
