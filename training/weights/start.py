"""The start of a training: which arrays of a source fit the network, and which begin anew."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError, ConfigError
from ...common.records import dataclass
from ...common.text import cut, listed
from ...graph.graph import Shape
from ..network import Network
from ..preprocessing import Preprocessing
from ..records.formats.provenance import BegunFrom, Provenance
from ..records.formats.pytorch_names import is_counter, our_name
from .source import Offered, Source

_LOG = logging.getLogger("dnnstack.training")
_LISTED, _WIDEST = 12, 80


@dataclass(frozen=True)
class Difference:
    """An array that is not taken, with its shape in the network or, if left, in the file."""

    name: str
    shape: Shape
    reason: str

    def __str__(self) -> str:
        return f"{cut(self.name, _WIDEST)} {self.shape}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "reason": self.reason}


@dataclass(frozen=True)
class Start:
    """What a training begins with.

    ``values``: the arrays that were taken, by our names; ``names``: those that they have in the
    file. ``new``: the arrays of the network that are initialised; ``left``: those of the file that
    the network has no place for. ``preprocessing``: of what the weights were trained on, if known.
    """

    origin: BegunFrom
    values: Mapping[str, NDArray[np.float32]]
    names: Mapping[str, str]
    new: tuple[Difference, ...]
    left: tuple[Difference, ...]
    trained: Provenance | None = None
    preprocessing: Preprocessing | None = None

    def doubts(
        self, network: Network, scaling: Preprocessing, classes: Sequence[str]
    ) -> Iterator[str]:
        """What may not be meant: frozen layers that begin anew, other pixels, other classes.

        scaling, classes: those of the training that begins.
        """
        frozen = {p.tensor.name for p in network.parameters() if p.frozen}
        untrained = [each.name for each in self.new if each.name in frozen]
        if untrained:
            yield (
                f"frozen layers (freeze) begin with untrained weights: "
                f"{listed(untrained, _LISTED)}; "
                "freeze only what was taken"
            )
        if self.preprocessing is not None and not alike(self.preprocessing, scaling):
            mean, std = ([round(n, 4) for n in side] for side in self.preprocessing.mean_and_std())
            own = f", {{mean: {mean}, std: {std}}}," if self.trained is None else ","
            yield (
                f"{self.origin.path} was trained on pixels of another scale than data.normalize "
                f"gives; with its own{own} the weights suit better"
            )
        last = network.parameters()[-1].tensor.name
        anew = f"to begin it anew: --set init_from.skip={last.rpartition('.')[0]}.*"
        if self.trained is None:
            if last in self.values:
                text = "the last layer is taken too, for classes that the file does not name"
                yield f"{text}; {anew}"
            return
        if last in self.values and self.trained.classes != tuple(classes):
            yield (
                f"the last layer is taken too, although it was trained for other classes: "
                f"{listed(self.trained.classes, _LISTED)}; {anew}"
            )

    def lines(self) -> list[str]:
        """What was taken, then each difference, of many only the first."""
        renamed = any(ours != theirs for ours, theirs in self.names.items())
        whose = ", with PyTorch's names" if renamed else ""
        total = len(self.values) + len(self.new)
        found = [f"{len(self.values)} of {total} arrays from {self.origin.path}{whose}"]
        for word, differences in (("new", self.new), ("left", self.left)):
            found += [f"{word:<11} {each}" for each in differences[:_LISTED]]
            if len(differences) > _LISTED:
                found.append(f"{word:<11} and {len(differences) - _LISTED} more")
        return found

    def to_json(self) -> dict[str, Any]:
        """What the log of the run records."""
        return {
            **vars(self.origin),
            "names": {ours: theirs for ours, theirs in self.names.items() if ours != theirs},
            "new": [each.to_json() for each in self.new],
            "left": [each.to_json() for each in self.left],
        }


def begin(source: Source, shapes: Mapping[str, Shape], skip: Sequence[str]) -> Start:
    """Take what fits a network by name and shape; what ``skip`` matches is initialised anyway.

    shapes: of all parameters and running statistics. Raises CheckpointError if nothing fits, or if
    an array that does contains what no trained network has; ConfigError for a pattern of ``skip``
    that matches nothing.
    """
    offered, left = _placed(source, shapes)
    values, names, new = {}, {}, []
    used = set()
    for name, shape in shapes.items():
        reason = "the file has none"
        if matching := [pattern for pattern in skip if fnmatchcase(name, pattern)]:
            used.update(matching)
            reason = "init_from.skip"
        elif name in offered:
            theirs = offered[name]
            reason = _misfit(source.arrays[theirs], shape)
            if not reason:
                values[name] = _read(source, theirs, shape)
                names[name] = theirs
                _LOG.info("init: %s %s is taken from '%s'", name, shape, theirs)
                continue
        new.append(Difference(name, shape, reason))
    _check_patterns(skip, used, shapes)
    if not values:
        raise CheckpointError(
            f"{source.path}: nothing in it fits the network by name and shape:",
            *(f"  {line}" for line in _first([*new, *left])),
            "dnnstack help finetuning says which names are known",
        )
    origin = BegunFrom(str(source.path.absolute()), source.sha256, source.layout, len(values))
    known = source.trained, source.preprocessing
    return Start(origin, values, names, tuple(new), tuple(left), *known)


def _placed(source: Source, shapes: Mapping[str, Shape]) -> tuple[dict[str, str], list[Difference]]:
    """Our name of each array that the network has, with the file's; and the arrays without."""
    offered: dict[str, str] = {}
    left: list[Difference] = []
    for theirs, each in source.arrays.items():
        name = theirs
        if source.layout == "pytorch" and theirs not in shapes:
            if is_counter(theirs):
                continue
            name = our_name(theirs, shapes)
        if name not in shapes:
            left.append(Difference(theirs, each.shape, "the network has none"))
        elif name in offered:
            reason = f"'{cut(offered[name], _WIDEST)}' has its place"
            left.append(Difference(theirs, each.shape, reason))
        else:
            offered[name] = theirs
    return offered, left


def _misfit(offered: Offered, shape: Shape) -> str:
    """Why an array cannot be taken; "" if it can."""
    if not _fits(offered.shape, shape):
        return f"the file has {offered.shape}"
    if offered.values is None:
        return f"the file has it as {offered.dtype}, which is no floating-point type"
    return ""


def _fits(theirs: Shape, ours: Shape) -> bool:
    """Of one shape, or filters over a whole picture for the rows of a matrix."""
    if len(theirs) == 4 and len(ours) == 2:
        return theirs[0] == ours[0] and prod(theirs[1:]) == ours[1]
    return theirs == ours


def _read(source: Source, theirs: str, shape: Shape) -> NDArray[np.float32]:
    values = source.arrays[theirs].values
    assert values is not None
    array = np.ascontiguousarray(values().reshape(shape))
    fault = ""
    if not np.isfinite(array).all():
        fault = "NaN, infinity, or a number beyond float32"
    elif theirs.endswith("running_var") and (array < 0).any():
        fault = "negative numbers, which no variance is"
    if fault:
        raise CheckpointError(
            f"{source.path}: '{cut(theirs, _WIDEST)}' contains {fault}; "
            "use another file, or leave the array out with init_from.skip"
        )
    return array


def alike(one: Preprocessing, other: Preprocessing) -> bool:
    """Whether black and white become the same numbers, up to a hundredth of their distance."""
    if len(one.scale) != len(other.scale):
        return False
    ends = [np.outer((0.0, 255.0), each.scale) + np.asarray(each.shift) for each in (one, other)]
    return bool((np.abs(ends[0] - ends[1]) <= 0.01 * np.ptp(ends[0], axis=0)).all())


def _check_patterns(
    skip: Sequence[str], used: Collection[str], shapes: Mapping[str, Shape]
) -> None:
    for pattern in skip:
        if pattern not in used:
            raise ConfigError(
                f"init_from.skip: no array of the network matches '{pattern}'; it has "
                f"{listed(list(shapes), _LISTED)}"
            )


def _first(each: Sequence[object]) -> list[str]:
    more = [f"and {len(each) - _LISTED} more"] if len(each) > _LISTED else []
    return [*map(str, each[:_LISTED]), *more]
