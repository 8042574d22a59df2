"""Layers as a config writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from dnnstack.graph.graph import Shape
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.training.network import Network


def layers_of(text: str) -> tuple[LayerSpec, ...]:
    """Those of a list in YAML, in which each is a word, or a word with its options."""
    pairs = [next(iter(each.items())) if isinstance(each, dict) else (each, {})
             for each in yaml.safe_load(text)]  # fmt: skip
    return tuple(LayerSpec(kind, options=options) for kind, options in pairs)


def spec(kind: str, **options: Any) -> LayerSpec:
    return LayerSpec(kind, options=options)


def network_of(layers: Sequence[LayerSpec], shape: Shape, classes: int = 10) -> Network:
    """A classifier of pictures of this shape by cross-entropy."""
    return Network(build_layers(layers, shape), CrossEntropyLoss(), shape, classes)
