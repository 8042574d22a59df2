"""Downloads missing files of a data set from mirrors over https, and verifies them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

from ..common.errors import DatasetError, LockedError
from ..common.files import make_folder, sha256_file
from ..common.locks import NO_LOCKS, lock
from ..common.records import dataclass
from .gzip_file import GzipError, unpacked

_LOCK = ".download.lock"
_ATTEMPTS = 3
_PIECE = 1 << 20
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class RemoteFile:
    """A file on the mirrors. size: in bytes; a mirror's file may be slightly larger.

    sha256 is that of the file, or, if ``content_size`` is given, that of the decompressed content,
    which has that many bytes.
    """

    name: str
    size: int
    sha256: str
    content_size: int | None = None

    @property
    def most(self) -> int:
        """The most bytes that are accepted from a mirror."""
        return self.size + self.size // 20 + 4096


@dataclass(frozen=True)
class Origin:
    """Where files come from. mirrors: https folders, ending in ``/``, best first.

    secret: headers for the hosts of the mirrors, which no host that they redirect to gets.
    """

    mirrors: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    secret: Mapping[str, str] = field(default_factory=dict)


class Listener:
    """Watches downloads and does nothing; an exception of a derived class ends them.

    What has arrived is then kept.
    """

    def notice(self, text: str) -> None:
        """Something that the user should know."""

    def started(self, name: str, done: int, total: int) -> None:
        """A file begins with ``done`` of ``total`` bytes already there."""

    def advanced(self, done: int) -> None:
        """``done`` bytes of the file have arrived; 0 if it starts again."""

    def ended(self) -> None:
        """The file is complete, or was given up."""

    def waiting(self) -> None:
        """Called several times a second while another process is downloading."""


def offline_by_environment() -> bool:
    """Whether ``DNNSTACK_OFFLINE`` is set, to anything but 0, false, no or off."""
    value = os.environ.get("DNNSTACK_OFFLINE", "").strip().lower()
    return value not in ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Downloads:
    """Whether missing files may be downloaded, and who watches.

    offline: the network is never used. timeout: seconds to wait for data from a mirror.
    """

    offline: bool = field(default_factory=offline_by_environment)
    listener: Listener = field(default_factory=Listener)
    timeout: float = 15.0


def obtain(
    title: str,
    folder: Path,
    names: Sequence[str],
    origin: Origin,
    downloads: Downloads,
    advice: str,
) -> None:
    """Put the named files of ``origin`` into ``folder``, each complete and verified, or not at all.

    A file is downloaded as ``<name>.part``, which a later call continues, and renamed once its
    SHA-256 is right. Two processes take turns. New folders that stay empty are removed. Raises
    DatasetError with the names, the folder, the answer of each mirror and ``advice``.
    """
    known = {file.name: file for file in origin.files}
    wanted = [known[name] for name in names]
    missing = f"{title} is not in {folder}: missing {_listed(names)}"
    if downloads.offline:
        raise DatasetError(
            f"{missing}. Downloads are switched off (--offline or DNNSTACK_OFFLINE); the files are "
            f"available from {origin.mirrors[0]}. {advice}"
        )
    refused: dict[str, str] = {}
    made: list[Path] = []
    try:
        made += [each for each in (folder, *folder.parents) if not each.exists()]
        with _turn(folder, downloads.listener):
            # Another process may have downloaded some while this one waited.
            wanted = [file for file in wanted if not (folder / file.name).exists()]
            if wanted:
                size = sum(file.size for file in wanted) / 1e6
                downloads.listener.notice(f"downloading {title} ({size:.1f} MB) into {folder}")
            for file in wanted:
                answers = _fetch(file, folder, origin, refused, downloads)
                if answers is not None:
                    raise DatasetError(
                        f"{missing}. {file.name} could not be downloaded:",
                        *(f"  {mirror}: {why}" for mirror, why in answers.items()),
                        advice,
                    )
    except OSError as error:
        raise DatasetError(
            f"{missing}. It cannot be downloaded: {error.filename or folder}: "
            f"{error.strerror or error}. {advice}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()


def _fetch(
    file: RemoteFile,
    folder: Path,
    origin: Origin,
    refused: dict[str, str],
    downloads: Downloads,
) -> dict[str, str] | None:
    """Download a file; None on success, else the answer of each mirror.

    refused: mirrors that cannot be reached, which are not tried again.
    """
    # Imported only for downloads, because they slow down every start.
    from .transfer import TransferError, patiently, transfer

    listener = downloads.listener
    part = folder / f"{file.name}.part"
    if _size(part) >= file.size and _accepted(part, file):
        return None
    answers: dict[str, str] = {}
    listener.started(file.name, _size(part), file.size)
    try:
        for mirror in origin.mirrors:
            if mirror in refused:
                answers[mirror] = refused[mirror]
                continue
            for _ in range(_ATTEMPTS):
                if _size(part) > file.most:
                    part.unlink()
                before = _size(part)
                given = (part, file.most, downloads.timeout, listener.advanced, origin.secret)
                # Where one is busy, the next is asked at once; the last one after a while.
                waiting = listener.waiting if mirror == origin.mirrors[-1] else None
                try:
                    patiently(partial(transfer, mirror + file.name, *given), waiting)
                except TransferError as error:
                    answers[mirror] = str(error)
                    if error.unreachable:
                        refused[mirror] = str(error)
                    if error.unreachable or _size(part) <= before:
                        break
                    continue
                if _accepted(part, file):
                    return None
                answers[mirror] = "has a different file of this name (wrong SHA-256)"
                # Perhaps only the bytes from an earlier attempt were wrong.
                if not before:
                    break
        return answers
    finally:
        listener.ended()


def _accepted(part: Path, file: RemoteFile) -> bool:
    """Rename the file if it is correct, else delete it."""
    if _sha256(part, file) != file.sha256:
        part.unlink()
        return False
    with open(part, "rb") as written:
        os.fsync(written.fileno())
    os.replace(part, part.with_suffix(""))
    return True


def _sha256(path: Path, file: RemoteFile) -> str | None:
    """The SHA-256 of the file or of its content, as published; None if it cannot be right."""
    if file.content_size is None:
        return sha256_file(path)
    digest = hashlib.sha256()
    size = 0
    try:
        with open(path, "rb") as packed:
            content = unpacked(packed)
            # At most one byte more than expected is read.
            while piece := content.read(min(_PIECE, file.content_size + 1 - size)):
                digest.update(piece)
                size += len(piece)
    except GzipError:
        return None
    return digest.hexdigest()


@contextlib.contextmanager
def _turn(folder: Path, listener: Listener) -> Iterator[None]:
    """Hold the folder's lock, after waiting for another process that has it."""
    told, tries = False, _ATTEMPTS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                # Another process that failed may just have removed it.
                make_folder(folder)
                stack.enter_context(lock(folder / _LOCK, keep=False))
                break
            except LockedError:
                if not told:
                    listener.notice(f"another process is downloading into {folder}; waiting for it")
                    told = True
                listener.waiting()
                time.sleep(_WAIT_SECONDS)
            except FileNotFoundError:
                tries -= 1
                if not tries:
                    raise
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                # Without locks, processes may spoil each other's parts; the SHA-256 detects that.
                break
        yield


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _listed(names: Sequence[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
