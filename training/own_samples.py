"""Which samples a network takes: those of its run, also where the data set has changed since."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError, DatasetError, Warned
from ..common.records import dataclass
from ..common.targets import named
from ..common.text import nfc
from ..configs import RunConfig, parse_config
from ..datasets import ImageSet
from ..datasets.identity import Identity, compare, matched_classes, some, unknown
from ..datasets.loader import Index
from .records.formats.provenance import Provenance
from .records.formats.samples import SAMPLES, TRAINED, VALIDATED, Samples, read_samples
from .records.group import is_group, read_group
from .records.runs import list_runs, run_of_checkpoint
from .splits import divide

Notice = Callable[[str], object]
Origin = tuple[Path, Provenance]
"""The file of a checkpoint, and what it says of itself."""
# Options of a data set that do not decide which samples there are.
_OF_PIXELS = ("size", "fit", "mode", "draft")


@dataclass(frozen=True)
class Chosen:
    """What a network takes of a data set; ``samples``: how the records of its run name it.

    images: what is taken; rows: (N,), its places in the set; train, validation: places in
    ``images``, ascending. ``whole``: all of the set, divided as the config says. ``listed``: what
    is left of a list.
    """

    samples: Samples
    images: ImageSet
    rows: Index
    train: Index
    validation: Index
    whole: bool = False
    listed: bool = False

    @property
    def record(self) -> Samples | None:
        """The list that the run's folder needs; None if a digest will do."""
        own = self.samples
        return own if own.names or own.earlier or not self.whole else None

    def told(self) -> dict[str, Any] | None:
        """What other ranks need to take the same; None for the whole set."""
        places = (self.rows, self.images.labels, self.train, self.validation)
        told = {"classes": self.images.classes, "places": [each.tolist() for each in places]}
        return None if self.whole else told


def choose(
    config: RunConfig,
    images: ImageSet,
    run: Origin | None,
    ancestor: Origin | None,
    keeps_classes: bool,
    accept: bool,
    notice: Notice,
) -> Chosen:
    """What a network takes of its training set, ``images``.

    run: the checkpoint that goes on or is evaluated; ancestor: the one that a new run begins from,
    whose samples it never validates on, and whose order of classes it has if it ``keeps_classes``.
    ``accept``: what is left of the samples of the run, or of its group, if the set has changed.
    Raises CheckpointError if it has and this is not accepted, DatasetError.
    """
    if run is not None:
        return _of_run(config, images, run, accept, notice)
    group = _of_group(config)
    identity, held = images.identity, images.held
    if group is not None:
        places = np.arange(len(group.parts))
        held = None if held is None else np.isin(places, group.places(VALIDATED))
        identity = group.identity
    barred, earlier = _trained_on(ancestor, identity, held, config, notice)
    parts = divide(config, identity.labels, held)
    listed = bool(barred[parts[1]].any())
    if listed:
        asked, parts = len(parts[1]), divide(config, identity.labels, held, barred)
        if len(parts[1]) < asked:
            notice(
                f"{config.data.validation_key}: {len(parts[1])} samples, not {asked}: all others "
                "were trained on by the network that init_from names"
            )
    samples = Samples.of(identity, parts[1], earlier)
    if group is not None:
        return _among(samples, images, config.run.dir, accept, notice)
    if keeps_classes and ancestor is not None:
        order = ancestor[1].classes
        if {*map(nfc, order)} == {*map(nfc, images.classes)}:
            images = in_classes(images, order, config.name, notice)
    whole = not listed and images.classes == identity.classes
    rows = np.arange(len(images), dtype=np.int32)
    return Chosen(samples, images, rows, *parts, whole)


def _of_run(
    config: RunConfig, images: ImageSet, run: Origin, accept: bool, notice: Notice
) -> Chosen:
    path, origin = run
    if (listed := listed_samples(run)) is not None:
        return _among(listed, images, str(path), accept, notice)
    own = in_classes(images, origin.classes, str(path), notice, strict=not accept)
    rows = _known(images, matched_classes(origin.classes, images.classes))
    parts = divide(config, own.labels, own.held)
    samples = Samples.of(own.identity, parts[1])
    if origin.samples not in ("", samples.mark):
        text = f"{path}: the data set is not what it was trained on"
        if config.data.dataset.type == "arrays":
            raise CheckpointError(f"{text}; give the same arrays, in the same order")
        raise CheckpointError(
            f"{text}, or is divided otherwise than its config says, and {SAMPLES}, which names its "
            "samples, is not in the folder of its run; put the data back as they were, or the "
            "checkpoint into the folder of its run"
        )
    return Chosen(samples, own, rows, *parts, own is images)


def _among(listed: Samples, images: ImageSet, begun: str, accept: bool, notice: Notice) -> Chosen:
    """What is left of a list, in its order. begun: the checkpoint or group that began with it."""
    found = compare(listed.identity, images.identity)
    if not found.same and not accept:
        raise CheckpointError(
            f"{begun}: the data set is no longer what this was begun with:",
            *(f"  {line}" for line in found.lines()),
            "put it back as it was, or go on with those of the samples that are still as they "
            "were: --same-samples",
        )
    if told := "; ".join(found.lines()):
        text = f"the data set has changed since {begun} was begun; its own samples are used: {told}"
        notice(text if found.same else Warned(text))
    here = np.flatnonzero(found.kept >= 0)
    rows, places = found.kept[here], matched_classes(listed.classes, images.classes)
    train, held = (
        np.flatnonzero(np.isin(here, listed.places(part))).astype(np.int32)
        for part in (TRAINED, VALIDATED)
    )
    if not len(held) and VALIDATED in listed.parts:
        raise CheckpointError(f"{begun}: none of the samples that it validates on is left")
    taken = images.taken(rows, _relabelled(images, rows, places, begun), listed.classes)
    return Chosen(listed, taken, rows, train, held, listed=True)


def in_classes(
    images: ImageSet, classes: tuple[str, ...], whose: str, notice: Notice, strict: bool = False
) -> ImageSet:
    """The samples with the labels of ``classes``, which are matched by name; others are left out.

    ``notice`` is told what is left out. Raises DatasetError if no class is known or, if ``strict``,
    one is not.
    """
    if images.classes == classes:
        return images
    places = matched_classes(classes, images.classes)
    new, lost = unknown(classes, images.classes), unknown(images.classes, classes)
    rows = _known(images, places)
    if new or lost:
        told = [f"it does not know {some(new)}"] * bool(new)
        told += [f"here is no {some(lost)}"] * bool(lost)
        text = f"{images.name} has other classes than {whose}: {'; '.join(told)}"
        if strict or images.kind != "class" or not len(rows):
            raise DatasetError(f"{text}; if they were renamed, give them their names again")
        left = len(images) - len(rows)
        notice(Warned(f"{text}; {left:,} samples of unknown classes are left out"))
    return images.taken(rows, _relabelled(images, rows, places, whose), classes)


def _known(images: ImageSet, places: NDArray[np.int32]) -> NDArray[np.int32]:
    """The samples whose class has a place; of other targets all."""
    if images.kind != "class":
        return np.arange(len(images), dtype=np.int32)
    return np.flatnonzero(places[images.labels] >= 0).astype(np.int32)


def _relabelled(
    images: ImageSet, rows: NDArray[np.int32], places: NDArray[np.int32], whose: str
) -> NDArray[Any]:
    """The targets of these samples where each class, or each column, has its new place."""
    if images.kind == "class":
        return np.asarray(places[images.labels[rows]])
    if (places < 0).any():
        names = ", ".join(images.classes)
        raise DatasetError(
            f"{images.name}: its {named(images.kind)} are {names}, which are not those of {whose}"
        )
    return np.ascontiguousarray(images.labels[rows][:, np.argsort(places)])


def listed_samples(run: Origin) -> Samples | None:
    """The list of a checkpoint's run, if its folder has the right one. Raises CheckpointError."""
    folder = run_of_checkpoint(run[0])
    found = None if folder is None else read_samples(folder)
    return found if found is not None and run[1].samples in ("", found.mark) else None


def _trained_on(
    ancestor: Origin | None,
    identity: Identity,
    own: NDArray[np.bool_] | None,
    config: RunConfig,
    notice: Notice,
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Which samples the ancestor was trained on, (M,); and the contents of its other samples.

    own: the validation samples of a data set that has some, (M,).
    """
    found = np.zeros(len(identity.labels), np.bool_)
    if ancestor is None:
        return found, ()
    path, origin = ancestor
    before = parse_config(origin.config, str(path))
    alike = _pictures(before) == _pictures(config)
    if (listed := listed_samples(ancestor)) is None and alike:
        with suppress(DatasetError):
            train, held = divide(before, identity.labels, own)
            natural = Samples.of(identity, held)
            if len(train) // before.data.batch_size == origin.steps_per_epoch:
                listed = natural if origin.samples in ("", natural.mark) else None
    if listed is None and alike:
        notice(Warned(f"{path}: which samples it was trained on is not known; they may validate"))
    if listed is None:
        return found, ()
    places, contents = listed.places(TRAINED), listed.trained_contents()
    if identity.contents:
        # Elsewhere other pictures may have the same names.
        names = {listed.names[at] for at in places.tolist() if listed.names and alike}
        pairs = zip(identity.names, identity.contents, strict=True)
        found[:] = [name in names or content in contents for name, content in pairs]
    elif listed.digest == identity.digest:
        found[places] = True
    return found, tuple(sorted(contents - {*identity.contents}))


def _pictures(config: RunConfig) -> tuple[str, dict[str, Any]]:
    """What decides which samples a data set has."""
    options = config.data.dataset.options()
    return config.data.dataset.type, {k: v for k, v in options.items() if k not in _OF_PIXELS}


def _of_group(config: RunConfig) -> Samples | None:
    """The samples that the runs of a group of seeds or folds have in common, if one has a list."""
    folder = Path(config.run.dir)
    if not is_group(folder) or read_group(folder).kind == "sweep":
        return None
    lists = (read_samples(folder / run) for run in list_runs(folder))
    return next((replace(each, earlier=()) for each in lists if each and each.names), None)
