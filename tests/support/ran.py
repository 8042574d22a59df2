"""A process that has ended."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


def ran(argv: Sequence[object], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, which may take five minutes; its outputs are texts."""
    usual = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(argv, **usual | how)  # type: ignore[call-overload]
