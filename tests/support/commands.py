"""Runs command lines in forked children of a process that has imported everything.

A script: where the start of a command is not what is tested, it takes a tenth of a second, not the
one or two seconds in which Python imports its modules. A child does what ``python -m dnnstack.cli``
does, in a folder of its own and with files for its outputs. Nothing is computed before the fork, so
that neither threads nor the library of a device are there. A job is a line of JSON, ``argv``,
``env``, ``cwd``, ``out`` and ``err``; the answer is the exit status, below 0 for a signal.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import sys
import threading
from typing import Any

import dnnstack

# What the modules of ours import only when they need it; nothing of a GPU or of MPI.
LATER = (
    "PIL.Image",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "safetensors.numpy",
    "tqdm",
)


def import_everything() -> None:
    for module in pkgutil.walk_packages(dnnstack.__path__, "dnnstack."):
        if not module.name.endswith("__main__") and ".cuda" not in module.name:
            importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)
    # A figure is put together, but not rendered, which takes longer than all else.
    from matplotlib.figure import Figure
    from unrendered import blank  # beside this script

    Figure.savefig = blank  # type: ignore[method-assign,assignment]
    # Collecting garbage in a child would copy every page that it looks at.
    gc.freeze()


def serve() -> dict[str, Any] | None:
    """Answer jobs, each by a child; return in a child its job, and None at the end of them."""
    answers = os.dup(1)
    # Read without a buffer, of which a child would inherit a part.
    with open(os.dup(0), "rb", buffering=0) as jobs:
        for line in jobs:
            pid = os.fork()
            if pid == 0:
                os.close(answers)
                return dict(json.loads(line))
            _, status = os.waitpid(pid, 0)
            os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


def run(job: dict[str, Any]) -> None:
    """Do the job, and end this process as Python would, without taking its modules apart."""
    for number, name in enumerate((os.devnull, job["out"], job["err"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.chdir(job["cwd"])
    for name in os.environ.keys() - job["env"].keys():
        del os.environ[name]
    os.environ.update(job["env"])
    sys.argv[1:] = job["argv"]
    status: object = 1
    try:
        runpy.run_module("dnnstack.cli", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    import_everything()
    if (job := serve()) is not None:
        run(job)
