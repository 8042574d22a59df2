"""Small networks on the known tables, of every loss whose targets are rows of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.network import Network
from dnnstack.training.normalization import mean_and_deviation, preprocessing

HERE = Path(__file__).parent
NETS = {
    "mse": ("diabetes", "numbers", "progression", "{type: mse, half: true}", 1e-3),
    "mae": ("diabetes", "numbers", "[progression, bmi]", "mae", 0.5),
    "huber": ("diabetes", "numbers", "[progression, bmi]", "{type: huber, delta: 20}", 0.05),
    "sum": ("diabetes", "numbers", "progression", "{type: huber, reduction: sum}", 1e-3),
}
STEPS = 12


def net(name: str) -> tuple[RunConfig, Network, ImageSet, Any]:
    """The config, network, data and preprocessing of a net."""
    table, kind, targets, loss, lr = NETS[name]
    file = HERE / f"{table}.csv"
    outputs = targets.count(",") + 1
    text = (
        f"seed: 3\ndata: {{dataset: {{csv: {{train: {file}, test: {file}, kind: {kind}, "
        f"targets: {targets}}}}}, batch_size: 64, validation: 0, shuffle: false}}\n"
        f"layers: [dense: {{units: 8}}, tanh, dense: {{units: {outputs}}}]\nloss: {loss}\n"
        f"optimizer: {{type: sgd, lr: {lr}, momentum: 0.9, weight_decay: 0.01}}\n"
        "train: {epochs: 2}\n"
    )
    config = parse_config(text, "net.yaml")
    info = describe_data(config)
    data = load_data(config, "train", Path())
    measured = mean_and_deviation(data.images, np.arange(len(data), dtype=np.int32))
    return config, build_network(config, info), data, preprocessing(config, info, measured)
