"""The current folder may hold a stranger's files: none is run, or read as settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def program(module: str, function: str) -> str:
    """What ``python -c`` runs: it calls a function, without arguments, and ends with its status.

    As for the command ``dnnstack``, the current folder is no place of modules: a file beside a
    stranger's config, such as numpy.py, is not run.
    """
    return (
        "import sys; sys.path[:] = filter(None, sys.path); "
        f"from {module} import {function}; sys.exit({function}())"
    )


@contextmanager
def elsewhere() -> Iterator[None]:
    """Inside this block the root is the current folder, for libraries that look for settings."""
    here = os.getcwd()
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(here)
