"""The places of a loaded config's keys, for mistakes that are found only later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..common.errors import ConfigError, DatasetError, ShapeError
from .document import Node
from .load import LoadedConfig

_KEY = re.compile(r"([a-z_]+(?:\.\w+)+): ")
_LAYER = re.compile(r"layer '([^']+)'")


@contextmanager
def placed(loaded: LoadedConfig) -> Iterator[None]:
    """Add places to errors that begin with a key of the config, such as ``data.batch_size: ``.

    The same holds for errors that begin with a layer, ``layer 'dense_1'``. A config that matches
    the schema may still not fit the data or the network, which the loader does not know: a batch
    larger than the training set, a group without parameters.
    """
    try:
        yield
    except (ConfigError, DatasetError, ShapeError) as error:
        found = _KEY.match(str(error))
        place = _place(loaded.document, found[1].split(".")) if found else None
        place = place or layer_place(loaded.config.layers, str(error))
        if not place:
            raise
        raise error.after(f"{place}: ") from None


def layer_place(layers: Sequence[Any], message: str) -> str:
    """Where the layer was written that a message begins with, ``layer '<name>'``; "" for none."""
    from .schema.layers import named_layers

    found = _LAYER.match(message)
    places = {name: layer.place for name, layer in named_layers(layers)}
    name = found[1] if found else ""
    while name not in places and name:
        # A layer that is made of others has names for these.
        name = name.rpartition(".")[0]
    return places.get(name, "")


def _place(node: Node, path: list[str]) -> str | None:
    """The place of the key; of the mapping that lacks it, if its default is used; or None."""
    place = None
    for part in path:
        inner = node.child(int(part) if part.isdigit() else part)
        if inner is None:
            # Short forms such as ``schedule: exp`` have the place of the section too.
            return place
        node = inner
        place = str(node.place)
    return place
