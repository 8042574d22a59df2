"""Logger: a callback that hands what it hears to another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...training.setup import Setup
from ..callbacks import Callback

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage


class Logger(Callback):
    """``setup`` is what is trained, ``run`` the folder; each method is called as Callback's are.

    What a method raises ends the logger, and not the training.
    """

    def __init__(self, setup: Setup, run: Path) -> None:
        self.setup, self.run = setup, run

    def on_picture(self, name: str, picture: PilImage, step: int) -> None:
        """Samples at the beginning; at the end what is wrong, and what was learned."""

    def close(self) -> None:
        """The training is over, however it has ended."""
