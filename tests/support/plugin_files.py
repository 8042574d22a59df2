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

PLUGINS = sorted((Path(__file__).parent / "plugins").glob("*.py"))
SWISH = next(path for path in PLUGINS if path.name == "swish.py")
MODULES = (datasets, layers, pictures, training)
# All kinds of plugins in one training, which takes a fraction of a second.
EVERYTHING = """
name: everything
seed: 3
data:
  dataset: {stripes: {count: 160, size: 10}}
  batch_size: 16
  evaluation_batch_size: 12
  validation: 32
  augment: [random_flip, contrast: {strength: 0.3}]
layers:
  - conv2d: {filters: 4, kernel_size: 3}
  - swish: {beta: 1.5}
  - flatten
  - dense: {units: 2}
  - softmax
loss: log_cosh
optimizer: {type: sign_sgd, lr: 0.01}
schedule: {type: triangle, period: 7}
train: {max_steps: 20, log_every: 4}
checkpoint: {every_steps: 1000, best: false}
"""
# A training with a plugin beside it.
CONFIG = """\
plugins: trap.py
data:
  dataset: {strokes: {train_count: 120, test_count: 40}}
  batch_size: 32
layers: [flatten, dense: {units: 10}, softmax]
optimizer: {type: sgd, lr: 0.1}
schedule: flat
train: {max_steps: 4}
run: {device: numpy}
"""
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
    held = [*loading._CATALOGUES.values(), known._HERE, KERNELS, layers.NESTED]
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
