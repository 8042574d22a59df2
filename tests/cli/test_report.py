"""``report`` of compressions: as ``compress`` told it, from the folder or from the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.cli.main import main

from .conftest import TINY
from .test_compress import COMPRESS, STAGES

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys):
    """Exit status, standard output and standard error of a command."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(list(words))
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def trained(tmp_path, monkeypatch, cache):
    """A folder with the run ``tiny`` and with stages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    Path("tiny.yaml").write_text(TINY)
    Path("small.yaml").write_text(STAGES)
    assert main(["train", "--config", "tiny.yaml", "--device", "numpy", "-q"]) == 0
    return tmp_path


def _without_times(text: str) -> list[str]:
    ends = ("read and decoded", "written", "drawn", "file ")
    lines = text[text.index("array ") :].splitlines()
    return [line for line in lines if line and not line.startswith(ends)]


def test_a_compression_is_told_again(trained, said):
    """By name, by folder and by file; the pictures are those of ``compress``, bit for bit."""
    status, first, _ = said(*COMPRESS)
    assert status == 0
    assert "Somebody 1999" in first
    assert "1-prune" in first
    folder = Path("runs/tiny-compressed")
    pictures = {name: (folder / name).read_bytes() for name in ("weights.png", "mask.png")}
    for target in ("tiny-compressed", str(folder), str(folder / "tiny.dnnz")):
        for name in pictures:
            (folder / name).unlink()
        status, out, err = said("report", target)
        assert (status, err) == (0, "")
        assert _without_times(out) == _without_times(first)
        assert f"\nfile        {folder / 'tiny.dnnz'}\n" in out
        assert f"drawn       {folder / 'mask.png'}" in out
        assert {name: (folder / name).read_bytes() for name in pictures} == pictures

    status, out, err = said("report", "tiny-compressed", "--json", "--no-plots")
    found = json.loads(out)
    assert (status, err, found["finished"], found["sensitivity"]) == (0, "", True, None)
    assert found["folder"] == str(folder)
    assert found["path"] == str(folder / "tiny.dnnz")
    assert found["bytes"] == (folder / "tiny.dnnz").stat().st_size
    assert [stage["name"] for stage in found["stages"]] == ["1-prune", "2-prune", "3-share"]
    assert set(found["before"]) == set(found["after"]) == {"validation", "test"}


def test_what_is_missing_is_told(trained, said):
    """A file alone, a network before that is gone or another one."""
    assert said(*COMPRESS)[0] == 0
    shutil.copy("runs/tiny-compressed/tiny.dnnz", "alone.dnnz")
    status, out, err = said("report", "alone.dnnz", "--plots-dir", "pictures")
    assert (status, err) == (0, "")
    assert "times smaller" in out
    assert "1-prune" not in out
    assert [path.name for path in Path("pictures").iterdir()] == ["mask.png"]

    shutil.move("runs/tiny", "runs/moved")
    status, out, err = said("report", "tiny-compressed")
    assert status == 0
    assert "the network before compression cannot be read" in err
    assert "1-prune" in out
    assert "mask.png" in out
    assert "weights.png" not in out

    assert (
        said("train", "--config", "tiny.yaml", "--device", "numpy", "-q", "--set", "seed=9")[0] == 0
    )
    status, out, err = said("report", "tiny-compressed")
    assert status == 0
    assert "is no longer the network that was compressed" in err


def test_sensitivity_is_shown(trained, said):
    """That of the network before; a damaged record of it is only noted."""
    assert said(*COMPRESS)[0] == 0
    status, table, _ = said("compress", "--sensitivity", "--device", "numpy", "tiny")
    assert status == 0
    _, out, _ = said("report", "tiny-compressed")
    rows = [line for line in table.splitlines() if line and not line.startswith("written")]
    assert len(rows) > 2
    assert set(rows) <= set(out.splitlines())
    shown = Path("runs/tiny-compressed/sensitivity.png").read_bytes()
    assert shown == Path("runs/tiny/sensitivity.png").read_bytes()
    _, out, _ = said("report", "tiny-compressed", "--json", "--no-plots")
    stored = json.loads(Path("runs/tiny/sensitivity.json").read_text())
    assert json.loads(out)["sensitivity"] == stored

    for text in ("{", json.dumps(stored | {"count": -1}), "[]"):
        Path("runs/tiny/sensitivity.json").write_text(text)
        status, out, err = said("report", "tiny-compressed", "--no-plots")
        assert status == 0
        assert "times smaller" in out
        assert "sensitivity.json: cannot be read" in err
        assert "measure it again" in err


def test_a_compression_under_way(trained, said):
    """The stages that are done, and how to go on."""
    assert said(*COMPRESS)[0] == 0
    record = Path("runs/tiny-compressed/compress.json")
    table = json.loads(record.read_text())
    record.write_text(json.dumps(table | {"file": "", "after": [], "stages": table["stages"][:1]}))
    status, out, _ = said("report", "tiny-compressed")
    assert status == 0
    assert "1-prune" in out
    assert "the file" not in out
    assert "dnnstack compress --config STAGES --resume runs/tiny-compressed" in out
    _, out, _ = said("report", "tiny-compressed", "--json")
    found = json.loads(out)
    assert not found["finished"]
    assert [each["name"] for each in found["stages"]] == ["1-prune"]


def test_what_is_neither(trained, said):
    """Each answer says what the thing is, or what there is."""
    assert said(*COMPRESS)[0] == 0

    def refused(target: str) -> str:
        status, out, err = said("report", target)
        assert (status, out) == (1, "")
        return err

    assert "nosuch: no such run, sweep or compression; runs in runs: tiny" in refused("nosuch")
    assert "tiny.yaml: is a file" in refused("tiny.yaml")
    status, out, err = said("report", "tiny-compressed", "--measure")
    assert (status, out) == (2, "")
    assert "--output, --measure and --watch are for runs" in err
    Path("runs/tiny-compressed/tiny.dnnz").write_bytes(b"dnnz" * 9)
    assert "tiny.dnnz" in refused("tiny-compressed")
    Path("runs/tiny-compressed/compress.json").write_text("{")
    assert "compress.json: is damaged" in refused("tiny-compressed")
