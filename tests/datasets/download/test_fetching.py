"""Files that are fetched: mirrors in turn, what is unpacked, and who waits for whom."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import ssl
import threading
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.locks import lock
from dnnstack.datasets import gzip_file, transfer
from dnnstack.datasets.download import (
    Downloads,
    Listener,
    Origin,
    RemoteFile,
    obtain,
)

from ...support.https_server import serving
from ...support.mirrors import (
    CONTENT,
    FILE,
    Heard,
    check,
    failure,
    fetch,
    left,
    missing,
    whole,
    wrong,
)

pytestmark = pytest.mark.usefixtures("trusted")


def test_a_file_arrives_and_is_shown_arriving(folder):
    heard = Heard()
    with serving(whole) as server:
        fetch(folder, server.url, listener=heard)
    check(folder)
    assert server.asked == [("/set.bin", None)]
    assert heard.files == [("set.bin", 0, 300_000)]
    assert heard.done[0] == 0
    assert heard.done == sorted(heard.done)
    assert heard.done[-1] == 300_000
    assert heard.notices == [f"downloading The set (0.3 MB) into {folder}"]


def test_a_file_reaches_the_disk_before_it_gets_its_name(folder, monkeypatch):
    """Otherwise a power loss could leave the name with a file that is empty or torn."""
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(os.readlink(f'/dev/fd/{descriptor}')).name}")
        fsync(descriptor)

    def note_rename(source: Path, target: Path) -> None:
        calls.append(f"{Path(source).name} becomes {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_rename)
    with serving(whole) as server:
        fetch(folder, server.url)
    check(folder)
    of_file = [call for call in calls if "set.bin" in call]
    assert of_file == ["fsync set.bin.part", "set.bin.part becomes set.bin"]


def test_what_is_there_is_not_asked_for(folder, part):
    part.write_bytes(CONTENT)
    with serving(whole) as server:
        fetch(folder, server.url)
        check(folder)
        fetch(folder, server.url)
    assert server.asked == []


@pytest.mark.parametrize("first", [wrong, missing])
def test_the_next_mirror_takes_over(folder, first):
    with serving(first) as bad, serving(whole) as good:
        fetch(folder, bad.url, good.url)
    check(folder)
    assert (len(bad.asked), good.asked) == (1, [("/set.bin", None)])


def test_wrong_bytes_never_count(folder):
    with serving(wrong) as server:
        message = failure(folder, server.url)
    assert f"{server.url}: has a different file of this name" in message
    assert left(folder) == []


def test_the_error_says_what_each_mirror_answered(folder):
    with serving(missing) as first, serving(wrong) as second:
        message = failure(folder, first.url, second.url, "https://localhost:1/")
    begin, *answers, end = message.splitlines()
    assert begin == (
        f"The set is not in {folder}: missing set.bin. set.bin could not be downloaded:"
    )
    assert answers[0] == f"  {first.url}: answers 404 Not Found"
    assert answers[1].startswith(f"  {second.url}: has a different file")
    assert answers[2] == "  https://localhost:1/: cannot be reached: Connection refused"
    assert end == "Do this."


def test_a_mirror_out_of_reach_is_asked_once(folder):
    second = RemoteFile("second.bin", FILE.size, FILE.sha256)
    calls: list[str] = []
    real = transfer.transfer

    def counted(url: str, *arguments: object) -> None:
        calls.append(url)
        real(url, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, serving(whole) as good:
        patch.setattr(transfer, "transfer", counted)
        origin = Origin(("https://localhost:1/", good.url), (FILE, second))
        names = [FILE.name, second.name]
        obtain("The set", folder, names, origin, Downloads(offline=False), "")
    assert [url.startswith(good.url) for url in calls] == [False, True, True]
    assert left(folder) == ["second.bin", "set.bin"]


def test_a_gzip_file_is_known_by_its_content(folder):
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = RemoteFile("set.gz", len(CONTENT), digest, len(CONTENT))
    for level in (1, 9):
        packed = gzip.compress(CONTENT, level)
        with serving(lambda request, packed=packed: request.give(200, packed)) as server:
            fetch(folder, server.url, file=file)
        assert (folder / "set.gz").read_bytes() == packed
        (folder / "set.gz").unlink()


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(CONTENT + b"more"),
        gzip.compress(CONTENT[:-1]),
        gzip.compress(CONTENT)[:-9],
        gzip.compress(CONTENT)[:5] + b"?" + gzip.compress(CONTENT)[6:-8] + b"12345678",
        CONTENT,
        b"",
        b"\x1f\x8b",
    ],
    ids=["longer", "shorter", "cut short", "wrong sum", "not packed", "empty", "magic alone"],
)
def test_a_damaged_gzip_file_never_counts(folder, body):
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = RemoteFile("set.gz", len(CONTENT), digest, len(CONTENT))
    with serving(lambda request: request.give(200, body)) as server:
        assert "has a different file" in failure(folder, server.url, file=file)


def test_a_bomb_is_not_unpacked(folder, monkeypatch):
    bomb = gzip.compress(bytes(50_000_000))
    digest = hashlib.sha256(bytes(1000)).hexdigest()
    file = RemoteFile("set.gz", len(bomb), digest, 1000)
    read: list[int] = []
    real = gzip_file._Members.readinto

    def counted(self: gzip_file._Members, buffer: bytearray) -> int:
        read.append(real(self, buffer))
        return read[-1]

    monkeypatch.setattr(gzip_file._Members, "readinto", counted)
    with serving(lambda request: request.give(200, bomb)) as server:
        assert "has a different file" in failure(folder, server.url, file=file)
    # What is decompressed, not only what is asked for: a buffer or two.
    assert 0 < sum(read) <= 1 << 17


def test_offline_nothing_is_asked(folder):
    with serving(whole) as server, pytest.raises(DatasetError) as caught:
        obtain(
            "The set",
            folder,
            ["set.bin"],
            Origin((server.url,), (FILE,)),
            Downloads(offline=True),
            "Do this.",
        )
    for piece in (str(folder), "set.bin", "--offline", "DNNSTACK_OFFLINE", server.url, "Do this."):
        assert piece in str(caught.value)
    assert server.asked == []
    assert not folder.exists()


def test_a_listener_may_end_it_and_what_has_come_stays(folder, part):
    class Impatient(Listener):
        def advanced(self, done: int) -> None:
            if done > 100_000:
                raise KeyboardInterrupt

    with serving(whole) as server:
        with pytest.raises(KeyboardInterrupt):
            fetch(folder, server.url, listener=Impatient())
        held = part.stat().st_size
        assert 100_000 < held < 300_000
        fetch(folder, server.url)
    check(folder)
    assert server.asked[1] == ("/set.bin", f"bytes={held}-")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "data").write_text("")
    message = failure(tmp_path / "data" / "set", "https://localhost:1/")
    assert str(tmp_path / "data" / "set") in message
    assert "Not a directory" in message
    assert "Do this." in message


def test_two_at_once_take_turns(folder):
    with serving(whole) as server:
        threads = [threading.Thread(target=fetch, args=(folder, server.url)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check(folder)
    assert len(server.asked) == 1


def test_who_waits_says_so_and_takes_what_the_other_fetched(folder, part):
    class Waiter(Heard):
        waited = 0

        def waiting(self) -> None:
            self.waited += 1
            if self.waited == 2:
                (folder / "set.bin").write_bytes(CONTENT)
                held.release()

    heard = Waiter()
    held = lock(folder / ".download.lock")
    with serving(whole) as server:
        fetch(folder, server.url, listener=heard)
    assert server.asked == []
    assert heard.notices == [f"another process is downloading into {folder}; waiting for it"]
    assert heard.waited == 2


@pytest.mark.parametrize("existed", [False, True])
def test_nothing_is_left_of_a_download_that_fails(tmp_path, existed):
    folder = tmp_path / "new" / "set"
    if existed:
        folder.mkdir(parents=True)
    with serving(missing) as server, pytest.raises(DatasetError, match="could not be downloaded"):
        fetch(folder, server.url)
    assert [*tmp_path.rglob("*")] == ([folder.parent, folder] if existed else [])


def test_a_folder_that_cannot_be_looked_up(folder, monkeypatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(DatasetError, match=r"It cannot be downloaded: .*set: Permission denied"):
        fetch(folder, "https://nowhere.invalid/")


@pytest.mark.parametrize(
    ("error", "held", "unreachable"),
    [
        (TimeoutError(), None, True),
        (TimeoutError(), 5, True),
        (socket.gaierror(), None, True),
        (type("_", (ssl.SSLCertVerificationError,), {"verify_message": "old"})(), None, True),
        (urllib.error.URLError(ConnectionRefusedError()), None, True),
        (ConnectionResetError(), 5, False),
        (urllib.error.HTTPError("https://a", 404, "Not Found", Message(), None), None, False),
    ],
)
def test_who_is_not_asked_again(error: Exception, held: int | None, unreachable: bool) -> None:
    assert transfer._explained(error, 1.0, held).unreachable == unreachable
