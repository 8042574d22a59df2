"""The command ``dnnstack``."""

from __future__ import annotations

import sys

# Nothing else is imported here: what Ctrl-C raises before ``run`` would be shown as a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def run() -> int:
    """Run the command line and return its exit status; Ctrl-C is handled during imports too."""
    try:
        return _imported()()
    except KeyboardInterrupt:
        return _interrupted()
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


def _imported() -> Callable[[], int]:
    import os
    import signal

    def leave(number: int, frame: object) -> None:
        os._exit(_interrupted())

    before = signal.getsignal(signal.SIGINT)
    # What is raised inside the callbacks of imports is printed, and the import goes on.
    leaves = before is signal.default_int_handler
    if leaves:
        signal.signal(signal.SIGINT, leave)
    # To look for plugins, of which a config has no use, pydantic reads the metadata of every
    # package that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from .early import without_collection

        with without_collection():
            from .main import main
    finally:
        if leaves:
            signal.signal(signal.SIGINT, before)
    return main


def _interrupted() -> int:
    """Say so; returns the exit status."""
    sys.stderr.write("dnnstack: error: interrupted\n")
    sys.stderr.flush()
    return 130


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
        if re.split(r"[^\w-]", requirement.strip())[0].lower() == name:
            extra = re.search(r"extra == .(\w+)", condition)
            if extra is None:
                return f"'{requirement.strip()}'"
            if extra[1] != "test":
                return f"'dnnstack[{extra[1]}]'"
    return name
