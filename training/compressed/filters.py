"""Pruning by filters: whole filters and units are left out, and what follows gets fewer channels.

The network that is left is dense and smaller, with a config of its own. Source: Li et al. 2017,
"Pruning filters for efficient ConvNets".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import ConfigError
from ...common.text import listed
from ...configs import RunConfig
from ...layers.composite import ConcatLayer, Residual, Sequential
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

    shares: by name of a conv2d or dense layer; * and ? stand for any text, and the first name that
    matches holds. In a block only such layers count that another one follows on the same path: the
    channels at its end meet others. Raises ConfigError.
    """
    counts = _counts(network, shares)
    # Which ones they are does not matter to whether they can be left out.
    _places(network, {name: np.arange(count) for name, count in counts.items()})
    return config.model_copy(update={"layers": _smaller(network.layers, config.layers, counts)})


def _smaller(
    layers: Sequence[Layer], given: Sequence[Any], counts: Mapping[str, int]
) -> tuple[Any, ...]:
    """The same layers in a config, with these counts of filters or units."""
    found = []
    for layer, each in zip(layers, given, strict=True):
        changed: dict[str, Any] = {}
        if layer.name in counts and isinstance(layer, Conv2dLayer | Dense):
            count = "filters" if isinstance(layer, Conv2dLayer) else "units"
            changed[count] = counts[layer.name]
        elif isinstance(layer, Sequential):
            changed["layers"] = _smaller(layer.children, each.layers, counts)
        elif isinstance(layer, Residual):
            changed["body"] = _smaller(layer.body, each.body, counts)
            if not isinstance(layer.shortcut, str):
                changed["shortcut"] = _smaller(layer.paths[1], each.shortcut, counts)
        elif isinstance(layer, ConcatLayer):
            pairs = zip(layer.branches, each.branches, strict=True)
            changed["branches"] = tuple(_smaller(*pair, counts) for pair in pairs)
        found.append(each.model_copy(update=changed) if changed else each)
    return tuple(found)


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
    able = {layer.name: layer for layer in _able(network.layers)}
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


def _able(layers: Sequence[Layer]) -> Iterator[Layer]:
    """The layers of a stack whose filters or units can be left out, at any depth."""
    for layer in layers:
        if isinstance(layer, Sequential):
            yield from _able(layer.children)
        elif paths := _paths(layer):
            for path in paths:
                products = [each for each in path if _can_be_cut(each) or each.children]
                found = _able(path)
                last = products[-1] if products else None
                yield from (each for each in found if each is not last)
        elif _can_be_cut(layer):
            yield layer


def _paths(layer: Layer) -> tuple[Sequence[Layer], ...]:
    """The paths through a block whose ends meet; none for other layers."""
    return layer.paths if isinstance(layer, Residual | ConcatLayer) else ()


def _can_be_cut(layer: Layer) -> bool:
    if isinstance(layer, Conv2dLayer):
        return layer.groups == 1 and layer.connections is None
    return isinstance(layer, Dense)


def _places(network: Network, kept: Mapping[str, Index]) -> list[tuple[str, int, Index]]:
    """(array, axis, index) of what is taken: own filters, then the channels of what follows.

    Raises ConfigError for a layer that cannot have fewer channels, and for the last one.
    """
    found: list[tuple[str, int, Index]] = []
    index, cut = _through(network.layers, None, "", kept, found)
    if index is not None:
        raise ConfigError(
            f"filters: '{cut}' is the last layer with weights, whose outputs are the classes; "
            "leave it out"
        )
    return found


def _through(
    layers: Sequence[Layer],
    index: Index | None,
    cut: str,
    kept: Mapping[str, Index],
    found: list[tuple[str, int, Index]],
) -> tuple[Index | None, str]:
    """The channels that are left at the end of layers, None for all, and who left the others out.

    index, cut: the same at their beginning.
    """
    for layer in layers:
        if isinstance(layer, Sequential):
            index, cut = _through(layer.children, index, cut, kept, found)
            continue
        tensors: list[Any] = [each.tensor for each in layer.parameters()]
        tensors += [each.tensor for each in layer.running_statistics()]
        if index is not None:
            if _can_be_cut(layer):
                found.append((f"{layer.name}.weight", 1, index))
                index = None
            else:
                index = _passed(layer, tensors, index, cut, found)
        for path in _paths(layer):
            left, name = _through(path, None, "", kept, found)
            if left is not None:
                raise ConfigError(
                    f"filters: the channels of '{name}' meet others at the end of '{layer.name}'; "
                    f"leave '{name}' out"
                )
        if layer.name in kept:
            index, cut = kept[layer.name], layer.name
            found += [(tensor.name, 0, index) for tensor in tensors]
    return index, cut


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
