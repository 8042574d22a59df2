"""Networks with drawn weights as if they had been trained: no data, no steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.tuning import Tuning
from dnnstack.common.targets import Kind
from dnnstack.configs import effective_yaml, parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.training.assemble import build_network
from dnnstack.training.inference.trained import Trained
from dnnstack.training.preprocessing import Prepared, Preprocessing
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.state import State

Shape = tuple[int, int, int]


def untrained(
    layers: str,
    shape: Shape = (1, 28, 28),
    classes: int = 10,
    *,
    loss: str = "cross_entropy",
    kind: Kind = "class",
    floats: bool = False,
    seed: int = 0,
) -> Trained:
    """The network of some layers, as YAML in one line, for samples of this shape."""
    text = (
        f"name: drawn\ndata: {{dataset: mnist, batch_size: 2}}\nlayers: {layers}\nloss: {loss}\n"
        "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    )
    return with_drawn_weights(text, shape, classes, kind=kind, floats=floats, seed=seed)


def with_drawn_weights(
    text: str,
    shape: Shape,
    classes: int,
    *,
    kind: Kind = "class",
    floats: bool = False,
    seed: int = 0,
) -> Trained:
    """The network of a config; whatever data it names, samples have this shape and kind."""
    config = parse_config(text, "drawn.yaml")
    names = tuple(f"c{each}" for each in range(classes))
    info = DatasetInfo("mnist", shape, names, None, None, floats=floats, kind=kind)
    network = build_network(config, info)
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    scaling = Preprocessing.standardize(
        [0.3 + 0.05 * c for c in range(shape[0])], [0.25 + 0.1 * c for c in range(shape[0])]
    )
    few = rng.integers(0, 256, (8, *shape), np.uint8)
    first = Prepared(few, np.arange(8, dtype=np.int32), scaling)
    for tensor, values in network.initial_values(seed, lambda count: first).items():
        # A bias of 0, a mean of 0, a variance of 1 would hide mistakes.
        noise = rng.uniform(0.05, 0.4, values.shape).astype(np.float32)
        arrays[tensor.name] = values + noise if values.ndim == 1 else values
    provenance = Provenance(
        steps_per_epoch=1,
        config=effective_yaml(config),
        dataset="mnist",
        input_shape=shape,
        classes=names,
        preprocessing=scaling,
        tuning=Tuning("numpy", {}, "", {}),
        versions={"dnnstack": "0"},
        kind=kind,
        floats=floats,
    )
    state = State(step=1, window_start=0, sums=(0.0, 0.0, 0.0), best=None)
    return Trained.of(Checkpoint(Path("drawn.safetensors"), state, provenance, arrays, "0" * 64))
