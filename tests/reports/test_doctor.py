from __future__ import annotations

import importlib.metadata as metadata
import os
import stat
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from dnnstack.backends.onednn import library as onednn
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.reports import doctor, doctor_gpu, doctor_machine
from dnnstack.reports.doctor import Finding, examine

from ..support.stored import cases

Findings = dict[tuple[str, str], Finding]


def findings(tmp_path: Path) -> Findings:
    found = list(examine(tmp_path / "data", tmp_path / "runs"))
    assert len({(f.section, f.name) for f in found}) == len(found)
    return {(f.section, f.name): f for f in found}


def test_a_machine_that_runs_these_tests_is_ready(tmp_path):
    found = findings(tmp_path)
    assert not [f for f in found.values() if f.state == "missing"]
    assert found["Python", "numpy"].value == metadata.version("numpy")
    assert found["machine", "threads"].value.split()[0].isdecimal()
    sections = list(dict.fromkeys(section for section, _ in found))
    assert sections == ["Python", "machine", "oneDNN", "GPU", "data", "folders"]
    assert list(tmp_path.iterdir()) == []


def _version(changes: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name not in changes:
            return real(name)
        given = changes[name]
        if given is None:
            raise metadata.PackageNotFoundError(name)
        return given

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("switched_off", "variable", "writable", "there", "advice"),
    cases(__file__, "bytecode_that_is_not_kept"),
)
def test_bytecode_that_is_not_kept(
    switched_off, variable, writable, there, advice, monkeypatch, tmp_path
):
    file = tmp_path / "cache" / "module.pyc"
    if there:
        file.parent.mkdir()
        file.touch()
    spec = ModuleSpec("module", None, origin=str(tmp_path / "its place" / "module.py"))
    spec.cached = str(file)
    monkeypatch.setattr(doctor, "find_spec", lambda name: spec)
    monkeypatch.setattr(doctor, "_writable", lambda folder: writable)
    monkeypatch.setattr("sys.dont_write_bytecode", switched_off)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", variable)
    found = doctor._bytecode()
    if advice is None:
        assert (found.state, found.value) == ("ok", "kept")
        return
    assert found.state == "note"
    assert found.value.startswith("not kept of click, dnnstack, numpy, ")
    assert found.advice.startswith(advice)
    if not writable:
        assert found.advice.endswith(f"'{tmp_path}/its place'")


def test_a_package_that_is_missing_is_named(monkeypatch, tmp_path):
    _version({"safetensors": None}, monkeypatch)
    finding = findings(tmp_path)["Python", "safetensors"]
    assert finding.state == "missing"
    assert finding.advice.startswith("python3 -m pip install 'safetensors")


def test_versions_are_held_against_what_was_tested(monkeypatch, tmp_path):
    wanted = ["numpy<3,>=2.0", "click <9,>=8.2", 'torch>=2; extra == "bench"', "odd==1.2"]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    _version({"dnnstack": "1", "numpy": "1.26.4", "click": "8.2", "odd": "1.2.0"}, monkeypatch)
    found = findings(tmp_path)
    assert found["Python", "numpy"].state == "note"
    assert found["Python", "numpy"].advice == "python3 -m pip install 'numpy<3,>=2.0'"
    assert found["Python", "click"].state == found["Python", "odd"].state == "ok"
    assert ("Python", "torch") not in found


@pytest.mark.parametrize(("version", "wanted", "within"), cases(__file__, "ranges"))
def test_ranges(version, wanted, within):
    assert doctor._within(version, wanted) is within


def test_a_source_tree_is_known_as_such(monkeypatch, tmp_path):
    _version({"dnnstack": None}, monkeypatch)
    found = findings(tmp_path)
    assert found["Python", "dnnstack"].state == "note"
    assert found["Python", "pydantic"].state == "ok"


def test_without_onednn_it_says_what_to_install(monkeypatch, tmp_path):
    def missing() -> None:
        raise BackendUnavailableError("oneDNN 3 was not found; install it")

    monkeypatch.setattr(onednn, "library", missing)
    finding = findings(tmp_path)["oneDNN", "library"]
    assert (finding.state, finding.advice) == ("note", "NumPy is used instead (slower)")
    assert "install it" in finding.value


def test_a_part_that_cannot_be_imported_does_not_hide_the_others(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "dnnstack.datasets", None)
    found = findings(tmp_path)
    assert "cannot be examined" in found["data", "data"].value
    assert ("folders", "runs") in found


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put a program called nvidia-smi in front, and no driver below /proc."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(doctor_gpu, "_DRIVER", tmp_path / "driver")

    def make(script: str) -> None:
        folder.mkdir(exist_ok=True)
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return make


def test_gpus_that_the_tool_lists(tool, tmp_path, monkeypatch):
    tool('[ "$1" = "--query-gpu=driver_version,name,memory.total,compute_cap" ] || exit 1\n'
         "echo '580.65.06, NVIDIA H200, 143771 MiB, 9.0'")  # fmt: skip
    (gpu,) = doctor_gpu.gpus()
    assert gpu.text == "NVIDIA H200, 143771 MiB, compute capability 9.0, driver 580.65.06"
    _version({name: None for names in doctor_gpu._PACKAGES for name in names}, monkeypatch)
    by_name = {f.name: f for f in doctor._gpu()}
    assert by_name["CUDA packages"].advice == "install dnnstack with its extra [cuda13]"
    assert by_name["CUDA packages"].value.startswith("missing: cupy-cuda13x, ")
    assert "CUDA backend" in by_name


_ANSWER = "echo '580.65.06, NVIDIA H200, 143771 MiB, 9.0'"


@pytest.mark.parametrize(
    "script",
    ["exit 9", "echo 'No devices were found'", "kill -9 $$", f"{_ANSWER}; exit 9",
     f"exec sleep 60; {_ANSWER}"],
)  # fmt: skip
def test_a_tool_that_fails_or_hangs_is_no_gpu(tool, script, monkeypatch):
    monkeypatch.setattr(doctor_gpu, "_SECONDS", 5 if "sleep" not in script else 0.1)
    tool(script)
    assert doctor_gpu.gpus() == []
    (finding,) = doctor._gpu()
    assert (finding.name, finding.state) == ("NVIDIA", "ok")


def test_packages_of_either_cuda_count(monkeypatch):
    every = {name: None for names in doctor_gpu._PACKAGES for name in names}
    _version({**every, "cupy-cuda12x": "14.2", "nvidia-cublas": "13.1"}, monkeypatch)
    found, missing = doctor_gpu.packages()
    assert found == {"cupy-cuda12x": "14.2", "nvidia-cublas": "13.1"}
    assert missing == ["nvidia-cuda-nvrtc", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend"]


@pytest.mark.parametrize(
    "release",
    [
        "NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
        "NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build  (nobody@)",
    ],
)
def test_gpus_that_the_driver_lists(tool, tmp_path, release):
    tool("exit 1")
    folder = tmp_path / "driver"
    (folder / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (folder / "version").write_text(f"NVRM version: {release}\nGCC version:  gcc 15.3.0\n")
    (folder / "gpus" / "0000:01:00.0" / "information").write_text(
        "Model: \t\t NVIDIA A10\nIRQ: 5\n"
    )
    (gpu,) = doctor_gpu.gpus()
    assert gpu == doctor_gpu.Gpu("535.104.05", "NVIDIA A10, driver 535.104.05")
    assert doctor_gpu.extra(gpu.driver) == "cuda12"
    assert doctor_gpu.extra("") == "cuda12"


def test_data_that_is_there_missing_and_damaged(tmp_path, monkeypatch):
    monkeypatch.delenv("DNNSTACK_OFFLINE", raising=False)
    found = findings(tmp_path)
    assert found["data", "folder"].value == f"{tmp_path / 'data'} (--data-dir)"
    assert found["data", "mnist"].state == "ok"
    assert "downloaded when first needed" in found["data", "mnist"].value
    assert found["data", "strokes"].state == "ok"
    assert "downloaded when first needed" in found["data", "cifar10"].value
    assert found["data", "table"].value == "needs no files: the samples are written in the config"
    assert "folders that the config names" in found["data", "image_folder"].value
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 1, 7)))
    value = findings(tmp_path)["data", "mnist"].value
    assert "train-images-idx3-ubyte.gz is missing" in value
    assert "t10k-labels-idx1-ubyte is not the original" in value
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"xx")
    assert "t10k-labels-idx1-ubyte: is not an IDX" in findings(tmp_path)["data", "mnist"].value


def test_an_archive_that_is_no_original_is_damaged(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-100-binary.tar.gz").write_bytes(b"half")
    value = findings(tmp_path)["data", "cifar100"].value
    assert "cifar-100-binary.tar.gz: is truncated: it has 4 of 168513733 bytes" in value


def test_the_real_data_is_verified(tmp_path):
    folder = os.environ.get("DNNSTACK_DATA")
    if not folder:
        pytest.skip("DNNSTACK_DATA is not set: it names the folder that has mnist/")
    found = {(f.section, f.name): f for f in examine(None, tmp_path)}
    assert found["data", "mnist"].value == "present, all files verified by SHA-256"
    assert found["data", "folder"].value.endswith("(DNNSTACK_DATA)")


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    # A file in a folder's place refuses every user, even one who may write everywhere.
    (tmp_path / "runs").write_text("")
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "cache" / "dnnstack"))
    found = findings(tmp_path)
    assert found["folders", "runs"].state == "missing"
    assert "--runs-dir" in found["folders", "runs"].advice
    assert found["folders", "cache"].state == "note"
    assert "DNNSTACK_CACHE" in found["folders", "cache"].advice


def test_the_cache_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "cache"))
    assert findings(tmp_path)["folders", "cache"].value.endswith("cache, not created yet")
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    (tmp_path / "cache" / "deep" / "file").write_bytes(bytes(3 << 20))
    assert findings(tmp_path)["folders", "cache"].value.endswith("cache, 3.00 MiB")


def test_instructions_and_memory_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(doctor_machine, "_MEMINFO", tmp_path / "meminfo")
    assert (doctor_machine.instruction_sets(), doctor_machine.memory()) == ([], None)
    (tmp_path / "cpuinfo").write_text("model name\t: A CPU\nflags\t: fpu avx2 fma\n")
    (tmp_path / "meminfo").write_text("MemTotal:  2048 kB\nMemAvailable:  1024 kB\n")
    assert doctor_machine.instruction_sets() == ["fma", "avx2"]
    assert doctor_machine.memory() == (2 << 20, 1 << 20)


def test_each_of_several_gpus_has_its_number(tmp_path, monkeypatch):
    several = [doctor_gpu.Gpu("580.1", f"a stand-in, {size} MiB") for size in (1, 2)]
    monkeypatch.setattr(doctor_gpu, "gpus", lambda: several)
    found = findings(tmp_path)
    assert found["GPU", "NVIDIA 0"].value == "a stand-in, 1 MiB"
    assert found["GPU", "NVIDIA 1"].value == "a stand-in, 2 MiB"
    monkeypatch.setattr(doctor_gpu, "gpus", lambda: several[:1])
    assert findings(tmp_path)["GPU", "NVIDIA"].value == "a stand-in, 1 MiB"


def test_a_file_in_the_place_of_the_data_folder(tmp_path):
    (tmp_path / "data").write_text("")
    found = findings(tmp_path)
    assert found["data", "folder"].state == "note"
    assert found["data", "folder"].value.endswith("data (--data-dir): is a file, not a folder")
    assert ("data", "mnist") not in found
