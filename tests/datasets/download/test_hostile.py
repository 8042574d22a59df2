"""Servers that are silent, endless, or send one elsewhere; over real TLS."""

from __future__ import annotations

import contextlib
import os
import urllib.error
from collections.abc import Callable
from email.message import Message

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import transfer

from ...support.https_server import Answer, Request, nothing_for, serving
from ...support.mirrors import CONTENT, FILE, Heard, check, failure, fetch, left, whole

pytestmark = pytest.mark.usefixtures("trusted")


def test_a_silent_mirror_is_left(folder):
    with serving(nothing_for(30)) as slow, serving(whole) as good:
        fetch(folder, slow.url, good.url, timeout=2.0)
        check(folder)
        (folder / "set.bin").unlink()
        assert "no answer within 0.2 s" in failure(folder, slow.url, timeout=0.2)


def test_a_dripping_mirror_is_left_and_its_bytes_are_kept(folder):
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
def test_a_redirect_to_https_is_followed(folder, part, status):
    part.write_bytes(CONTENT[:1000])
    there = redirecting(lambda: f"{good.url}there", status)
    with serving(whole) as good, serving(there) as first:
        fetch(folder, first.url)
    check(folder)
    assert good.asked == [("/there", "bytes=1000-")]


def test_a_relative_redirect_is_followed(folder):
    def answer(request: Request) -> None:
        if request.path == "/set.bin":
            request.give(302, Location="/there")
        else:
            request.give(200, CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


@pytest.mark.parametrize("target", ["http://localhost:9/x", "ftp://localhost/x", "file:///etc/x"])
def test_a_redirect_to_anything_else_is_refused(folder, target):
    with serving(redirecting(lambda: target)) as server:
        assert f"redirects to {target}, which is not https" in failure(folder, server.url)


def test_a_redirect_with_an_endless_body_is_followed(folder):
    def answer(request: Request) -> None:
        if request.path == "/set.bin":
            request.begin(302, Location="/there")
            request.pour(b"x" * 65_536)
        else:
            request.give(200, CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


def test_redirects_in_a_circle_end(folder):
    with serving(redirecting(lambda: "/set.bin")) as server:
        assert "redirects more than 5 times" in failure(folder, server.url)
    assert len(server.asked) == 6


def test_http_is_not_spoken(folder):
    assert "which is not https" in failure(folder, "http://localhost:9/")


def test_a_certificate_of_nobody_is_refused(folder, monkeypatch, tmp_path):
    (tmp_path / "none.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serving(whole) as server:
        assert "its certificate is not accepted: self" in failure(folder, server.url)
    assert server.asked == []


def test_an_endless_body_is_bounded(folder, monkeypatch):
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


def test_a_body_longer_than_the_file_is_cut(folder):
    def longer(request: Request) -> None:
        request.begin(200)
        with contextlib.suppress(OSError):
            request.wfile.write(CONTENT * 10)

    heard = Heard()
    with serving(longer) as server, pytest.raises(DatasetError, match="sends more than the"):
        fetch(folder, server.url, listener=heard)
    assert max(heard.done) <= FILE.most


def test_a_longer_file_is_not_even_begun(folder):
    heard = Heard()
    with serving(lambda request: request.give(200, CONTENT * 2)) as bad, serving(whole) as good:
        fetch(folder, bad.url, good.url, listener=heard)
        check(folder)
        (folder / "set.bin").unlink()
        assert "offers 600000 bytes" in failure(folder, bad.url)
    assert heard.done[-1] == 300_000


@pytest.mark.parametrize("length", [{}, {"Content_Length": "many"}, {"Content_Length": "9" * 5000}])
def test_without_a_length_the_sum_decides(folder, length):
    def answer(request: Request) -> None:
        request.begin(200, **length)
        request.wfile.write(CONTENT)

    with serving(answer) as server:
        fetch(folder, server.url)
    check(folder)


def test_a_part_that_is_a_link_is_not_written_through(folder, part, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    folder.mkdir(exist_ok=True)
    part.symlink_to(theirs)
    with serving(whole) as server:
        assert "set.bin.part: is a symbolic link" in failure(folder, server.url)
    assert theirs.read_bytes() == b"theirs"


def test_a_part_that_is_a_pipe_is_not_waited_for(folder, part):
    folder.mkdir(exist_ok=True)
    os.mkfifo(part)
    with serving(whole) as server:
        assert "set.bin.part: " in failure(folder, server.url)


def busy(request: Request) -> None:
    request.give(503, Retry_After="0")


def test_a_busy_mirror_is_left_for_the_next_and_the_last_is_asked_again(folder):
    with serving(busy) as first, serving(busy) as last:
        assert "answers 503 Service Unavailable" in failure(folder, first.url, last.url)
        assert (len(first.asked), len(last.asked)) == (1, 3)


@pytest.mark.parametrize(
    ("code", "said", "pause"),
    [(429, "7", 7), (503, "61", 60), (503, "Wed, 21 Oct", 1.0), (429, None, 1.0), (500, "7", None)],
)
def test_how_long_a_busy_server_is_left_alone(code, said, pause):
    headers = Message()
    if said is not None:
        headers["Retry-After"] = said
    error = urllib.error.HTTPError("https://localhost", code, "busy", headers, None)
    assert transfer._explained(error, 1.0).pause == pause


def test_who_waits_for_a_busy_server_can_end_it():
    def ask() -> None:
        raise transfer.TransferError("busy", pause=60)

    with pytest.raises(KeyError, match="stop"):
        transfer.patiently(ask, lambda: {}["stop"])
