"""The cache of decoded data sets: for each split two .npy files and an entry to verify them.

An entry is found by a key that determines its content (a hash of the source files, or generator
version, seed and count), so processes that write the same entry at once write the same bytes. The
entry file has the SHA-256 of each array file, which is rebuilt if it has another one. A file is
hashed when it is written, and again only if its stamp has changed, as in a copy of the cache.
Without a writable cache folder everything works from memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import (
    atomic_write,
    make_folder,
    read_regular,
    remove_abandoned,
    sha256_bytes,
    sha256_file,
)
from ..common.typed_json import from_json
from .image_set import DataFile
from .mapped import Images, decoded_folder, keep_pictures, npy_header

_LOG = logging.getLogger("dnnstack.datasets")
_ENTRY, _ARRAYS = "entry.json", ("images", "labels")
# Bytes of an entry, and of what is remembered of a folder of pictures.
_LONGEST = 1 << 28
# Seconds between two time stamps of most file systems, at most.
_TICK = 0.01

Labels = NDArray[np.int32]
Arrays = tuple[Images, Labels]


def decoded(name: str, content_key: str, build: Callable[[], Arrays]) -> Arrays:
    """(images, labels) of the entry, read-only: mapped from the cache, or built and stored there.

    name: a readable prefix of the entry's folder; content_key: any text that determines the arrays.
    """
    folder = decoded_folder() / f"{name}-{sha256_bytes(content_key.encode())[:16]}"
    _tidy()
    found = _read(folder)
    if found is not None:
        _LOG.info("%s: %d pictures, from the cache %s", name, len(found[0]), folder)
        return found
    begin = time.perf_counter()
    images, labels = build()
    seconds = time.perf_counter() - begin
    _LOG.info("%s: %d pictures, read or drawn in %.1f s", name, len(images), seconds)
    images.setflags(write=False)
    labels.setflags(write=False)
    try:
        make_folder(folder)
        _write(folder, {"images": images, "labels": labels})
    except OSError as error:
        _LOG.info("%s cannot be cached: %s", name, error)
        return images, labels
    return _read(folder) or (images, labels)


def kept_in(images: Images) -> str:
    """The file in the cache that ``images`` are all of, mapped; "" if they are anything else."""
    if not isinstance(images, np.memmap) or not isinstance(images.base, mmap):
        return ""
    file = Path(images.filename or "")
    return str(file) if file.is_relative_to(decoded_folder().resolve()) else ""


def remembered(
    stamps: list[Any], fields: tuple[str, ...], compute: Callable[[], dict[str, str]]
) -> dict[str, str]:
    """``compute()``, remembered for as long as the plain data ``stamps`` are the same.

    A path among them stands for its ``file_stamp``, so that large files need not be read again.
    fields: the keys that a remembered result must have to be valid.
    """
    plain = [
        [str(s.resolve()), *file_stamp(s.stat())] if isinstance(s, Path) else s for s in stamps
    ]
    file = decoded_folder() / "index" / f"{sha256_bytes(json.dumps(plain).encode())[:32]}.json"
    known = _said(file)
    if known is not None and all(isinstance(known.get(field), str) for field in fields):
        return known
    # A file that is written again in the tick of its stamp has the same one: let that tick pass.
    time.sleep(_TICK)
    result = compute()
    said = json.dumps(result).encode()
    try:
        make_folder(file.parent)
        atomic_write(file, (sha256_bytes(said).encode(), b"\n", said))
    except OSError as error:
        _LOG.info("hashes cannot be cached: %s", error)
    return result


def read_once(
    stamps: list[Any], fields: tuple[str, ...], read: Callable[[], tuple[dict[str, str], Arrays]]
) -> tuple[dict[str, str], Callable[[], Arrays]]:
    """What ``read`` says of the files, ``remembered``, and a function that gives its arrays.

    The files are read at most once: for the first of the two that is not in the cache.
    """
    built: list[Arrays] = []

    def look() -> dict[str, str]:
        said, arrays = read()
        built.append(arrays)
        return said

    def build() -> Arrays:
        if not built:
            look()
        return built[-1]

    return remembered(stamps, fields, look), build


def checked(path: Path, original: str, sha256: Callable[[], str]) -> DataFile:
    """The state of a file; ``sha256`` gives what is compared with the original's, remembered.

    A DatasetError of it means that the file is damaged.
    """
    if not path.is_file():
        return DataFile(path, "missing")
    try:
        found = remembered([path], ("sha256",), lambda: {"sha256": sha256()})["sha256"]
    except DatasetError as error:
        return DataFile(path, "damaged", str(error))
    return DataFile(path, "verified" if found == original else "other")


def _tidy() -> None:
    """Delete what killed processes left in the folders of all entries: a picture file is large."""
    with contextlib.suppress(OSError):
        remove_abandoned(decoded_folder())
        for folder in decoded_folder().iterdir():
            remove_abandoned(folder)


def file_stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when another file gets this name, or the file another content.

    Size and time alone may be the same, as those of a copy that keeps its time (``cp -p``).
    """
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _said(path: Path) -> dict[str, Any] | None:
    """What is remembered in a file, unless that is not what was written."""
    try:
        digest, _, said = read_regular(path, _LONGEST).partition(b"\n")
        return from_json(said, dict[str, Any]) if digest.decode() == sha256_bytes(said) else None
    except (OSError, ValueError):
        return None


def _write(folder: Path, arrays: dict[str, NDArray[Any]]) -> None:
    entry: dict[str, dict[str, str]] = {}
    for name, array in arrays.items():
        path, header = folder / f"{name}.npy", npy_header(array.shape, array.dtype.str)
        data = np.ascontiguousarray(array).data.cast("B")
        # The hash of the data, not of the file, which a bad disk may have changed.
        digest = hashlib.sha256(header)
        digest.update(data)
        entry[name] = {"sha256": digest.hexdigest()}
        if not keep_pictures(array, path):
            atomic_write(path, (header, data))
        remembered([path], ("sha256",), entry[name].copy)
    # Last, because it makes the array files valid.
    atomic_write(folder / _ENTRY, json.dumps(entry).encode())


def _read(folder: Path) -> Arrays | None:
    """The entry's arrays, or None if they are missing or not what was written."""
    try:
        entry = from_json(read_regular(folder / _ENTRY, _LONGEST), dict[str, Any])
        loaded = []
        for name in _ARRAYS:
            path = folder / f"{name}.npy"
            # Hashed first: NumPy reads the header of any file as Python.
            if path.is_symlink() or _hash_of(path) != entry[name]["sha256"]:
                _LOG.info("%s is damaged and will be rebuilt", path)
                return None
            loaded.append(np.load(path, mmap_mode="r", allow_pickle=False))
        images, labels = loaded
    except Exception:
        # Python's parser, to which NumPy gives the header, raises errors of many kinds.
        return None
    kinds = (images.dtype, images.ndim, labels.dtype)
    if kinds != (np.uint8, 4, np.int32) or labels.shape != images.shape[:1]:
        _LOG.info("%s has arrays of other types and will be rebuilt", folder)
        return None
    return images, labels


def _hash_of(path: Path) -> str:
    """SHA-256 of a file, read again only when its stamp is another. Raises OSError."""
    return remembered([path], ("sha256",), lambda: {"sha256": sha256_file(path)})["sha256"]
