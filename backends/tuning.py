"""Tuning: the choices that compiling made by timing, as a table to store in checkpoints."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ..common.files import atomic_write, cache_dir, make_folder, read_regular
from ..common.typed_json import from_json
from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import Accumulate
from ..graph.ops.formulas import Formula
from ..graph.ops.updates import ParameterUpdate

_LOG = logging.getLogger("dnnstack.layers")
# Bytes of a stored table.
_LONGEST = 1 << 24
UNEQUAL = "results are right, but not equal to the last bit to those before"
# Finds choices, and says whether the next start may take them too.
Search = Callable[[], tuple[Mapping[str, str], bool]]


@dataclass(frozen=True)
class Tuning:
    """Choices by name, and the backend, environment and graph for which they were made.

    ``environment`` is what equal bits depend on: library versions, instruction set, threads,
    precision. The same table in the same environment gives an executable with equal bits.
    """

    backend: str
    environment: Mapping[str, str] = field(default_factory=dict)
    graph: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        environment, choices = dict(self.environment), dict(self.choices)
        return vars(self) | {"environment": environment, "choices": choices}

    def misfit(self, other: Tuning) -> str:
        """Why this table cannot give the bits of ``other``, the present one; "" if it can."""
        if self.backend != other.backend:
            return f"it was made for the {self.backend} backend, this is {other.backend}"
        if self.graph != other.graph:
            return "it was made for another network, batch size or option"
        for name, value in other.environment.items():
            was = self.environment.get(name, "unknown")
            if was != value:
                return f"{name} was {was}, now it is {value}"
        return ""


def settle(
    present: Tuning,
    given: Tuning | None,
    trains: bool,
    search: Search | None,
    thorough: bool = False,
) -> tuple[Tuning, tuple[str, ...]]:
    """The table to compile with, and what to tell the user about it.

    ``present``: the backend's default choices, with the present backend, environment and graph.
    ``given``, a checkpoint's table, is used if it fits; its bits matter only if a section trains.
    Otherwise the cached table is used, or the result of ``search``, which is then cached; None does
    not search. ``thorough``: the search has no time limit, and the result of a short one is not
    used.
    """
    notes: tuple[str, ...] = ()
    if given is not None:
        reason = given.misfit(present) if trains else ""
        if not reason and given.backend == present.backend:
            _LOG.info("tuning: the checkpoint's table, %d choices", len(given.choices))
            return given, ()
        if reason:
            notes = (f"{UNEQUAL}: {reason}",)
    if search is None or not trains:
        return present, notes
    found = cached(present, thorough)
    if found is None:
        begin = time.perf_counter()
        choices, keep = search()
        found = replace(present, choices=dict(choices))
        timed = (time.perf_counter() - begin, _path(found, thorough))
        _LOG.info("tuning: %d choices, timed in %.1f s, now in %s", len(choices), *timed)
        store(found, thorough)
        if not keep:
            # Beside a program that held the memory, perhaps: the next start searches again.
            forget(found)
    else:
        _LOG.info("tuning: %d choices, from the cache", len(found.choices))
    return found, notes


def code_digest(package: str, *folders: str) -> str:
    """A digest of a package's code, and of that in its folders: 12 digits of a SHA-256.

    Another version of the code may compute other bits, and its choices may have other meanings.
    """
    home = resources.files(package)
    places = [home, *(home / folder for folder in folders)]
    files = sorted((f for place in places for f in place.iterdir()), key=lambda file: file.name)
    code = [file.read_bytes() for file in files if file.name.endswith((".py", ".cu", ".cuh"))]
    return hashlib.sha256(b"\0".join(code)).hexdigest()[:12]


def training_sections(sections: Mapping[str, Graph]) -> dict[str, Graph]:
    """The sections that train: choices are timed on them, and their bits must be kept."""
    return {
        name: graph
        for name, graph in sections.items()
        if any(isinstance(op, (ParameterUpdate, Accumulate)) for op in graph.ops)
    }


def fingerprint(sections: Mapping[str, Graph], *extra: object) -> str:
    """SHA-256 over the operations, shapes and attributes of all sections, and ``extra``."""
    parts = [repr(extra)]
    for name, graph in sorted(sections.items()):
        parts += [f"\n{name}\n", *map(_described, graph.ops)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _described(op: Op) -> str:
    # Nor does any choice depend on the seed, the key of random numbers.
    fields = [item for item in vars(op).items() if item[0] not in ("origin", "key", "keys")]
    parts = [f"{name}={_brief(value)}" for name, value in fields]
    return ";".join([type(op).__name__, *parts]) + "\n"


def _brief(value: object) -> str:
    if isinstance(value, Tensor):
        # The choices do not depend on the number of pictures and steps.
        shape = value.shape[1:] if value.role == "data" else value.shape
        return f"{value.name}{shape}{value.dtype}"
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return ",".join(_brief(item) for item in value)
    if isinstance(value, Formula):
        # What a backend compiles of it is no part of the backend's own code.
        return f"{value!r}{value.cuda}"
    return repr(value)


def cached(wanted: Tuning, thorough: bool = False) -> Tuning | None:
    """The stored table for the same backend, environment and graph; None if missing or damaged.

    The table of a thorough search is preferred; ``thorough``: only such a table is used.
    """
    for kind in (True,) if thorough else (True, False):
        try:
            found = from_json(read_regular(_path(wanted, kind), _LONGEST), Tuning)
        except (OSError, ValueError):
            continue
        if not found.misfit(wanted):
            return found
    return None


def store(tuning: Tuning, thorough: bool = False) -> None:
    """Store a table for the next start; a cache that cannot be written is not an error."""
    path = _path(tuning, thorough)
    with suppress(OSError):
        make_folder(path.parent)
        atomic_write(path, json.dumps(tuning.to_json(), indent=1).encode())


def forget(tuning: Tuning) -> None:
    """Delete the stored tables for the same backend, environment and graph, if unusable."""
    for kind in (True, False):
        with suppress(OSError):
            _path(tuning, kind).unlink()


def _path(tuning: Tuning, thorough: bool) -> Path:
    key = repr((tuning.backend, sorted(tuning.environment.items()), tuning.graph))
    name = hashlib.sha256(key.encode()).hexdigest()[:32] + ("-searched" if thorough else "")
    return cache_dir() / "tuning" / f"{name}.json"
