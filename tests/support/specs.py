"""Layers as a config writes them."""

from __future__ import annotations

import yaml
from dnnstack.layers.build import LayerSpec


def layers_of(text: str) -> tuple[LayerSpec, ...]:
    """Those of a list in YAML, in which each is a word, or a word with its options."""
    pairs = [next(iter(each.items())) if isinstance(each, dict) else (each, {})
             for each in yaml.safe_load(text)]  # fmt: skip
    return tuple(LayerSpec(kind, options=options) for kind, options in pairs)
