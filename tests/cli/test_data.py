from __future__ import annotations

import dataclasses
import gzip
import hashlib
import struct
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.datasets import idx_set, registry
from dnnstack.datasets.download import Origin, RemoteFile

from ..support.https_server import CERTIFICATE, Request, serving

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def mirror(monkeypatch, tmp_path):
    """A server with a small MNIST, taken for the original by this process."""
    contents = {}
    for stem, count in (("train", 40), ("t10k", 20)):
        pictures = (np.arange(count * 784) % 251).astype(np.uint8)
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 28, 28)
        contents[f"{stem}-images-idx3-ubyte.gz"] = header + pictures.tobytes()
        labels = bytes(i % 10 for i in range(count))
        header = bytes((0, 0, 8, 1)) + struct.pack(">I", count)
        contents[f"{stem}-labels-idx1-ubyte.gz"] = header + labels
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    files = tuple(
        RemoteFile(name, len(gzip.compress(content)), hashes[name], len(content))
        for name, content in contents.items()
    )

    def answer(request: Request) -> None:
        request.give_range(gzip.compress(contents[request.path[1:]]))

    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("DNNSTACK_OFFLINE")
    with serving(answer) as server:
        # The first mirror does not exist: connecting is refused.
        mirrors = ("https://localhost:1/", server.url)
        small = dataclasses.replace(idx_set.MNIST, origin=Origin(mirrors, files))
        monkeypatch.setitem(registry.DATASETS, "mnist", small)
        yield server


def test_missing_files_arrive(mirror, tmp_path, capsys):
    folder = tmp_path / "data"
    config = ["data", "--config", "lenet.yaml", "--set", "data.validation=5"]
    arguments = [*config, "--no-sheet", "--data-dir"]
    assert main([*arguments, str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == f"dnnstack: downloading MNIST (0.0 MB) into {folder / 'mnist'}\n"
    assert out.count("the original, by its SHA-256") == 4
    assert len(mirror.asked) == 4
    assert main([*arguments, str(folder)]) == 0
    assert (capsys.readouterr(), len(mirror.asked)) == ((out, ""), 4)


def test_offline_is_heard_before_the_mirrors(mirror, tmp_path, capsys):
    where = ["--data-dir", str(tmp_path / "data")]
    assert main(["data", "--config", "lenet.yaml", *where, "--offline"]) == 1
    assert main(["train", "--config", "lenet.yaml", "--device", "numpy", *where, "--offline"]) == 1
    assert capsys.readouterr().err.count("switched off (--offline or DNNSTACK_OFFLINE)") == 2
    assert mirror.asked == []
