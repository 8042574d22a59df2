"""The teacher of a distillation: the network of a run or checkpoint, and its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...common.errors import CheckpointError, ConfigError
from ...common.text import listed, shape_text
from ...configs import RunConfig, parse_config
from ...layers.losses.distill import DistillLoss
from ..assemble import build_network, data_of
from ..network import TEACHER, Network, Teacher
from ..preprocessing import Preprocessing
from ..records.formats.provenance import BegunFrom, Provenance
from .source import open_source
from .start import alike, begin

_LISTED = 5


def teach(
    config: RunConfig, network: Network, classes: Sequence[str], known: BegunFrom | None = None
) -> RunConfig:
    """Give a network that learns by distillation its teacher; returns the config with its file.

    classes: of the data; known: the teacher's file when the run began. Raises ConfigError for a
    teacher of other samples or classes, CheckpointError for none, or for another than then.
    """
    loss = network.loss
    if not isinstance(loss, DistillLoss):
        return config
    if not loss.teacher:
        raise ConfigError("loss.teacher: is missing; name the run or checkpoint to learn from")
    source = open_source(loss.teacher, Path(config.run.dir), lambda text: None)
    if source.trained is None:
        raise CheckpointError(f"{source.path}: says of no network; a teacher is a run's checkpoint")
    if known is not None and known.file_sha256 != source.sha256:
        raise CheckpointError(
            f"{source.path}: is another teacher than that with which the run began (SHA-256 "
            f"{known.file_sha256[:12]}); put that one back, or start a new run"
        )
    _check(source.path, source.trained, network, classes)
    own = parse_config(source.trained.config, f"{source.path} (its config)")
    teacher = build_network(own, data_of(source.trained), source.path)
    start = begin(source, {tensor.name: tensor.shape for tensor in teacher.learned()}, ())
    if start.new:
        raise CheckpointError(f"{source.path}: does not fit its own network: {start.new[0]}")
    if not teacher.has_logits or teacher.loss.sigmoid:
        raise ConfigError(f"loss.teacher: {source.path} has no scores that a softmax is taken of")
    scaling = source.trained.preprocessing
    values = {f"{TEACHER}{name}": array for name, array in start.values.items()}
    network.teacher = Teacher(teacher, values, start.origin, scaling)
    path = str(source.path.absolute())
    return config.model_copy(update={"loss": config.loss.model_copy(update={"teacher": path})})


def check_scale(teacher: Teacher, scaling: Preprocessing) -> None:
    """Raise ConfigError unless a teacher sees pixels as it was trained; scaling: the data's."""
    if not alike(teacher.scaling, scaling):
        raise ConfigError(
            f"loss.teacher: {teacher.file.path} was trained on pixels of another scale; set "
            "data.normalize as in its config"
        )


def _check(path: Path, teacher: Provenance, network: Network, classes: Sequence[str]) -> None:
    """Raise ConfigError unless a teacher answers the same about the same samples."""
    theirs, ours = (shape_text(each.input_shape) for each in (teacher, network))
    if (theirs, teacher.floats) != (ours, network.floats):
        raise ConfigError(f"loss.teacher: {path} is for samples of {theirs}, the data has {ours}")
    if teacher.classes != tuple(classes):
        raise ConfigError(
            f"loss.teacher: {path} has other classes, or in another order: "
            f"{listed(teacher.classes, _LISTED)}; the data has {listed(list(classes), _LISTED)}"
        )
