"""Downloads from servers that misbehave, on loopback and over real TLS."""

from __future__ import annotations

import gzip
import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.files import lock
from dnnstack.datasets import transfer
from dnnstack.datasets.download import (
    Downloads,
    Origin,
    RemoteFile,
    Silent,
    obtain,
    offline_by_environment,
)

from ..support.https_server import Answer, Request, nothing_for, serving

pytestmark = pytest.mark.usefixtures("trusted")

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


class Heard(Silent):
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
    listener: Silent | None = None,
    timeout: float = 10.0,
    file: RemoteFile = FILE,
) -> None:
    downloads = Downloads(offline=False, listener=listener or Silent(), timeout=timeout)
    obtain("The set", folder, [file.name], Origin(mirrors, (file,)), downloads, "Do this.")


def failure(folder: Path, *mirrors: str, timeout: float = 10.0, file: RemoteFile = FILE) -> str:
    with pytest.raises(DatasetError) as caught:
        fetch(folder, *mirrors, timeout=timeout, file=file)
    assert not (folder / file.name).exists()
    return str(caught.value)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def check(folder: Path) -> None:
    assert (folder / "set.bin").read_bytes() == CONTENT
    assert left(folder) == ["set.bin"]


def test_a_file_arrives_and_is_shown_arriving(folder: Path) -> None:
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


def test_what_is_there_is_not_asked_for(folder: Path, part: Path) -> None:
    part.write_bytes(CONTENT)
    with serving(whole) as server:
        fetch(folder, server.url)
        check(folder)
        fetch(folder, server.url)
    assert server.asked == []


@pytest.mark.parametrize("first", [wrong, missing])
def test_the_next_mirror_takes_over(folder: Path, first: Answer) -> None:
    with serving(first) as bad, serving(whole) as good:
        fetch(folder, bad.url, good.url)
    check(folder)
    assert (len(bad.asked), good.asked) == (1, [("/set.bin", None)])


def test_wrong_bytes_never_count(folder: Path) -> None:
    with serving(wrong) as server:
        message = failure(folder, server.url)
    assert f"{server.url}: has a different file of this name" in message
    assert left(folder) == []


def test_the_error_says_what_each_mirror_answered(folder: Path) -> None:
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


def cut_at(byte: int) -> Answer:
    def answer(request: Request) -> None:
        request.give_range(CONTENT, None if request.begins_at() else byte)

    return answer


@pytest.mark.parametrize("byte", [1, 65_536, 299_999])
def test_a_cut_connection_is_resumed(folder: Path, byte: int) -> None:
    with serving(cut_at(byte)) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked == [("/set.bin", None), ("/set.bin", f"bytes={byte}-")]


def test_another_mirror_goes_on_where_the_first_was_cut(folder: Path) -> None:
    def stops(request: Request) -> None:
        request.give_range(CONTENT, 5_000)

    with serving(stops) as first, serving(whole) as second:
        fetch(folder, first.url, second.url)
    check(folder)
    assert [asked[1] for asked in first.asked] == [None, "bytes=5000-"]
    assert second.asked == [("/set.bin", "bytes=5000-")]


def test_a_later_call_goes_on(folder: Path) -> None:
    def stops(request: Request) -> None:
        request.give_range(CONTENT, 5_000)

    with serving(stops) as server:
        message = failure(folder, server.url)
        assert "ended the connection after 5000 of 300000 bytes" in message
    assert left(folder) == ["set.bin.part"]
    heard = Heard()
    with serving(whole) as server:
        fetch(folder, server.url, listener=heard)
    check(folder)
    assert server.asked == [("/set.bin", "bytes=5000-")]
    assert (heard.files, heard.done[0]) == ([("set.bin", 5000, 300_000)], 5000)


def test_a_server_that_ignores_range_begins_anew(folder: Path, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    with serving(ignores_range) as server:
        fetch(folder, server.url)
    check(folder)
    assert len(server.asked) == 1


def test_a_server_that_sends_another_range_is_not_believed(folder: Path, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])

    def answer(request: Request) -> None:
        request.give(206, CONTENT[2000:], Content_Range="bytes 2000-299999/300000")

    with serving(answer) as server:
        assert "another part of the file" in failure(folder, server.url)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("held", [OTHER[:1000], OTHER, CONTENT[:-1] + b"x"])
def test_a_part_of_another_version_is_given_up(folder: Path, part: Path, held: bytes) -> None:
    part.write_bytes(held)
    with serving(whole) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked[-1] == ("/set.bin", None)


def test_a_part_beyond_the_end_of_the_mirrors_file_is_given_up(folder: Path) -> None:
    packed = gzip.compress(bytes(100_000))
    digest = hashlib.sha256(bytes(100_000)).hexdigest()
    # This mirror's gzip is shorter than the usual one, and so than the part that is held.
    file = RemoteFile("set.gz", len(packed) + 1000, digest, 100_000)
    folder.mkdir(parents=True)
    (folder / "set.gz.part").write_bytes(OTHER[: len(packed) + 10])

    def answer(request: Request) -> None:
        if request.begins_at():
            request.give(416, Content_Range=f"bytes */{len(packed)}")
        else:
            request.give(200, packed)

    with serving(answer) as server:
        fetch(folder, server.url, file=file)
    assert left(folder) == ["set.gz"]
    assert [asked[1] for asked in server.asked] == [f"bytes={len(packed) + 10}-", None]


@pytest.mark.parametrize("more", [b"more", bytes(FILE.most)])
def test_a_part_that_is_too_long_is_given_up(folder: Path, part: Path, more: bytes) -> None:
    part.write_bytes(CONTENT + more)
    with serving(whole) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked == [("/set.bin", None)]


def test_a_silent_mirror_is_left(folder: Path) -> None:
    with serving(nothing_for(30)) as slow, serving(whole) as good:
        fetch(folder, slow.url, good.url, timeout=2.0)
        check(folder)
        (folder / "set.bin").unlink()
        assert "no answer within 0.2 s" in failure(folder, slow.url, timeout=0.2)


def test_a_dripping_mirror_is_left_and_its_bytes_are_kept(folder: Path) -> None:
    def drips(request: Request) -> None:
        request.begin(200, Content_Length=str(len(CONTENT)))
        for byte in CONTENT:
            request.pour_once(bytes([byte]), 0.02)

    with serving(drips) as slow, serving(whole) as good:
        fetch(folder, slow.url, good.url, timeout=2.0)
    check(folder)
    assert good.asked[0][1] is not None


def redirecting(target: Callable[[], str], status: int = 302) -> Answer:
    def answer(request: Request) -> None:
        request.give(status, b"elsewhere", Location=target())

    return answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_https_is_followed(folder: Path, part: Path, status: int) -> None:
    part.write_bytes(CONTENT[:1000])
    there = redirecting(lambda: f"{good.url}there", status)
    with serving(whole) as good, serving(there) as first:
        fetch(folder, first.url)
    check(folder)
    assert good.asked == [("/there", "bytes=1000-")]


def test_a_relative_redirect_is_followed(folder: Path) -> None:
    def answer(request: Request) -> None:
        if request.path == "/set.bin":
            request.give(302, Location="/there")
        else:
            request.give(200, CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


@pytest.mark.parametrize("target", ["http://localhost:9/x", "ftp://localhost/x", "file:///etc/x"])
def test_a_redirect_to_anything_else_is_refused(folder: Path, target: str) -> None:
    with serving(redirecting(lambda: target)) as server:
        assert f"redirects to {target}, which is not https" in failure(folder, server.url)


def test_a_redirect_with_an_endless_body_is_followed(folder: Path) -> None:
    def answer(request: Request) -> None:
        if request.path == "/set.bin":
            request.begin(302, Location="/there")
            request.pour(b"x" * 65_536)
        else:
            request.give(200, CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


def test_redirects_in_a_circle_end(folder: Path) -> None:
    with serving(redirecting(lambda: "/set.bin")) as server:
        assert "redirects more than 5 times" in failure(folder, server.url)
    assert len(server.asked) == 6


def test_http_is_not_spoken(folder: Path) -> None:
    assert "which is not https" in failure(folder, "http://localhost:9/")


def test_a_certificate_of_nobody_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serving(whole) as server:
        assert "its certificate is not accepted: self" in failure(folder, server.url)
    assert server.asked == []


def test_an_endless_body_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(request: Request) -> None:
        request.begin(200)
        request.pour(b"x" * 65_536)

    heard = Heard()
    with serving(endless) as bad, serving(whole) as good:
        fetch(folder, bad.url, good.url, listener=heard)
        check(folder)
        (folder / "set.bin").unlink()
        assert f"more than the {FILE.most} bytes" in failure(folder, bad.url)
    assert max(heard.done) <= FILE.most < 1.1 * len(CONTENT)
    assert left(folder) == ["set.bin.part"]
    assert (folder / "set.bin.part").stat().st_size == 0


def test_a_longer_file_is_not_even_begun(folder: Path) -> None:
    heard = Heard()
    with serving(lambda request: request.give(200, CONTENT * 2)) as bad, serving(whole) as good:
        fetch(folder, bad.url, good.url, listener=heard)
        check(folder)
        (folder / "set.bin").unlink()
        assert "offers 600000 bytes" in failure(folder, bad.url)
    assert heard.done[-1] == 300_000


@pytest.mark.parametrize("length", [{}, {"Content_Length": "many"}, {"Content_Length": "9" * 5000}])
def test_without_a_length_the_sum_decides(folder: Path, length: dict[str, str]) -> None:
    def answer(request: Request) -> None:
        request.begin(200, **length)
        request.wfile.write(CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


def test_a_mirror_out_of_reach_is_asked_once(folder: Path) -> None:
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


def test_a_gzip_file_is_known_by_its_content(folder: Path) -> None:
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
def test_a_damaged_gzip_file_never_counts(folder: Path, body: bytes) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = RemoteFile("set.gz", len(CONTENT), digest, len(CONTENT))
    with serving(lambda request: request.give(200, body)) as server:
        assert "has a different file" in failure(folder, server.url, file=file)


def test_a_bomb_is_not_unpacked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    digest = hashlib.sha256(bytes(1000)).hexdigest()
    file = RemoteFile("set.gz", len(bomb), digest, 1000)
    read: list[int] = []
    real = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        piece = real(self, size)
        read.append(len(piece))
        return piece

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with serving(lambda request: request.give(200, bomb)) as server:
        assert "has a different file" in failure(folder, server.url, file=file)
    assert sum(read) == 1001


def test_offline_nothing_is_asked(folder: Path) -> None:
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


@pytest.mark.parametrize(
    ("value", "offline"),
    [("1", True), ("true", True), ("yes", True), ("0", False), ("", False), ("No", False)],
)
def test_the_environment_may_say_offline(
    value: str, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DNNSTACK_OFFLINE", value)
    assert offline_by_environment() is offline
    assert Downloads().offline is offline
    monkeypatch.delenv("DNNSTACK_OFFLINE")
    assert Downloads().offline is False


def test_a_listener_may_end_it_and_what_has_come_stays(folder: Path, part: Path) -> None:
    class Impatient(Silent):
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


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    message = failure(tmp_path / "data" / "set", "https://localhost:1/")
    assert str(tmp_path / "data" / "set") in message
    assert "Not a directory" in message
    assert "Do this." in message


def test_two_at_once_take_turns(folder: Path) -> None:
    with serving(whole) as server:
        threads = [threading.Thread(target=fetch, args=(folder, server.url)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check(folder)
    assert len(server.asked) == 1


def test_who_waits_says_so_and_takes_what_the_other_fetched(folder: Path, part: Path) -> None:
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
