from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import data_root, describe, names

from ..support.stored import cases


def test_names_are_those_that_can_be_described(tmp_path):
    ours = ("image_folder", "mnist", "npz", "series", "strokes", "table")
    assert names() == ("cifar10", "cifar100", "csv", "fashion_mnist", *ours)
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), y=[0, 1])
    needed: dict[str, dict[str, object]] = {
        "table": {"inputs": [[0], [1]], "targets": [0, 1]},
        "image_folder": {"train": "nowhere", "size": 8, "classes": 3},
        "npz": {"train": str(tmp_path / "a.npz")},
    }
    (tmp_path / "x.csv").write_text("a,y\n1,u\n2,u\n3,v\n")
    needed["csv"] = {"train": str(tmp_path / "x.csv"), "targets": ("y",)}
    for name in names():
        assert describe(name, options=needed.get(name)).name == name


@pytest.mark.parametrize(
    ("name", "message"), cases(__file__, "an_unknown_dataset_suggests_a_known_one")
)
def test_an_unknown_dataset_suggests_a_known_one(name, message):
    with pytest.raises(DatasetError, match=message):
        describe(name)


def test_data_root_takes_the_first_that_is_set(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("DNNSTACK_DATA", str(tmp_path / "environment"))
    assert data_root(tmp_path / "flag", "config") == tmp_path / "flag"
    assert data_root(None, "config") == tmp_path / "environment"
    monkeypatch.setenv("DNNSTACK_DATA", "")
    assert data_root(None, "config") == Path("config")
    monkeypatch.delenv("DNNSTACK_DATA")
    assert data_root() == cache / "data"
    assert data_root(None, "config", str(tmp_path)) == tmp_path
    assert data_root(None, "config", str(tmp_path / "gone")) == Path("config")
    (tmp_path / "own/pictures").mkdir(parents=True)
    monkeypatch.setenv("DNNSTACK_DATA", str(tmp_path / "environment"))
    own = str(tmp_path / "own")
    assert data_root(None, own, str(tmp_path), "pictures") == tmp_path / "environment"
    # As on another machine, which has the same folder elsewhere.
    assert data_root(None, own, str(tmp_path / "gone"), "pictures") == tmp_path / "own"
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("DNNSTACK_DATA")
    assert data_root(None, "~/sets") == Path("/home/somebody/sets")


def test_what_decided_on_the_data_folder_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pictures").mkdir()
    with caplog.at_level("INFO", "dnnstack"):
        data_root(None, str(tmp_path), "", "pictures")
        data_root(tmp_path / "flag", str(tmp_path), "", "pictures")
    own, flag = caplog.messages
    assert own == f"data folder: {tmp_path}, by data.root of the config, with pictures"
    assert flag.startswith(f"data folder: {tmp_path / 'flag'}, ")
