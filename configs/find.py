"""Finds a config file: the one named, or one that ships with the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..common.errors import ConfigError, explaining
from ..common.records import dataclass
from .suggest import nearest

LARGEST_FILE = 2**20
TOO_LARGE = "larger than 1 MiB, which is too large for a config"
_FOLDER = Path(__file__).parent
_SEARCHES = _FOLDER / "search"
STAGES = _FOLDER / "compression"
_KINDS = {
    _FOLDER: "describes a training, for dnnstack train",
    _SEARCHES: "is a search, for dnnstack sweep",
    STAGES: "has the stages of dnnstack compress",
}


@dataclass(frozen=True)
class Found:
    """A config file and whether it is one of the package's own."""

    path: Path
    packaged: bool
    label: str


def packaged_configs(folder: Path = _FOLDER) -> list[str]:
    """File names of the configs that ship with the package, in this folder of it."""
    return sorted(path.name for path in folder.glob("*.yaml"))


def packaged_searches() -> list[str]:
    """File names of the searches that ship with the package, for ``dnnstack sweep``."""
    return packaged_configs(_SEARCHES)


def find_config(
    reference: str | Path, folder: Path = _FOLDER, known: Sequence[str] | None = None
) -> Found:
    """The file at ``reference``; a bare file name also finds the package's config of that name.

    folder: of the package, where that is. known: the package's configs that an error names, by
    default those of ``folder``. Raises ConfigError.
    """
    path = Path(reference)
    if not str(reference):
        raise ConfigError("--config is empty; name a YAML file")
    if str(reference) == "-" and not path.exists():
        raise ConfigError(
            "-: no such file; a config is not read from standard input by this name, but by "
            "/dev/stdin"
        )
    if path.is_dir():
        raise ConfigError(f"{reference}: is a folder; --config needs a YAML file")
    if path.exists():
        return Found(path, False, str(reference))
    packaged = packaged_configs(folder)
    bare = path.name == str(reference)
    if bare and path.name in packaged:
        return Found(folder / path.name, True, str(folder / path.name))
    if bare and folder == _FOLDER and path.name in packaged_searches():
        return Found(_SEARCHES / path.name, True, str(_SEARCHES / path.name))
    for other, kind in _KINDS.items():
        if bare and other != folder and path.name in packaged_configs(other):
            raise ConfigError(
                f"{reference}: {kind}; here another is needed, such as {', '.join(packaged)}"
            )
    packaged = packaged if known is None else list(known)
    beside = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    stems = {Path(name).stem: name for name in [*(packaged if bare else []), *beside]}
    stem = nearest(path.stem, stems)
    guess = str(path.parent / stems[stem]) if stem else ""
    what = "configs" if known is None else "configs for this command"
    # With a path, a config of the package cannot have been meant.
    near = path.parent == Path()
    raise ConfigError(
        f"{reference}: no such file"
        + (f"; did you mean '{guess}'?" if guess else "")
        + (f" ({what} in the package: {', '.join(packaged)})" if near else "")
    )


def read_text(found: Found) -> str:
    """The file as text: UTF-8, at most 1 MiB."""
    with explaining(found.label, "cannot be read", "", ConfigError), found.path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{found.label}: {TOO_LARGE}")
    if b"\0" in data:
        raise ConfigError(f"{found.label}: is not text; --config needs a YAML file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        raise ConfigError(
            f"{found.label}:{line}:{column}: not UTF-8 text; save the file as UTF-8"
        ) from None
