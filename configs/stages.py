"""Reads the file of ``dnnstack compress``, as strictly as a config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..common.errors import ConfigError
from ..common.records import dataclass
from .document import Place, Problem
from .find import STAGES, find_config, packaged_configs, read_text
from .load import compose, compose_value
from .overrides import apply_override
from .schema.stages import CompressConfig
from .validate import raise_problems, validated


@dataclass(frozen=True)
class LoadedStages:
    """The stages with their file, and whether that is one of the package's."""

    config: CompressConfig
    path: Path
    packaged: bool


def packaged_stages() -> list[str]:
    """File names of those that ship with the package."""
    return packaged_configs(STAGES)


def load_stages(reference: str | Path, overrides: Sequence[str] = ()) -> LoadedStages:
    """The stages of the file ``reference``, ``./lenet.yaml`` before the packaged one of this name.

    overrides: ``key.path=value``, as in ``stages.0.train.epochs=2``. Raises ConfigError with every
    problem, each with its place.
    """
    found = find_config(reference, STAGES)
    problems: list[Problem] = []
    needed = "dnnstack compress needs stages, as in lenet.yaml of the package"
    root = compose(read_text(found), found.label, problems, needed)
    if root is None:
        raise_problems(found.label, problems)
    if isinstance(root.value, dict) and "layers" in root.value and "stages" not in root.value:
        raise ConfigError(
            f"{found.label}: describes a training, with layers; dnnstack compress takes a file "
            f"with stages, such as {', '.join(packaged_stages())} of the package"
        )
    for rank, text in enumerate(overrides if isinstance(root.value, dict) else (), 1):
        place = Place.in_override(text, rank)
        apply_override(root, text, place, problems, compose_value, CompressConfig)
    plain = root.plain() if isinstance(root.value, dict) else {}
    config = validated(root, problems, found.label, CompressConfig, plain)
    return LoadedStages(config, found.path, found.packaged)
