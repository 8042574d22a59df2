"""The schedules that a config can use: every class with a ``kind`` in a module of this folder."""

from __future__ import annotations

from ...common.options import kinds_in
from .schedule import Schedule

SCHEDULES = kinds_in(__name__, Schedule)
