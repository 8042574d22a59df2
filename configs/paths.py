"""What the relative paths of a config count from: its file, or this folder for an override."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .document import Node
from .schema.run import RunConfig


def with_folders(config: RunConfig, root: Node, folder: Path | None) -> RunConfig:
    """The config with ``data.root`` counted from ``folder``, that of the file; None: it has none.

    Without ``data.root`` it is the file's folder, if the folder or file ``train`` is there, so
    that everything that is made of this config finds it from anywhere. A folder or file that an
    override names is an absolute path, if it is in the working directory. What is not found in
    this way is left as it is, to be looked for in the data folder.
    """
    data = root.child("data")
    written = data and data.child("root")
    changed: dict[str, Any] = {}
    if config.data.root is not None:
        beside = Path.cwd() if written is not None and written.place.rank else folder
        if beside is not None and (path := _counted(beside, config.data.root)):
            changed["root"] = path
    elif config.data.dataset.files:
        changed = _with_files(config, data, folder)
    labels, written = config.data.labels, data and data.child("labels")
    beside = Path.cwd() if written is not None and written.place.rank else folder
    if labels is not None and beside is not None and (path := _there(beside, labels)):
        changed["labels"] = path
    if not changed:
        return config
    return config.model_copy(update={"data": config.data.model_copy(update=changed)})


def _with_files(config: RunConfig, data: Node | None, beside: Path | None) -> dict[str, Any]:
    dataset = config.data.dataset
    options = data and data.child("dataset")
    options = options and options.child(dataset.type)
    moved: dict[str, Any] = {}
    for key, named in dataset.files.items():
        node = options and options.child(key)
        paths = tuple(_there(Path.cwd(), each) or each for each in named)
        if node and node.place.rank and paths != named:
            moved[key] = paths if paths[1:] else paths[0]
    changed: dict[str, Any] = {"dataset": dataset.model_copy(update=moved)} if moved else {}
    if beside is not None and "train" not in moved and _there(beside, dataset.files["train"][0]):
        root = str(beside)
        # A name that no config could hold would make the run's own config unreadable.
        if root.isprintable():
            changed["root"] = root
    return changed


def _counted(beside: Path, folder: str) -> str:
    """The absolute path of a relative one, unless only the working directory has that folder."""
    # The config of an earlier run names a folder that was counted from the working directory.
    elsewhere = os.path.isdir(folder) and not os.path.isdir(beside / folder)
    return "" if elsewhere else _absolute(beside, folder)


def _there(beside: Path, folder: str) -> str:
    """The absolute path of a relative one, if that folder or file exists; else ""."""
    return _absolute(beside, folder) if os.path.exists(beside / folder) else ""


def _absolute(beside: Path, folder: str) -> str:
    """The absolute path of a relative one that can be written; else ""."""
    path = str(beside / folder)
    relative = not os.path.isabs(folder) and not folder.startswith("~")
    return path if relative and path.isprintable() else ""
