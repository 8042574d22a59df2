"""What files that anybody may have written may hold: their fields within bounds, and their size."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from dnnstack.backends.cuda.libraries.plan_files import PlanFacts
from dnnstack.backends.tuning_cache import CachedTuning
from dnnstack.common.errors import DnnstackError
from dnnstack.configs.search import Search
from dnnstack.many import journal
from dnnstack.plugins.loading import read_plugin
from dnnstack.reports import sensitivity_report
from dnnstack.training.compressed.place import Record, read_record
from dnnstack.training.compressed.sensitivity import Sensitivity
from dnnstack.training.records.formats import checkpoint, dnnz, weight_file
from dnnstack.training.records.formats.calibration import Calibration
from dnnstack.training.records.formats.provenance import OPTIONAL, Provenance
from dnnstack.training.records.formats.run_log import Line
from dnnstack.training.records.formats.samples import Samples, read_samples
from dnnstack.training.records.formats.state import State
from dnnstack.training.records.group import Group, read_group

_KINDS: list[Any] = [
    *(CachedTuning, PlanFacts, Search, journal._Line, Record, Sensitivity, Samples, Group),
    *(State, Provenance, checkpoint._Format, checkpoint._Manifest, dnnz._Described),
    *(weight_file._Entry, Line, Calibration),
]
_READERS: dict[str, Callable[[Path], object]] = {
    "plugin.py": read_plugin,
    "group.json": lambda path: read_group(path.parent),
    "compress.json": lambda path: read_record(path.parent),
    "sensitivity.json": lambda path: sensitivity_report.read(path.parent),
    "samples.json.gz": lambda path: read_samples(path.parent),
    "step-1.json": checkpoint.read_manifest,
}


def _type(kind: Any, below: list[Any]) -> str:
    """A type as text, the same in every version of Python; records in it are put ``below``."""
    if get_origin(kind) is Annotated:
        inner, *bounds = get_args(kind)
        values = [pair for each in bounds for pair in dataclasses.asdict(each).items()]
        said = [f"{name} {value}" for name, value in values if value is not None]
        return f"{_type(inner, below)} ({', '.join(said)})"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_type(each, below) for each in get_args(kind))
    if get_origin(kind) is not None:
        inner = ", ".join("..." if e is ... else _type(e, below) for e in get_args(kind))
        return f"{get_origin(kind).__name__}[{inner}]"
    if dataclasses.is_dataclass(kind):
        below.append(kind)
    return "none" if kind is NoneType else getattr(kind, "__name__", str(kind))


def _fields() -> Iterator[str]:
    left, done = [*_KINDS], set()
    while left:
        kind = left.pop(0)
        if kind in done:
            continue
        done.add(kind)
        hints = get_type_hints(kind, include_extras=True)
        for each in dataclasses.fields(kind):
            default = "" if each.default is dataclasses.MISSING else f" = {each.default!r}"
            yield f"{kind.__name__}.{each.name}: {_type(hints[each.name], left)}{default}\n"
    yield f"Provenance may lack: {', '.join(OPTIONAL)}\n"


def _too_large() -> Iterator[str]:
    """What is said of files that are larger than any, which take no room."""
    with tempfile.TemporaryDirectory() as folder:
        for name, read in _READERS.items():
            path = Path(folder, name)
            path.touch()
            os.truncate(path, (1 << 28) + 1)
            with pytest.raises((DnnstackError, OSError)) as caught:
                read(path)
            yield f"{str(caught.value).replace(folder, '.')}\n"


FILES: dict[str, Callable[[], str]] = {"files": lambda: "".join([*_fields(), *_too_large()])}
