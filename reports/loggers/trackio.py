"""Trackio: experiments that are tracked on this machine, by the interface of wandb."""

from __future__ import annotations

from typing import Any

from . import wandb


class Logger(wandb.Logger):
    """See there; the name of a run is all by which it is found again."""

    module = "trackio"

    def _named(self, key: str) -> dict[str, Any]:
        return {"name": f"{self.run.name}-{key[:6]}"}

    def _finish(self, tracked: Any) -> None:
        # At its end the program would finish once more what the module has not.
        self._tool.finish()
