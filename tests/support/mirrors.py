"""Mirrors that answer well and badly, and a file to fetch from them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets.download import Downloads, Listener, Origin, RemoteFile, obtain

from .https_server import Answer, Request

CONTENT = random.Random(1).randbytes(300_000)
FILE = RemoteFile("set.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
OTHER = random.Random(2).randbytes(300_000)


def whole(request: Request) -> None:
    request.give_range(CONTENT)


def ignores_range(request: Request) -> None:
    request.give(200, CONTENT)


def wrong(request: Request) -> None:
    request.give_range(OTHER)


def missing(request: Request) -> None:
    request.give(404)


class Heard(Listener):
    """What a Listener heard; a folder's free space would be spoilt by more than ``most``."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.done: list[int] = []
        self.files: list[tuple[str, int, int]] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def started(self, name: str, done: int, total: int) -> None:
        self.files.append((name, done, total))

    def advanced(self, done: int) -> None:
        self.done.append(done)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "set"


@pytest.fixture
def part(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder / "set.bin.part"


def fetch(
    folder: Path,
    *mirrors: str,
    listener: Listener | None = None,
    timeout: float = 10.0,
    file: RemoteFile = FILE,
) -> None:
    downloads = Downloads(offline=False, listener=listener or Listener(), timeout=timeout)
    obtain("The set", folder, [file.name], Origin(mirrors, (file,)), downloads, "Do this.")


def failure(folder: Path, *mirrors: str, timeout: float = 10.0, file: RemoteFile = FILE) -> str:
    with pytest.raises(DatasetError) as caught:
        fetch(folder, *mirrors, timeout=timeout, file=file)
    assert not (folder / file.name).exists()
    return str(caught.value)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def check(folder: Path) -> None:
    assert (folder / "set.bin").read_bytes() == CONTENT
    assert left(folder) == ["set.bin"]


def cut_at(byte: int) -> Answer:
    def answer(request: Request) -> None:
        request.give_range(CONTENT, None if request.begins_at() else byte)

    return answer
