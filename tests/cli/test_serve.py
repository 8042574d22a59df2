"""``dnnstack serve`` as a process: sockets, slow and many clients, signals, what it prints."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from dnnstack.datasets import load
from PIL import Image

from ..support.ran import ran
from ..support.stored import cases

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("serve", "--device", "numpy", "--port")
# In which a server answers or ends, however busy the machine is.
PATIENCE = 60


class Server:
    """A server, its first line and those that it prints on standard error."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        assert process.stdout is not None
        self.process, self._errors = process, errors
        self.url = process.stdout.readline().strip()
        assert self.url, errors.read_text()
        self.port = int(self.url.rpartition(":")[2])

    def said(self) -> list[str]:
        return self._errors.read_text("utf-8").splitlines()

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def asked(self, what: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        method, _, path = what.partition(" ")
        call = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        call.request(method, path, body, {"Content-Type": "image/png", **headers})
        found = call.getresponse()
        text = found.read()
        call.close()
        return found.status, json.loads(text) if text[:1] in b"{[" else text.decode()

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture(scope="module")
def start(trained, environment, command, tmp_path_factory):
    """Begin a server in the folder of the trained run; it is killed at the end."""

    @contextmanager
    def begin(*words: str, way: Any = None, **more: str) -> Iterator[Server]:
        errors = tmp_path_factory.mktemp("server") / "errors"
        argv, own = [*(way or command), *SHORT, *(words or ("0",))], {**environment, **more}
        with (
            errors.open("w") as file,
            subprocess.Popen(
                argv, cwd=trained, env=own, text=True, stdout=subprocess.PIPE, stderr=file
            ) as process,
        ):
            try:
                yield Server(process, errors)
            finally:
                process.kill()

    return begin


@pytest.fixture(scope="module")
def server(start):
    with start() as found:
        yield found


@pytest.fixture(scope="module")
def pictures(trained, cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSTACK_CACHE", str(cache))
        options = {"train_count": 480, "test_count": 100}
        images = load("strokes", "test", root=trained, options=options).images
    for n in range(2):
        Image.fromarray(images[n, 0]).save(trained / f"{n}.png")
    return [trained / "0.png", trained / "1.png"]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def head(length: int, more: str = "") -> bytes:
    text = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n{more}"
    return f"{text}Content-Length: {length}\r\n\r\n".encode()


def rest(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_picture_is_answered_as_predict_does(server, pictures, run_in, trained):
    for path in pictures:
        words = ("predict", "--json", "--device", "numpy", "--top", "2", path.name)
        expected = json.loads(run_in(trained, *words, status=0).stdout)
        status, found = server.asked("POST /predict?top=2", path.read_bytes())
        assert (status, found) == (200, {**expected, "path": "image"})
    until(lambda: "POST /predict 200" in server.said()[-1])
    assert re.fullmatch(r"dnnstack: 127.0.0.1 POST /predict 200 [\d.]+ ms", server.said()[-1])


def test_what_is_no_http_and_clients_that_go_leave_nothing(server, pictures):
    before = server.files()
    picture = pictures[0].read_bytes()
    for sent in (b"", b"\0\xff\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 100_000, head(9),
                 head(len(picture)) + picture[:50], head(len(picture)) + picture,
                 head(10**9) + b"x" * 1000, head(5, "Content-Length: 7\r\n"),
                 head(5, "Transfer-Encoding: chunked\r\n") + b"zz\r\n",
                 head(5, "Upgrade: websocket\r\nConnection: upgrade\r\n") + b"12345",
                 b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):  # fmt: skip
        for _ in range(5):
            connection = server.connected()
            # Some are refused before all is sent.
            with suppress(OSError):
                connection.sendall(sent)
            connection.close()
    until(lambda: server.files() <= before)
    assert server.asked("GET /health")[0] == 200
    assert not [line for line in server.said() if "Traceback" in line or "  File" in line]


def test_a_thousand_at_once_are_answered_or_asked_to_come_again(server, pictures):
    picture = pictures[0].read_bytes()
    before = server.files()
    expected = server.asked("POST /predict", picture)[1]
    connections = [server.connected() for _ in range(500)]
    for connection in connections:
        connection.sendall(head(len(picture), "Connection: close\r\n") + picture)
    with ThreadPoolExecutor(50) as pool:
        again = [pool.submit(server.asked, "POST /predict", picture) for _ in range(500)]
        found = [each.result()[0] for each in again]
    for connection in connections:
        text = rest(connection)
        connection.close()
        found.append(int(text.split()[1]))
        if found[-1] == 200:
            answer = json.loads(text.partition(b"\r\n\r\n")[2])
            assert answer["label"] == expected["label"]
            assert answer["probability"] == pytest.approx(expected["probability"], rel=1e-5)
        else:
            assert b"retry-after: 1\r\n" in text
    assert len(found) == 1000
    assert set(found) <= {200, 503}
    assert found.count(200) >= 64
    until(lambda: server.files() <= before)


PATIENT = """
import sys
from dnnstack.exports import listening, serving
listening.HEADER_SECONDS, serving.SECONDS = 0.2, 1
from dnnstack.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_slow_clients_are_let_go(start, pictures):
    with start(way=[sys.executable, "-W", "error", "-c", PATIENT]) as server:
        for sent in (
            b"",
            b"GET / HT",
            head(5)[:-2],
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        ):
            with server.connected() as connection:
                connection.sendall(sent)
                assert (b"200 OK" in rest(connection)) == sent.endswith(b"GET")
        with server.connected() as connection:
            connection.sendall(head(5) + b"1")
            # What is refused is closed, whatever still comes.
            found = rest(connection)
        assert found.startswith(b"HTTP/1.1 503 ")
        assert b"no answer within 1 seconds" in found
        with server.connected() as connection:
            connection.sendall(head(10**9) + b"1")
            assert rest(connection).startswith(b"HTTP/1.1 413 ")
        assert server.asked("POST /predict", pictures[0].read_bytes())[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_what_is_under_way_end(start, pictures, number):
    picture = pictures[0].read_bytes()
    with start() as server, server.connected() as connection, server.connected() as idle:
        connection.sendall(head(len(picture)) + picture[:20])
        idle.sendall(b"GET / HT")
        assert server.asked("GET /health")[0] == 200
        server.process.send_signal(number)
        assert rest(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            server.connected()
        connection.sendall(picture[20:])
        found = rest(connection)
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert server.process.wait(PATIENCE) == 128 + number
        said = server.said()
    own = [line for line in said if "ends once what is under way is answered" in line]
    assert len(own) == (number == signal.SIGINT)
    assert not [line for line in said if "Traceback" in line]


def test_a_second_interrupt_ends_at_once(start, pictures):
    with start() as server, server.connected() as connection:
        connection.sendall(head(100) + b"x")
        assert server.asked("GET /health")[0] == 200
        server.process.send_signal(signal.SIGINT)
        until(lambda: any("Ctrl-C again" in line for line in server.said()))
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == -signal.SIGINT


def test_a_port_is_taken_and_free_again_after_a_kill(start, run_in, trained):
    with start() as server:
        port = str(server.port)
        with server.connected() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            done = run_in(trained, *SHORT, port, status=1)
            assert done.stderr.startswith(
                f"dnnstack: error: 127.0.0.1, port {port}: Address already"
            )
            server.process.kill()
            server.process.wait()
    with start(port) as server:
        assert (server.url, server.asked("GET /health")[0]) == (f"http://127.0.0.1:{port}", 200)


def test_a_token_is_drawn_for_another_address(start, pictures):
    picture = pictures[0].read_bytes()
    # As if the address were one of another machine.
    way = "import ipaddress; ipaddress.IPv4Address.is_loopback = False\n" + PATIENT
    command = [sys.executable, "-c", way]
    with start(way=command) as server:
        assert server.process.stdout is not None
        token = server.process.stdout.readline().removeprefix("token ").strip()
        assert len(token) == 32
        assert token not in "".join(server.said())
        assert server.asked("POST /predict", picture)[0] == 401
        assert server.asked("GET /health", Host="example.org")[0] == 401
        bearer = {"Authorization": f"Bearer {token}", "Host": "example.org"}
        assert server.asked("POST /predict", picture, **bearer)[0] == 200
    with start(way=command, DNNSTACK_TOKEN="0123456789abcdef") as server:
        bearer = {"Authorization": "Bearer 0123456789abcdef"}
        assert server.asked("GET /health", **bearer)[0] == 200
        server.process.terminate()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


@pytest.mark.parametrize(("words", "status", "said"), cases(__file__, "mistakes"))
def test_mistakes(run_in, trained, words, status, said):
    done = run_in(trained, *SHORT, *words, status=status)
    assert done.stdout == ""
    assert said in done.stderr


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_a_package_that_is_missing_is_named(trained, environment, module):
    code = (
        f"import sys; sys.modules[{module!r}] = None; from dnnstack.cli import run; sys.exit(run())"
    )
    done = ran([sys.executable, "-c", code, *SHORT, "0"], cwd=trained, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the Python package {module}, which dnnstack needs, is not installed" in done.stderr
    assert done.stderr.endswith("-m pip install 'dnnstack[serve]'\n")


def test_a_checkpoint_file_is_served_quietly(start, trained, pictures):
    file = min(trained.glob("runs/tiny/checkpoints/*.safetensors"))
    words = ("0", str(file.relative_to(trained)), "-q", "--batch", "1", "--max-mb", "1")
    with start(*words) as server:
        assert server.asked("GET /health")[1]["checkpoint"] == file.name
        assert server.asked("POST /predict", b"x" * (10**6 + 1))[0] == 413
        images = [base64.b64encode(path.read_bytes()).decode() for path in pictures]
        body = json.dumps({"images": images}).encode()
        kind = {"Content-Type": "application/json"}
        assert len(server.asked("POST /predict", body, **kind)[1]) == 2
        assert "dnnstack_batch_size_count 2\n" in server.asked("GET /metrics")[1]
        assert server.said() == []


def test_the_lines_of_the_document_can_be_typed(server, pictures, trained):
    text = (ROOT / "docs" / "serve.md").read_text("utf-8")
    lines = re.findall(r"^    (curl .*(?:\n      .*)*)", text, re.MULTILINE)
    assert len(lines) >= 3
    (trained / "5.png").write_bytes(pictures[0].read_bytes())
    for line in lines:
        own = line.replace("http://127.0.0.1:8000", server.url)
        done = ran(["bash", "-ec", own], cwd=trained)
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stdout
        assert done.stdout
    (trained / "5.png").unlink()
