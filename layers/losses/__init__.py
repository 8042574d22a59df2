"""The losses that a config can name: every class with a ``kind`` in a module of this folder."""

from __future__ import annotations

from ...common.options import kinds_in
from .loss import Loss

LOSSES = kinds_in(__name__, Loss)
