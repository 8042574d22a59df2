"""What this machine says of its processor."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from dnnstack.common import machine

from ..support.stored import beside

EPYC = beside(__file__, "machine_epyc.txt")


@pytest.fixture(autouse=True)
def _own_files(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "_CACHES", tmp_path / "cache")


def cache(tmp_path: Path, kind: str, size: str, sharing: str) -> None:
    folder = tmp_path / "cache" / f"index{len(list(tmp_path.glob('cache/*')))}"
    folder.mkdir(parents=True)
    for name, text in {"type": kind, "size": size, "shared_cpu_list": sharing}.items():
        (folder / name).write_text(f"{text}\n")


def test_processors_of_one_name_differ_by_family_and_model(tmp_path):
    (tmp_path / "cpuinfo").write_text(EPYC)
    assert machine.processor() == "AMD EPYC (25-1)"
    (tmp_path / "cpuinfo").write_text(EPYC.replace("model\t\t: 1", "model\t\t: 17"))
    assert machine.processor() == "AMD EPYC (25-17)"


def test_what_the_system_does_not_say_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("model name\t: A CPU\n")
    assert machine.processor() == "A CPU"
    (tmp_path / "cpuinfo").unlink()
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert machine.processor() == platform.machine()


def test_caches_count_for_each_core(tmp_path):
    cache(tmp_path, "Data", "48K", "0")
    cache(tmp_path, "Instruction", "32K", "0")
    cache(tmp_path, "Unified", "512K", "0,64")
    cache(tmp_path, "Unified", "32768K", "0-3,64-67")
    assert machine.caches() == "48+256+4096"


@pytest.mark.parametrize(("size", "sharing"), [("", "0"), ("32K", ""), ("large", "0")])
def test_caches_that_are_not_told_are_unknown(tmp_path, size, sharing):
    assert machine.caches() == "unknown"
    cache(tmp_path, "Data", size, sharing)
    assert machine.caches() == "unknown"
