"""The command ``dnnstack``."""

from __future__ import annotations

import sys

from .early import without_collection


def run() -> int:
    """Run the command line and return its exit status; Ctrl-C is handled during imports too."""
    try:
        with without_collection():
            from .main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("dnnstack: error: interrupted\n")
        return 130
    except ModuleNotFoundError as error:
        missing = (error.name or "dnnstack").partition(".")[0]
        if missing == "dnnstack":
            raise
        install = f"{sys.executable} -m pip install {_requirement(missing)}"
        sys.stderr.write(
            f"dnnstack: error: the Python package {missing}, which dnnstack needs, is not "
            f"installed; install it: {install}"
        )
        sys.stderr.write("\n")
        return 1


def _requirement(module: str) -> str:
    """What provides a module, in the versions that dnnstack works with, quoted for a shell."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    name = {"PIL": "pillow", "yaml": "pyyaml"}.get(module, module).replace("_", "-").lower()
    try:
        listed = requires("dnnstack") or []
    except PackageNotFoundError:
        listed = []
    for line in listed:
        requirement, _, condition = line.partition(";")
        if "extra" not in condition and re.split(r"[^\w-]", requirement.strip())[0].lower() == name:
            return f"'{requirement.strip()}'"
    return name
