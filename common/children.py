"""Processes of Python that run this program's own code."""

from __future__ import annotations


def program(module: str, function: str) -> str:
    """What ``python -c`` runs: it calls a function, without arguments, and ends with its status.

    As for the command ``dnnstack``, the current folder is no place of modules: a file beside a
    stranger's config, such as numpy.py, is not run.
    """
    return (
        "import sys; sys.path[:] = filter(None, sys.path); "
        f"from {module} import {function}; sys.exit({function}())"
    )
