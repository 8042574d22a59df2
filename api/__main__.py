"""``python -m dnnstack``: the same as the command ``dnnstack``."""

from __future__ import annotations

import sys

from .cli import run

sys.exit(run())
