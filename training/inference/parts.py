"""The samples of a split that a trained network is evaluated on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DatasetError, Warned
from ...common.targets import named
from ...common.text import samples_of, shape_text
from ...configs.suggest import expected
from ...datasets import Downloads, ImageSet, describe, load
from ...datasets.identity import some
from ...datasets.pictures import resized
from ..assemble import describe_data, load_data
from ..augmentation import views_of
from ..own_samples import choose, in_classes, listed_samples
from ..splits import divide
from .evaluate import Part
from .trained import Trained, check_folders


def load_part(
    trained: Trained,
    part: Part,
    root: Path,
    dataset: str | None = None,
    downloads: Downloads | None = None,
    notice: Callable[[str], object] = lambda text: None,
    size: tuple[int, int] | None = None,
    read: Callable[..., ImageSet] = load_data,
    tta: str | None = None,
) -> tuple[ImageSet, NDArray[np.int32]]:
    """The pictures of a split and the indices that belong to it.

    Classes are matched by name, and labels are those of the network. dataset: a data set other than
    that of training, with the same channels and classes. ``train`` and ``validation`` are the parts
    into which training divided the training set. ``notice`` is told of changes since the training.
    size: (height, width) to be evaluated at, which ``fitted`` gives to pictures without files;
    ``read`` loads the own data set; tta: the views that it will be seen in.
    Raises DatasetError, CheckpointError, and ShapeError for a size that the network cannot take.
    """
    if part not in get_args(Part):
        raise DatasetError(f"split: {expected(get_args(Part), str(part), repr(part))}")
    config, origin = trained.config, (trained.path, trained.checkpoint.provenance)
    views_of(tta or config.evaluate.tta).check(trained.input_shape, len(trained.classes))
    own, known = config.data.dataset.type, origin[1].known
    name = own if dataset is None else dataset
    if name == own:
        check_folders(trained.checkpoint, config)
    split: Literal["train", "test"] = "test" if part == "test" else "train"
    info = describe_data(config, root, known) if name == own else describe(name, root=root)
    fits = name == own or len(info.classes) == len(trained.classes)
    if info.shape[0] != trained.input_shape[0] or not fits:
        needed = f"{shape_text(trained.input_shape)} and {len(trained.classes)} classes"
        raise DatasetError(
            f"dataset '{name}' has {samples_of(info.shape)} {shape_text(info.shape)} and "
            f"{len(info.classes)} classes; {trained.path} needs {needed}"
        )
    if info.kind != trained.data.kind:
        raise DatasetError(
            f"dataset '{name}' has the targets of {named(info.kind)}; {trained.path} was "
            f"trained on {named(trained.data.kind)}"
        )
    trained.at_size(size or info.shape[1:])
    if name == own:
        images = read(config, split, root, downloads, known, *([size] if size else []))
    else:
        images = load(name, split, root=root, downloads=downloads)
    if part == "test" or name != own:
        images = in_classes(images, trained.classes, str(trained.path), notice, name != own)
    if part == "test":
        listed = listed_samples(origin) if name == own else None
        trained_on = set() if listed is None else listed.trained_contents()
        pairs = zip(images.names, images.contents, strict=True)
        if seen := [sample for sample, content in pairs if content in trained_on]:
            which = f"{len(seen)} of {len(images)} {samples_of(info.shape)}"
            notice(Warned(f"{which} were trained on: {some(seen)}"))
        return images, np.arange(len(images), dtype=np.int32)
    if name == own:
        taken = choose(config, images, origin, None, False, True, notice)
        images, train, validation = taken.images, taken.train, taken.validation
    else:
        train, validation = divide(config, images.labels, images.held)
    if part == "train":
        return images, train
    if len(validation) == 0:
        raise DatasetError(
            f"{trained.path}: was trained without validation samples (data.validation: 0); "
            "use --split train or --split test"
        )
    return images, validation


def fitted(
    trained: Trained,
    images: ImageSet,
    size: tuple[int, int] | None,
    notice: Callable[[str], object],
) -> ImageSet:
    """The pictures, or sequences as a whole, scaled to ``size``, by default as they are."""
    if size not in (None, images.images.shape[2:]):
        found = resized(images.images, size, not trained.takes_pictures)
        images = replace(images, images=found)
    own, shape = trained.input_shape, images.images.shape[1:]
    if shape != own:
        notice(
            f"{samples_of(own)} are {shape_text(shape)}; in training they were {shape_text(own)}"
        )
    return images
