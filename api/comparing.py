"""Comparing two trained networks from a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .arguments import machine, path_or_none, path_text, views
from .backends.select import Device, open_backend
from .classifier import Classifier
from .datasets import Downloads
from .many.answers import answers
from .many.comparison import Comparison
from .many.ensemble import check_members
from .many.members import check_parts, find_network
from .training.inference.evaluate import Part
from .wording import in_python, log_notice


@in_python
def compare(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    split: Part = "test",
    dataset: str | None = None,
    tta: str | None = None,
    device: Device = "auto",
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> Comparison:
    """Two networks on the same pictures: where only one of them is right, and McNemar's test.

    first, second: runs or checkpoint files. The other arguments are those of ``dnnstack compare``.
    Raises DnnstackError.
    """
    views(tta)
    names = path_text("first", first), path_text("second", second)
    folder = path_or_none("data_dir", data_dir)
    return compare_networks(
        names, Path(path_text("runs_dir", runs_dir)), split, dataset, tta,
        *machine(device, threads), True, folder,
        Downloads(offline=True) if offline else None,
        log_notice,
    )  # fmt: skip


def compare_networks(
    names: tuple[str, str],
    runs_dir: Path,
    split: Part,
    dataset: str | None,
    tta: str | None,
    device: Device,
    threads: int | None,
    capture: bool,
    data_dir: Path | None,
    downloads: Downloads | None,
    notice: Callable[[str], None],
    progress: Callable[[int], Callable[[int], object]] = lambda total: lambda count: None,
) -> Comparison:
    """See ``compare``; ``progress`` gets the number of pictures, and gives what is told of each
    batch."""
    networks = [find_network(name, runs_dir, notice) for name in names]
    check_members(networks)
    backend = open_backend(device, threads, notice, capture)
    with Classifier(networks[0], backend, notice) as one:
        images, index = one.load_part(split, dataset, data_dir, downloads, tta=tta)
    check_parts(networks, split, images)
    advance = progress(2 * len(index))
    return Comparison.of(
        *(answers(each, backend, images, index, split, advance, tta) for each in networks)
    )
