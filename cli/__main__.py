"""``python -m dnnstack.cli``: the same as the command ``dnnstack``."""

from __future__ import annotations

import sys

from . import run

sys.exit(run())
