"""Pruning by filters: whole filters and units are left out, and what follows gets fewer channels.

The network that is left is dense and smaller, with a config of its own. Source: Li et al. 2017,
"Pruning filters for efficient ConvNets".
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import ConfigError
from ...common.text import listed
from ...configs import RunConfig
from ...layers.conv import Conv2dLayer
from ...layers.dense import Dense
from ...layers.flatten import Flatten
from ...layers.layer import Layer
from ..network import Network

Arrays = Mapping[str, NDArray[np.float32]]
Index = NDArray[np.intp]
_NAMED = 12


def smaller_config(config: RunConfig, network: Network, shares: Mapping[str, float]) -> RunConfig:
    """The config of the network that keeps these shares of its filters and units.

    shares: by name of a conv2d or dense layer of the stack; * and ? stand for any text, and the
    first name that matches holds. Raises ConfigError.
    """
    counts = _counts(network, shares)
    # Which ones they are does not matter to whether they can be left out.
    _places(network, {name: np.arange(count) for name, count in counts.items()})
    layers = []
    for layer, given in zip(network.layers, config.layers, strict=True):
        if layer.name in counts and isinstance(layer, Conv2dLayer | Dense):
            given = given.model_copy(update={layer.count: counts[layer.name]})
        layers.append(given)
    return config.model_copy(update={"layers": tuple(layers)})


def smaller_arrays(
    network: Network, shares: Mapping[str, float], arrays: Arrays
) -> dict[str, NDArray[np.float32]]:
    """What is left of the arrays: the filters with the largest sums of magnitudes, in their order.

    Of equal ones the first are kept. Raises ConfigError.
    """
    kept: dict[str, Index] = {}
    for name, count in _counts(network, shares).items():
        weight = np.abs(arrays[f"{name}.weight"].astype(np.float64))
        sums = weight.reshape(len(weight), -1).sum(1)
        kept[name] = np.sort(np.argsort(-sums, kind="stable")[:count])
    found = dict(arrays)
    for name, axis, index in _places(network, kept):
        found[name] = np.ascontiguousarray(found[name].take(index, axis))
    return found


def _counts(network: Network, shares: Mapping[str, float]) -> dict[str, int]:
    """How many filters or units each layer keeps that a name matches, at least one."""
    able = {layer.name: layer for layer in network.layers if _can_be_cut(layer)}
    found: dict[str, int] = {}
    used = set()
    for name, layer in able.items():
        first = next((each for each in shares if fnmatchcase(name, each)), None)
        if first is not None:
            used.add(first)
            found[name] = max(1, round(shares[first] * layer.output_shape[0]))
    for pattern in shares:
        if pattern not in used:
            raise ConfigError(
                f"filters: no layer matches '{pattern}', or all that do match an earlier name; "
                "those whose filters or units can be left out are "
                f"{listed(list(able), _NAMED) or 'none'}"
            )
    return found


def _can_be_cut(layer: Layer) -> bool:
    if isinstance(layer, Conv2dLayer):
        return layer.groups == 1 and layer.connections is None
    return isinstance(layer, Dense)


def _places(network: Network, kept: Mapping[str, Index]) -> list[tuple[str, int, Index]]:
    """(array, axis, index) of what is taken: own filters, then the channels of what follows.

    Raises ConfigError for a layer that cannot have fewer channels, and for the last one.
    """
    found: list[tuple[str, int, Index]] = []
    index, cut = None, ""
    for layer in network.layers:
        tensors: list[Any] = [each.tensor for each in layer.parameters()]
        tensors += [each.tensor for each in layer.running_statistics()]
        if index is not None:
            if _can_be_cut(layer):
                found.append((f"{layer.name}.weight", 1, index))
                index = None
            else:
                index = _passed(layer, tensors, index, cut, found)
        if layer.name in kept:
            index, cut = kept[layer.name], layer.name
            found += [(tensor.name, 0, index) for tensor in tensors]
    if index is not None:
        raise ConfigError(
            f"filters: '{cut}' is the last layer with weights, whose outputs are the classes; "
            "leave it out"
        )
    return found


def _passed(
    layer: Layer, tensors: list[Any], index: Index, cut: str, found: list[tuple[str, int, Index]]
) -> Index:
    """The channels that are left behind a layer that keeps channels apart."""
    channels = layer.input_shape[0]
    if isinstance(layer, Flatten):
        pixels = prod(layer.input_shape[1:])
        return (index[:, None] * pixels + np.arange(pixels)).ravel()
    own = [tensor for tensor in tensors if tensor.size > 1]
    apart = all(tensor.shape == (channels,) for tensor in own)
    if layer.children or not apart or layer.output_shape[0] != channels:
        raise ConfigError(
            f"filters: '{layer.name}' ({layer.kind}) follows '{cut}' and cannot have fewer "
            f"channels; leave '{cut}' out"
        )
    found += [(tensor.name, 0, index) for tensor in own]
    return index
