"""Downloads that were cut go on where they ended, where that can be trusted."""

from __future__ import annotations

import gzip
import hashlib

import pytest
from dnnstack.datasets.download import RemoteFile

from ...support.https_server import Request, serving
from ...support.mirrors import (
    CONTENT,
    FILE,
    OTHER,
    Heard,
    check,
    cut_at,
    failure,
    fetch,
    ignores_range,
    left,
    whole,
)

pytestmark = pytest.mark.usefixtures("trusted")


@pytest.mark.parametrize("byte", [1, 65_536, 299_999])
def test_a_cut_connection_is_resumed(folder, byte):
    with serving(cut_at(byte)) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked == [("/set.bin", None), ("/set.bin", f"bytes={byte}-")]


def test_another_mirror_goes_on_where_the_first_was_cut(folder):
    def stops(request: Request) -> None:
        request.give_range(CONTENT, 5_000)

    with serving(stops) as first, serving(whole) as second:
        fetch(folder, first.url, second.url)
    check(folder)
    assert [asked[1] for asked in first.asked] == [None, "bytes=5000-"]
    assert second.asked == [("/set.bin", "bytes=5000-")]


def test_a_later_call_goes_on(folder):
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


def test_a_server_that_ignores_range_begins_anew(folder, part):
    part.write_bytes(CONTENT[:1000])
    with serving(ignores_range) as server:
        fetch(folder, server.url)
    check(folder)
    assert len(server.asked) == 1


def test_a_server_that_sends_another_range_is_not_believed(folder, part):
    part.write_bytes(CONTENT[:1000])

    def answer(request: Request) -> None:
        request.give(206, CONTENT[2000:], Content_Range="bytes 2000-299999/300000")

    with serving(answer) as server:
        assert "another part of the file" in failure(folder, server.url)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("held", [OTHER[:1000], OTHER, CONTENT[:-1] + b"x"])
def test_a_part_of_another_version_is_given_up(folder, part, held):
    part.write_bytes(held)
    with serving(whole) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked[-1] == ("/set.bin", None)


def test_a_part_beyond_the_end_of_the_mirrors_file_is_given_up(folder):
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
def test_a_part_that_is_too_long_is_given_up(folder, part, more):
    part.write_bytes(CONTENT + more)
    with serving(whole) as server:
        fetch(folder, server.url)
    check(folder)
    assert server.asked == [("/set.bin", None)]
