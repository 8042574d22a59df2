"""Builds layers, with names and shapes, from the specifications of a config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ..common.errors import ConfigError, ShapeError
from ..common.options import kinds_in
from ..common.records import dataclass
from ..graph.graph import Shape
from .layer import Layer

LAYERS = {kind: each for kind, each in kinds_in(__package__, Layer).items() if each.named}
"""The layers that a config can use: every class with a ``kind`` in a module of this folder."""


@dataclass(frozen=True)
class LayerSpec:
    """A layer as a config describes it; ``name`` "" stands for ``<kind>_<n>``.

    The options of a composite include lists of specifications, or lists of such lists. ``place``
    says where the layer was written, ``parallel`` what ranks share out of it.
    """

    kind: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    parallel: str | None = None


def build_layers(specs: Sequence[LayerSpec], input_shape: Shape) -> list[Layer]:
    """Layers with all shapes worked out, input_shape: (C, H, W).

    A layer is called by its name, else ``<kind>_<n>``, n counted for each kind over the whole net
    in the order of the layers and, inside them, of their options: the body of a residual comes
    before its shortcut. The name of a layer inside a composite begins with the composite's name
    and a dot.
    Raises ShapeError with the layer's place and name, ConfigError for a name used twice.
    """
    return _Builder().stack(specs, input_shape, "", "layer ")


class _Builder:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._seen: set[str] = set()

    def stack(
        self, specs: Sequence[LayerSpec], shape: Shape, prefix: str, where: str
    ) -> list[Layer]:
        layers: list[Layer] = []
        for position, spec in enumerate(specs, 1):
            layers.append(self._layer(spec, shape, prefix, f"{where}{position}"))
            shape = layers[-1].output_shape
        return layers

    def _layer(self, spec: LayerSpec, shape: Shape, prefix: str, where: str) -> Layer:
        self._counts[spec.kind] += 1
        name = prefix + (spec.name or f"{spec.kind}_{self._counts[spec.kind]}")
        shown = f"{spec.place}: " if spec.place else ""
        shown += f"{where} '{name}' ({spec.kind})"
        if name in self._seen:
            raise ConfigError(
                f"{shown}: another layer has this name; give one of them another 'name:'"
            )
        self._seen.add(name)
        options = {
            key: self._built(value, shape, f"{name}.", f"{where}.{key}.")
            for key, value in spec.options.items()
        }
        try:
            layer = LAYERS[spec.kind](name, shape, **options)
        except ShapeError as error:
            raise error.after(f"{shown}: ") from None
        layer.parallel = spec.parallel
        return layer

    def _built(self, value: Any, shape: Shape, prefix: str, where: str) -> Any:
        """The option with layers instead of their specifications."""
        if not isinstance(value, (list, tuple)):
            return value
        if value and all(isinstance(item, LayerSpec) for item in value):
            return self.stack(value, shape, prefix, where)
        if any(isinstance(item, (list, tuple)) for item in value):
            numbered = enumerate(value, 1)
            return [self._built(item, shape, prefix, f"{where}{at}.") for at, item in numbered]
        return value
