"""Every loss that a config can name, and the same with each of its options moved."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
from dnnstack.common.targets import Kind
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
    # Without a teacher it is the cross-entropy.
    for kind, loss in (each for each in LOSSES.items() if each[0] != "distill"):
        first, *others = loss.kinds
        found[kind] = loss(target=first)
        for target in others:
            found[f"{kind}-{target}"] = loss(target=target)
        for option, parameter in inspect.signature(loss).parameters.items():
            if option in ("reduction", "target"):
                continue
            given = {option: _moved(parameter.default)}
            if option == "class_weights":
                # Numbers have no classes; of questions one loss weighs the yes.
                unweighed = {"numbers"} if loss.sigmoid else {"numbers", "yes_no"}
                weighed = [each for each in loss.kinds if each not in unweighed]
                found |= {f"{kind}-{option}-{t}": loss(target=t, **given) for t in weighed}
            else:
                found[f"{kind}-{option}"] = loss(target=first, **given)
    return found


def fitted(loss: Loss, outputs: int) -> Loss:
    """The loss with as many weights as there are outputs, if their number matters."""
    if loss.target == "class":
        return loss
    return replace(loss, class_weights=loss.class_weights[:outputs])


def drawn_targets(kind: Kind, shape: tuple[int, int], source: np.random.Generator) -> Any:
    """Targets of samples with K outputs each: (N,) int32, or (N, K) float32; shape: (N, K)."""
    if kind == "class":
        return source.integers(0, shape[1], shape[0]).astype(np.int32)
    if kind == "yes_no":
        return source.integers(0, 2, shape).astype(np.float32)
    numbers = source.normal(size=shape)
    if kind == "distribution":
        numbers = np.exp(numbers) / np.exp(numbers).sum(1, keepdims=True)
    return numbers.astype(np.float32)


VARIANTS = _variants()
