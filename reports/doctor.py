"""Whether this machine has what training needs, and where; heavy imports are lazy.

A failing import is a finding too, so every part does its own imports.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ..common.errors import BackendUnavailableError
from ..common.files import cache_dir
from ..common.machine import available_threads, processor
from ..common.records import dataclass
from ..common.text import versions_text
from . import doctor_gpu
from .doctor_machine import instruction_sets, memory
from .units import bytes_text

State = Literal["ok", "note", "missing"]

_PACKAGES = (
    "click",
    "matplotlib",
    "numpy",
    "pillow",
    "pydantic",
    "pyyaml",
    "safetensors",
    "tqdm",
    "wcwidth",
)
# What every start imports of the packages that are not compiled already.
_IMPORTED = ("click", "dnnstack", "numpy", "pydantic", "yaml")


@dataclass(frozen=True)
class Finding:
    """One line of the report. "missing": training needs it; "note": it could be better.

    advice: what to do, or "" if there is nothing to do.
    """

    section: str
    name: str
    value: str
    state: State = "ok"
    advice: str = ""


def examine(data_dir: Path | None = None, runs_dir: Path | None = None) -> Iterator[Finding]:
    """All findings, section by section; data_dir and runs_dir: None for the defaults."""
    yield from _python()
    yield from _machine()
    yield from _guarded("oneDNN", _onednn)
    yield from _gpu()
    yield from _guarded("data", lambda: _data(data_dir))
    yield from _folders(runs_dir or Path("runs"))


def _guarded(section: str, part: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a part, until an import fails; missing packages have their own findings."""
    try:
        yield from part()
    except ImportError as error:
        yield Finding(section, section, f"cannot be examined: {error}", "note")


def _python() -> Iterator[Finding]:
    yield Finding("Python", "version", f"{platform.python_version()}, {sys.executable}")
    try:
        yield Finding("Python", "dnnstack", metadata.version("dnnstack"))
        required = metadata.requires("dnnstack") or []
    except metadata.PackageNotFoundError:
        yield Finding("Python", "dnnstack", "not installed, runs from a source tree", "note")
        required = []
    # Requirements with a marker belong to an extra, or have their own section.
    plain = (re.match(r"([\w.-]+)\s*(.*)", line) for line in required if ";" not in line)
    wanted = {found[1].lower(): found[2].strip("() ") for found in plain if found}
    for name in sorted({**dict.fromkeys(_PACKAGES, ""), **wanted}):
        yield _package(name, wanted.get(name, ""))
    yield _bytecode()


def _bytecode() -> Finding:
    """Whether what every start imports has been compiled, or is compiled anew each time."""
    anew = [name for name in _IMPORTED if not _is_compiled(name)]
    if not anew:
        return Finding("Python", "bytecode", "kept")
    value = f"not kept of {', '.join(anew)}: every start compiles them anew"
    folders = {Path(_spec(name).origin).parent for name in anew}
    if not all(map(_writable, folders)):
        words = " ".join(sorted(map(shlex.quote, map(str, folders))))
        advice = f"let somebody who may write there run: python3 -m compileall -q {words}"
    elif os.environ.get("PYTHONDONTWRITEBYTECODE"):
        advice = "unset PYTHONDONTWRITEBYTECODE"
    else:
        advice = "start Python without -B"
    return Finding("Python", "bytecode", value, "note", advice)


def _spec(module: str) -> Any:
    return find_spec(module)


def _is_compiled(module: str) -> bool:
    """Whether there is bytecode of a module, or there will be once it has been imported."""
    found = _spec(module)
    if found is None or not found.cached:
        return True
    file = Path(found.cached)
    return file.exists() or (not sys.dont_write_bytecode and _writable(file.parent))


def _package(name: str, wanted: str) -> Finding:
    advice = f"python3 -m pip install '{name}{wanted}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding("Python", name, "missing", "missing", advice)
    if not _within(version, wanted):
        return Finding("Python", name, f"{version}, tested with {wanted}", "note", advice)
    return Finding("Python", name, version)


def _within(version: str, wanted: str) -> bool:
    """Whether a version is in ranges such as ``<3,>=2.0``, by its numbers only."""
    own = _numbers(version)
    for relation, bound in re.findall(r"(>=|<|==)\s*([\d.]+)", wanted):
        limit = _numbers(bound)
        width = max(len(own), len(limit))
        a, b = (numbers + (0,) * (width - len(numbers)) for numbers in (own, limit))
        if not {">=": a >= b, "<": a < b, "==": a == b}[relation]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _machine() -> Iterator[Finding]:
    yield Finding("machine", "system", f"{platform.system()} {platform.release()}")
    yield Finding("machine", "processor", processor())
    yield Finding("machine", "instructions", ", ".join(instruction_sets()) or platform.machine())
    yield from _guarded("machine", _threads)
    amounts = memory()
    if amounts is not None:
        total, available = amounts
        text = f"{bytes_text(total)}, of which {bytes_text(available)} are available"
        yield Finding("machine", "memory", text)


def _threads() -> Iterator[Finding]:
    usable, cores = available_threads(), os.cpu_count() or 1
    limited = "" if usable == cores else f" of {cores} cores (affinity, control group)"
    yield Finding("machine", "threads", f"{usable}{limited}")


def _onednn() -> Iterator[Finding]:
    from ..backends.onednn.library import library

    try:
        found = library()
    except BackendUnavailableError as error:
        yield Finding("oneDNN", "library", f"{error}", "note", "NumPy is used instead (slower)")
        return
    yield Finding("oneDNN", "library", f"{found.version}, {os.path.normpath(found.path)}")
    yield Finding("oneDNN", "instructions", found.isa())


def _gpu() -> Iterator[Finding]:
    gpus = doctor_gpu.gpus()
    if not gpus:
        yield Finding("GPU", "NVIDIA", "none found: only --device cpu and numpy are available")
        return
    for number, gpu in enumerate(gpus):
        # As --gpus counts them.
        name = f"NVIDIA {number}" if len(gpus) > 1 else "NVIDIA"
        yield Finding("GPU", name, gpu.text)
    installed, missing = doctor_gpu.packages()
    for name, version in installed.items():
        yield Finding("GPU", name, version)
    if missing:
        advice = f"install dnnstack with its extra [{doctor_gpu.extra(gpus[0].driver)}]"
        yield Finding("GPU", "CUDA packages", f"missing: {', '.join(missing)}", "note", advice)
    yield from _guarded("GPU", _cuda)


def _cuda() -> Iterator[Finding]:
    from ..backends.select import open_backend

    try:
        versions = open_backend("cuda").versions()
    except BackendUnavailableError as error:
        yield Finding("GPU", "CUDA backend", str(error), "note")
        return
    yield Finding("GPU", "CUDA backend", versions_text(versions))


def _data(data_dir: Path | None) -> Iterator[Finding]:
    from ..datasets import data_root, describe, files, names, source_of
    from ..datasets.download import offline_by_environment
    from ..datasets.single_pictures import single_pictures

    root = data_root(data_dir)
    source = (
        "--data-dir" if data_dir else "DNNSTACK_DATA" if os.environ.get("DNNSTACK_DATA") else ""
    )
    where = f" ({source})" if source else " (the user's cache, if the config has no data.root)"
    if root.exists() and not root.is_dir():
        advice = "name a folder, which may be one that is yet to be made"
        yield Finding("data", "folder", f"{root}{where}: is a file, not a folder", "note", advice)
        return
    yield Finding("data", "folder", f"{root}{where}")
    for name in names():
        found = files(name, root)
        states = {file.state for file in found}
        damaged = [file for file in found if file.state == "damaged"]
        if not found:
            yield Finding("data", name, f"needs no files: {source_of(name)}")
        elif damaged:
            yield Finding("data", name, damaged[0].note, "note")
        elif states == {"verified"}:
            yield Finding("data", name, "present, all files verified by SHA-256")
        elif states == {"missing"}:
            offline = offline_by_environment()
            value = "not present; downloaded when first needed"
            if offline:
                value = "not present, and DNNSTACK_OFFLINE forbids to download it"
            known = describe(name)
            other = single_pictures(root / name, known.classes)
            if other is None:
                yield Finding("data", name, value, "note" if offline else "ok")
            else:
                advice = other.advice(name, known.shape[-1])
                yield Finding("data", name, f"{value}. {other}", "note", advice)
        else:
            odd = ", ".join(f"{f.path.name} is {_ODD[f.state]}" for f in found if f.state in _ODD)
            yield Finding("data", name, odd, "note")


_ODD = {"missing": "missing", "other": "not the original"}


def _folders(runs: Path) -> Iterator[Finding]:
    cache = cache_dir()
    size = bytes_text(_size(cache)) if cache.is_dir() else "not created yet"
    if _writable(cache):
        yield Finding("folders", "cache", f"{cache}, {size}")
    else:
        advice = "set DNNSTACK_CACHE to a writable folder; without a cache every start is slow"
        yield Finding("folders", "cache", f"{cache} cannot be written", "note", advice)
    if not _writable(runs):
        advice = "choose another folder with --runs-dir, or run.dir in the config"
        yield Finding("folders", "runs", f"{runs.absolute()} cannot be written", "missing", advice)
        return
    free = shutil.disk_usage(_existing(runs)).free
    yield Finding("folders", "runs", f"{runs.absolute()}, {bytes_text(free)} free")


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                # Another process may delete files at the same time.
                continue
    return total


def _existing(path: Path) -> Path:
    """The path, or the nearest existing folder above it."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def _writable(folder: Path) -> bool:
    there = _existing(folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
