from __future__ import annotations

from ...support.training_fixtures import *  # noqa: F403
