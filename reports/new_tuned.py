"""What ``dnnstack new`` writes where weights are given: their network, pixels and rates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..common.errors import CheckpointError, DnnstackError
from ..common.records import dataclass
from ..configs import RunConfig, parse_config
from ..configs.find import find_config
from ..datasets import DatasetInfo
from ..training.assemble import build_network, describe_data
from ..training.normalization import preprocessing
from ..training.weights.source import Source
from ..training.weights.start import begin

_NETWORKS = tuple(
    f"{name}.yaml" for name in ("resnet18", "resnet50", "vgg16", "vgg16-bn", "mobilenet-v2")
)
_SECTIONS = re.compile(r"^(?:blocks|layers):.*\n(?:(?:[ #].*)?\n)*", re.MULTILINE)
_UNITS = re.compile(r"(.*\bunits: )\d+", re.DOTALL)


@dataclass(frozen=True)
class Tuned:
    """A network whose weights are called ``name``.

    ``layers``: its sections of a config; ``last``: the name of the last layer, which begins anew
    unless the classes are ``known`` to it; ``shape``: (C, H, W) of its input; ``mean``, ``std``: of
    each channel.
    """

    name: str
    known: bool
    layers: str
    last: str
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def start(self) -> tuple[Any, str]:
        """``init_from`` of a config, and why."""
        if self.known:
            return self.name, "all of its weights, which are for the same classes"
        value = {"source": self.name, "skip": f"{self.last}.*"}
        return value, "its weights, but for those of the last layer, which begins anew"

    @property
    def optimizer(self) -> str:
        """The lines of a config that train the last layer first, then all, the others slower."""
        return (
            "optimizer:\n"
            "  type: sgd\n"
            "  lr: 0.01\n"
            "  momentum: 0.9\n"
            "  weight_decay: 1e-4\n"
            "  groups: # the last layer is trained first, alone; then all are, the others slower\n"
            f'    - {{parameters: "{self.last}.*", lr_factor: 1}}\n'
            '    - {parameters: "*", lr_factor: 0.1, freeze_until_epoch: 2}\n'
            "schedule: cosine\n"
        )


def tuned(name: str, source: Source, classes: Sequence[str]) -> Tuned:
    """The network whose weights these are, called ``name``, with outputs for these classes.

    It is that of a run, or one of the packaged ones. Raises CheckpointError if none fits.
    """
    for text, config, info in _candidates(source):
        try:
            last = anew(source, config, info)
        except DnnstackError:
            continue
        shape = info.shape
        if source.side and source.trained is None:
            shape = (shape[0], source.side, source.side)
        mean, std = (source.preprocessing or preprocessing(config, info)).mean_and_std()
        sections = "\n\n".join(each.strip() for each in _SECTIONS.findall(text))
        layers = _UNITS.sub(rf"\g<1>{len(classes)}", sections, count=1)
        known = source.trained is not None and {*source.trained.classes} == {*classes}
        return Tuned(name, known, f"{layers}\n", last, shape, mean, std)
    raise CheckpointError(
        f"{source.path}: has the weights of no network of pictures that is known: of a run, or of "
        f"{', '.join(_NETWORKS)}; dnnstack help finetuning says how to use weights of others"
    )


def _candidates(source: Source) -> Iterator[tuple[str, RunConfig, DatasetInfo]]:
    """The text of each config that may have the network, what it says, and what it is for."""
    if source.trained is None:
        for name in _NETWORKS:
            text = find_config(name).path.read_text("utf-8")
            config = parse_config(text, name)
            yield text, config, describe_data(config)
    elif source.trained.kind == "class" and source.trained.input_shape[0] in (1, 3):
        said = source.trained
        shape = said.input_shape[0], said.input_shape[1], said.input_shape[2]
        info = DatasetInfo(said.dataset, shape, said.classes, None, None)
        yield said.config, parse_config(said.config, f"{source.path} (its config)"), info


def anew(source: Source, config: RunConfig, info: DatasetInfo) -> str:
    """The name of the last layer, if all arrays of the others are taken from the source.

    Raises CheckpointError that names one that is not.
    """
    network = build_network(config, info)
    last = network.parameters()[-1].tensor.name.rpartition(".")[0]
    start = begin(source, {each.name: each.shape for each in network.learned()}, ())
    for each in (*start.new, *start.left):
        if each.name.rpartition(".")[0] != last:
            raise CheckpointError(f"{source.path}: {each}")
    return last
