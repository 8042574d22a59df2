"""Every loss that a config can name, and the same with each of its options moved."""

from __future__ import annotations

import inspect
from typing import Any

from dnnstack.layers.losses import LOSSES
from dnnstack.layers.losses.loss import Loss


def _moved(default: Any) -> Any:
    """Another value: the opposite of a yes or no, a little more of a number, weights of classes."""
    if isinstance(default, tuple):
        # Enough for the largest case, and 0 among them.
        return (0.25, 0.5, 0.75, 0.0, *(0.5 + 0.3 * at for at in range(8)))
    if isinstance(default, bool):
        return not default
    return default + (1 if isinstance(default, int) else 0.3)


def _variants() -> dict[str, Loss]:
    found = {}
    for kind, loss in LOSSES.items():
        found[kind] = loss()
        for option, parameter in inspect.signature(loss).parameters.items():
            if option != "reduction":
                found[f"{kind}-{option}"] = loss(**{option: _moved(parameter.default)})
    return found


VARIANTS = _variants()
