"""Plugins for tests, one for every kind, and the state of the process from before they came."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.configs import plugins as known
from dnnstack.configs.schema import datasets, extended, layers, pictures, training
from dnnstack.plugins import loading

from .stored import beside

PLUGINS = sorted((Path(__file__).parent / "plugins").glob("*.py"))
SWISH = next(path for path in PLUGINS if path.name == "swish.py")
MODULES = (datasets, layers, pictures, training)
# All kinds of plugins in one training, which takes a fraction of a second.
EVERYTHING = "\n" + beside(__file__, "plugin_files_everything.yaml")
# A training with a plugin beside it.
CONFIG = beside(__file__, "plugin_files_config.yaml")
# A plugin that leaves a file behind if it is run.
TRAP = """
from pathlib import Path
from dnnstack.plugins import Schedule
Path(__file__).with_name("ran").write_text("")

class Flat(Schedule):
    kind = "flat"
    def rates(self, lr, length):
        return lr + 0 * length.t
"""


def _catalogues() -> list[dict[Any, Any]]:
    held = [*(held for _, held in loading._WORDS.values()), known._HERE, KERNELS, layers.NESTED]
    found = (value for module in MODULES for value in vars(module).values())
    models = [value for value in found if isinstance(value, dict)]
    # Names of modules begin with two underscores.
    return [*held, *(each for each in models if "__name__" not in each)]


@contextmanager
def forgetting() -> Iterator[None]:
    """Behind it, nothing is known of the plugins that were loaded in it."""
    before = [(each, dict(each)) for each in _catalogues()]
    present = extended._present
    try:
        yield
    finally:
        for each, held in before:
            each.clear()
            each.update(held)
        extended._present = present
        for name in [name for name in sys.modules if name.startswith(loading._MODULE)]:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with forgetting():
        yield


@pytest.fixture
def everything() -> None:
    """All plugins of the examples, loaded."""
    for path in PLUGINS:
        loading.load_plugin(path)
