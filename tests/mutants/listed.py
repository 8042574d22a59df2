"""Deliberate faults that no draw can make; ``test_listed.py`` tries them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from .mutant import Mutant


def _made(tests: list[str], **entry: Any) -> Mutant:
    return Mutant(tests=(*tests,), **entry)


_FILE = Path(__file__).with_name("listed.yaml")
LISTED = tuple(_made(**entry) for entry in yaml.safe_load(_FILE.read_text("utf-8")))
