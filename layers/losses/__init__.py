"""The losses that a config can name: every class with a ``kind`` in a module of this folder."""

from __future__ import annotations

from abc import ABCMeta
from importlib import import_module
from pkgutil import iter_modules

from .loss import Loss


def _found() -> dict[str, type[Loss]]:
    modules = [import_module(f".{module.name}", __name__) for module in iter_modules(__path__)]
    every = [each for module in modules for each in vars(module).values()]
    losses = [each for each in every if isinstance(each, ABCMeta) and issubclass(each, Loss)]
    found = {loss.kind: loss for loss in losses if "kind" in vars(loss)}
    return dict(sorted(found.items()))


LOSSES = _found()
