"""The command ``dnnstack``."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line; the exit status. Ctrl-C counts from the first import on."""
    try:
        from .main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("dnnstack: error: interrupted\n")
        return 130
