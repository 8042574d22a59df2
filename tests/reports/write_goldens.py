"""Writes the stored texts of reports and pictures anew: all, or those that are named.

    python -m tests.reports.write_goldens [NAME ...]

After a deliberate change; the difference that git shows is to be read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .golden_pictures import PICTURES
from .golden_sweeps import SWEEPS
from .golden_texts import TEXTS

STORED = Path(__file__).parent / "golden"
GOLDENS: dict[str, Callable[[], str]] = {**PICTURES, **SWEEPS, **TEXTS}


def main(names: list[str]) -> None:
    unknown = sorted({*names} - GOLDENS.keys())
    if unknown:
        sys.exit(f"no stored text has these names: {', '.join(unknown)}")
    for name in names or GOLDENS:
        (STORED / f"{name}.txt").write_text(GOLDENS[name](), encoding="utf-8")
    for file in () if names else STORED.glob("*.txt"):
        if file.stem not in GOLDENS:
            file.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
