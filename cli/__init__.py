"""The command ``dnnstack``."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line and return its exit status; Ctrl-C is handled during imports too."""
    try:
        from .main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("dnnstack: error: interrupted\n")
        return 130
