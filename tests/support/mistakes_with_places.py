"""What the schema lets through, and data or network do not; it has its place all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .mistakes import stored_mistakes


def twin_folders(patch: pytest.MonkeyPatch) -> None:
    """Two folders whose names look the same."""
    for name in ("\u00e9", "e\u0301"):
        (Path("pics") / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pics/{name}/0.png")


def empty_validation_folder(patch: pytest.MonkeyPatch) -> None:
    """Two classes to train on, whose folders to validate on have no pictures."""
    for name in "ab":
        (Path("pics") / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pics/{name}/0.png")
        (Path("checked") / name).mkdir(parents=True)


PLACES = stored_mistakes(
    "mistakes_with_places.txt",
    {
        "two class folders of one name in two forms": twin_folders,
        "a validation folder without a picture": empty_validation_folder,
    },
)
