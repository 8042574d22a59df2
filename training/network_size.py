"""Whether a network can fit into this machine's memory at all, whatever the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from ..backends.base import Backend
from ..common.errors import ConfigError
from ..common.machine import main_memory
from ..common.text import shape_text
from ..graph.geometry import Window
from ..layers.layer import Layer
from .network import Network

_FLOAT = 4
# Shares of all memory. Less is not to blame; so much is to blame whatever the batch takes.
_LARGE, _HUGE = 1 / 16, 1 / 4


def check_memory(network: Network, backend: Backend) -> None:
    """Raise ConfigError for a layer that alone needs more than all memory, for a single picture.

    Its message names the layer and its largest option. What does not fit on a GPU is found when its
    memory is planned; the initial values of parameters are drawn in main memory there too.
    """
    there = main_memory()
    for layer in network.every_layer():
        for what, count in _needs(layer, backend.name == "cuda"):
            if _FLOAT * count > there:
                raise ConfigError(
                    f"{_described(layer)}its {what} would take {_size(_FLOAT * count)}, but "
                    f"there are {_size(there)} of memory; choose smaller numbers"
                )


@contextmanager
def blamed(network: Network, batch_size: int) -> Iterator[None]:
    """Turn a MemoryError into a ConfigError that names what takes most, unless it is the batch."""
    try:
        yield
    except MemoryError:
        worst = max(
            (count, what, _described(layer))
            for layer in network.every_layer()
            for what, count in _needs(layer, False)
        )
        count, what, layer = worst
        pictures = sum(math.prod(layer.output_shape) for layer in network.every_layer())
        share = _FLOAT * count / main_memory()
        if share < _LARGE or (share < _HUGE and count < batch_size * pictures):
            raise
        raise ConfigError(
            f"{layer}its {what} take {_size(_FLOAT * count)}: out of memory; choose smaller "
            "numbers, or end other programs"
        ) from None


def _needs(layer: Layer, on_gpu: bool) -> Iterator[tuple[str, int]]:
    """Numbers that are in memory at the same time, for one picture."""
    if layer.children:
        # Those inside are asked themselves.
        return
    weights = sum(p.tensor.size for p in layer.parameters())
    if on_gpu:
        yield "parameters", weights
        return
    window = getattr(layer, "window", None)
    if isinstance(window, Window):
        channels, height, width = layer.input_shape
        top, bottom, left, right = window.padding
        padded = (height + top + bottom) * (width + left + right)
        yield "padded input of a picture", channels * padded
    yield "output values of a picture", math.prod(layer.output_shape)
    yield "parameters and their gradients", 2 * weights


def _described(layer: Layer) -> str:
    """``layer 'dense_1': with units: 9 and input 784, ``: the largest options."""
    found: dict[str, int] = {}
    for option in fields(layer):
        value = getattr(layer, option.name)
        numbers = value if isinstance(value, tuple) else (value,)
        sizes = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
        if sizes and option.name != "input_shape":
            found[option.name] = max(sizes)
    largest = max(found.values(), default=0)
    named = [f"{name}: {size} and " for name, size in found.items() if size == largest]
    return f"layer '{layer.name}': with {''.join(named)}input {shape_text(layer.input_shape)}, "


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
