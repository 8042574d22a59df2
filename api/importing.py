"""Networks that other programs have trained, as runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .arguments import path_text, picture_size
from .fitting import Overrides, assignments
from .imports.onnx_run import Imported, Wishes, import_network
from .wording import in_python, log_notice


@in_python
def import_onnx(
    file: str | os.PathLike[str],
    *,
    name: str | None = None,
    size: int | str | tuple[int, int] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    overrides: Overrides = (),
    runs_dir: str | os.PathLike[str] = "runs",
) -> Imported:
    """The network of an ONNX file as a run, as ``dnnstack import`` makes it.

    ``run`` of the result is its folder, which ``load`` takes; None if no layers compute the
    network: then ``written`` is a file with the weights alone, and ``reasons`` say why. mean, std:
    what the network expects of pixels / 255, one number or one per channel. size: (height, width)
    of pictures, where the file leaves it open. Raises CheckpointError, ConfigError, UsageError.
    """
    shift, scale = ([v] if isinstance(v, (int, float)) else v for v in (mean, std))
    wishes = Wishes(name, picture_size(size), shift, scale, classes, assignments(overrides))
    path, folder = Path(path_text("file", file)), Path(path_text("runs_dir", runs_dir))
    return import_network(path, wishes, folder, log_notice)
