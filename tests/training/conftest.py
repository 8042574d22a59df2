from __future__ import annotations

from ..support.training_fixtures import *  # noqa: F403
from ..support.unrendered import _unrendered  # noqa: F401
