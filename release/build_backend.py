"""Builds the wheel and the sdist with setuptools, such that equal sources give equal bytes.

setuptools lets the time, the umask, the user and what earlier builds left in ``build/`` into its
archives. Here every member gets the time ``SOURCE_DATE_EPOCH``, else 1 January 2020, and mode 0644;
and a wheel is built from the files of the sdist alone, so that it is the same wheel whether it is
built from a checkout or from the sdist. Another version of setuptools or zlib may give other bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_NEW_YEAR_2020 = 1577836800
# The archives of wheels know no earlier time.
_NEW_YEAR_1980 = 315532800


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """The hook of PEP 517: write the sdist into a folder, return its name."""
    with tempfile.TemporaryDirectory() as folder:
        name: str = build_meta.build_sdist(folder, config_settings)
        with tarfile.open(Path(folder, name)) as archive:
            _write_sdist(archive, Path(sdist_directory, name))
    return name


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """The hook of PEP 517: write the wheel into a folder, return its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(folder / build_sdist(name)) as archive:
            for member, content in _files(archive):
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            sources = folder / member.name.partition("/")[0]
        with _inside(sources):
            wheel: str = build_meta.build_wheel(name, config_settings)
        with zipfile.ZipFile(folder / wheel) as archive:
            _write_wheel(archive, Path(wheel_directory, wheel))
    return wheel


def _write_sdist(archive: tarfile.TarFile, path: Path) -> None:
    when = _build_time()
    with (
        open(path, "wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=when) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member, _ in sorted(_files(archive), key=lambda pair: pair[0].name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.mtime = member.size, when
            written.addfile(plain, archive.extractfile(member))


def _write_wheel(archive: zipfile.ZipFile, path: Path) -> None:
    when = time.gmtime(_build_time())[:6]
    with zipfile.ZipFile(path, "w") as written:
        for member in archive.infolist():
            plain = zipfile.ZipInfo(member.filename, when)
            plain.compress_type = zipfile.ZIP_DEFLATED
            plain.external_attr = 0o100644 << 16
            written.writestr(plain, archive.read(member))


def _files(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for member in archive:
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            yield member, file.read()


def _build_time() -> int:
    return max(int(os.environ.get("SOURCE_DATE_EPOCH") or _NEW_YEAR_2020), _NEW_YEAR_1980)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
