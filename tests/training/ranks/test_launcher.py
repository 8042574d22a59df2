"""The launcher of ranks: without it a message, and a reason for the tests that need it."""

from __future__ import annotations

import os

import pytest
from dnnstack.cli.main import main
from dnnstack.training.ranks import world

from ...support.ranks import lacking


@pytest.mark.skipif(
    os.environ.get("DNNSTACK_EXPECT_MPI") != "1",
    reason="DNNSTACK_EXPECT_MPI=1 is not set: tests that start ranks may be skipped",
)
def test_ranks_can_be_started_here():
    assert lacking() == ""


def test_without_mpi_the_message_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(world.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(world, "started", lambda: 1)
    assert "install it with python3 -m pip install 'dnnstack[mpi]'" in lacking()
    assert main(["train", "--config", "digits.yaml", "--ranks", "2"]) == 1
    assert "install it with python3 -m pip install 'dnnstack[mpi]'" in capsys.readouterr().err
