"""Figures are put together, but not rendered, which takes most of the time of a short training."""

from __future__ import annotations

import io

import pytest
from matplotlib.figure import Figure
from PIL import Image

SAVEFIG = Figure.savefig


def blank(figure: Figure, file: io.BytesIO, **_: object) -> None:
    """A small PNG in the place of the figure."""
    Image.new("L", (8, 9)).save(file, "png")


@pytest.fixture(autouse=True)
def _unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the conftest.py of folders whose tests are not about pictures."""
    monkeypatch.setattr(Figure, "savefig", blank)


@pytest.fixture
def rendered(_unrendered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are rendered after all."""
    monkeypatch.setattr(Figure, "savefig", SAVEFIG)
