"""Weights & Biases: one run there for a run here, also where it goes on."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...common.files import atomic_write, read_regular
from ..callbacks import Logs
from ..history import History
from . import logger

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage


class Logger(logger.Logger):
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
        project = os.environ.get(f"{self.module.upper()}_PROJECT", self.setup.config.name)
        config = self.setup.config.model_dump(mode="json")
        self._tracked = self._tool.init(
            project=project, config=config, resume="allow", **self._named(self._state["id"])
        )

    def on_log(self, logs: Logs) -> None:
        self._send("train", logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._send("validation", logs)

    def on_picture(self, name: str, picture: PilImage, step: int) -> None:
        self._send(name, {"step": step, name: self._tool.Image(picture)})

    def on_train_end(self, history: History) -> None:
        self.close()

    def close(self) -> None:
        tracked, self._tracked = self._tracked, None
        if tracked is not None:
            self._finish(tracked)

    def _named(self, key: str) -> dict[str, Any]:
        """How the run is found again; its files lie in that of here."""
        return {"id": key, "name": self.run.name, "dir": str(self.run), "reinit": "create_new"}

    def _finish(self, tracked: Any) -> None:
        tracked.finish()

    def _send(self, kind: str, logs: Logs) -> None:
        step = logs.pop("step")
        if step > self._state["steps"].get(kind, -1):
            self._tracked.log(logs, step=step)
            self._state["steps"][kind] = step
            atomic_write(self._file, json.dumps(self._state).encode(), False)
