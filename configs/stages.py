"""Reads the file of ``dnnstack compress``, as strictly as a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .document import Place, Problem
from .find import Found, find_config, read_text
from .load import compose, compose_value
from .overrides import apply_override
from .schema.stages import CompressConfig
from .validate import raise_problems, validated

FOLDER = "compression"


@dataclass(frozen=True)
class LoadedStages:
    """The stages with their file, and whether that is one of the package's."""

    config: CompressConfig
    path: Path
    packaged: bool


def packaged_stages() -> list[str]:
    """File names of those that ship with the package."""
    return sorted(path.name for path in (Path(__file__).parent / FOLDER).glob("*.yaml"))


def load_stages(reference: str | Path, overrides: Sequence[str] = ()) -> LoadedStages:
    """The stages of the file ``reference``, ``./lenet.yaml`` before the packaged one of this name.

    overrides: ``key.path=value``, as in ``stages.0.train.epochs=2``. Raises ConfigError with every
    problem, each with its place.
    """
    found = _found(reference)
    problems: list[Problem] = []
    root = compose(read_text(found), found.label, problems)
    if root is None:
        raise_problems(found.label, problems)
    for rank, text in enumerate(overrides if isinstance(root.value, dict) else (), 1):
        place = Place.in_override(text, rank)
        apply_override(root, text, place, problems, compose_value, CompressConfig)
    plain = root.plain() if isinstance(root.value, dict) else {}
    config = validated(root, problems, found.label, CompressConfig, plain)
    return LoadedStages(config, found.path, found.packaged)


def _found(reference: str | Path) -> Found:
    path = Path(reference)
    packaged = Path(__file__).parent / FOLDER / path.name
    if not path.exists() and path.name == str(reference) and path.name in packaged_stages():
        return Found(packaged, True, str(packaged))
    return find_config(reference)
