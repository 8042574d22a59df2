"""Whether the GPU is opened before the config has been read."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from dnnstack.backends import ahead
from dnnstack.cli import early, ranks

from ..support.ran import ran
from ..support.stored import cases


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """What is begun, on a machine with a driver."""
    driver, found = tmp_path / "nvidiactl", list[bool]()
    driver.touch()
    monkeypatch.setattr(ahead, "NVIDIA_DRIVER", driver)
    monkeypatch.setattr(ahead, "begin", found.append)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize(
    ("device", "text", "overrides", "wanted"),
    cases(__file__, "it_is_opened_unless_something_else_is_wanted"),
)
def test_it_is_opened_unless_something_else_is_wanted(begun, device, text, overrides, wanted):
    Path("a.yaml").write_text(text)
    early.open_gpu(device, "a.yaml", overrides, False)
    assert begun == [False] * wanted


def test_a_config_of_the_package_is_looked_at(begun):
    early.open_gpu(None, "lenet.yaml", (), True)
    assert begun == [True]


@pytest.mark.parametrize("reference", ["", "missing.yaml", "."])
def test_a_config_that_cannot_be_read_is_left_to_its_reader(begun, reference):
    early.open_gpu(None, reference, (), True)
    assert begun == [True]


def test_a_pipe_is_not_read(begun):
    os.mkfifo("pipe.yaml")
    early.open_gpu(None, "pipe.yaml", (), True)
    assert begun == [True]


def test_not_without_a_driver(begun, monkeypatch):
    monkeypatch.setattr(ahead, "NVIDIA_DRIVER", Path("/nowhere"))
    early.open_gpu("cuda", "lenet.yaml", (), True)
    assert begun == []


def test_one_of_several_processes_is_not_alone(monkeypatch):
    """It must choose its GPU first."""
    assert ranks.is_alone()
    monkeypatch.setenv("PMI_SIZE", "2")
    assert not ranks.is_alone()


def _fail_inside() -> None:
    with early.without_collection():
        assert not gc.isenabled()
        with early.without_collection():
            pass
        assert not gc.isenabled()
        raise KeyError


def test_collection_goes_on_where_it_was_on(monkeypatch):
    frozen: list[int] = []
    monkeypatch.setattr(early, "_left", [None])
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    assert gc.isenabled()
    with pytest.raises(KeyError):
        _fail_inside()
    assert gc.isenabled()
    assert frozen == [1]


def test_a_command_does_not_look_for_plugins_of_pydantic():
    """It would read the metadata of every installed package."""
    code = """
from dnnstack import cli
cli._imported()
from dnnstack.configs import load_config
load_config("lenet.yaml")
from pydantic.plugin import _loader
print(_loader._plugins)
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYDANTIC_DISABLE_PLUGINS"}
    done = ran([sys.executable, "-c", code], env=environment, check=True)
    assert done.stdout == "None\n"
