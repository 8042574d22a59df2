"""Trained networks through a format, beside what the reference answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dnnstack.backends.select import open_backend
from dnnstack.configs import effective_yaml, load_config, packaged_configs, parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.exports import door
from dnnstack.exports.format import Format
from dnnstack.exports.plain import Plain
from dnnstack.training.assemble import describe_data
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.trained import Trained
from hypothesis import HealthCheck, settings

from .random_nets import Training
from .untrained import with_drawn_weights

# Their weights are 61, 138 and 138 million numbers.
PACKAGED = sorted({*packaged_configs()} - {"alexnet.yaml", "vgg16.yaml", "vgg16-bn.yaml"})
NETS = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
_CHANGED = {
    **dict.fromkeys(
        ("cifar10-airbench.yaml", "cifar10-airbench-muon.yaml", "cifar10-fast.yaml"),
        "layers.0.conv2d.kernel_initializer=he_normal",
    ),
    **dict.fromkeys(
        ("resnet18.yaml", "resnet50.yaml", "mobilenet-v2.yaml"), "data.dataset.image_folder.size=32"
    ),
}


def reference(plain: Plain, stored: Any) -> Any:
    """What ``predict`` answers to samples of a data set."""
    return door._ours(plain, Forward(plain.trained, open_backend("numpy", 1)), stored)


def compared(format: Format, trained: Trained, folder: Path, count: int = 8) -> door.Checked:
    """The answers of the file, written twice alike, beside those of the reference."""
    plain, path = Plain.of(trained), folder / f"net{format.suffix}"
    files = format.files(plain)
    assert files == format.files(plain)
    door._write(path, files, durable=False)
    twin = format.twin(path, plain)
    assert twin is not None
    drawn = door.Samples.drawn(trained)
    asked = door.Samples(drawn.what, drawn.stored[:count])
    return door.compare(plain, twin, Forward(trained, open_backend("numpy", 1)), asked)


def drawn(training: Training) -> Trained:
    config = parse_config(json.dumps(training.config), "drawn.yaml")
    return _with_weights(config, training.info)


def packaged(name: str) -> Trained:
    """The network of a packaged config, of small pictures where any do."""
    config = load_config(name, [_CHANGED[name]] if name in _CHANGED else []).config
    return _with_weights(config, describe_data(config))


def _with_weights(config: Any, info: DatasetInfo) -> Trained:
    text, shape, classes = effective_yaml(config), info.shape, len(info.classes)
    return with_drawn_weights(text, shape, classes, kind=info.kind, floats=info.floats)
