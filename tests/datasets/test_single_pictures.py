"""A copy of CIFAR-10 as single pictures is found where its files are looked for, and named."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path

import pytest
from dnnstack.cli.main import main
from dnnstack.datasets import single_pictures as module
from dnnstack.datasets.single_pictures import single_pictures
from dnnstack.reports.doctor import Finding, examine
from PIL import Image

CLASSES = ("airplane", "cat")


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(content, "JPEG")
    return content.getvalue()


def archive(path: Path, *names: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lstrip(".")
    with tarfile.open(path, "w" if kind == "tar" else f"w:{kind}") as file:  # type: ignore[call-overload]
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(picture())
            file.addfile(member, io.BytesIO(picture()))
    return path


def pictures(folder: Path) -> Path:
    for half in ("train", "test"):
        for name in CLASSES:
            for number in range(4):
                path = folder / half / name / f"{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture())
    return folder


@pytest.mark.parametrize("kind", ["tar", "gz", "xz", "bz2"])
def test_an_archive_of_any_kind(tmp_path, kind):
    (tmp_path / "a-script.py").write_text("print()")
    names = ("LICENCE", "train/dog/1.jpg", "train/cat/2.jpg")
    path = archive(tmp_path / f"copy.{kind}", *names)
    found = single_pictures(tmp_path, CLASSES)
    assert found is not None
    assert (found.path, found.sample, found.is_archive) == (path, "train/cat/2.jpg", True)
    assert single_pictures(tmp_path, ("bird",)) is None
    # Cut, it has the same beginning or none.
    content = path.read_bytes()
    for length in (0, 1, 7, 100, len(content) // 2):
        path.write_bytes(content[:length])
        half = single_pictures(tmp_path, CLASSES)
        assert half in (None, found)


@pytest.mark.parametrize("suffix", [".jpg", ".PNG", ".pgm"])
def test_pictures_of_any_kind_that_is_read(tmp_path, suffix):
    archive(tmp_path / "a.tar", "cat/1.txt", f"cat/1{suffix}")
    found = single_pictures(tmp_path, CLASSES)
    assert found is not None
    assert found.sample == f"cat/1{suffix}"


def test_what_is_no_such_copy(tmp_path):
    assert single_pictures(tmp_path / "missing", CLASSES) is None
    archive(tmp_path / "a.tar", "cat/readme.txt", "cat.jpg")
    head = bytearray(tarfile.TarInfo("train/cat/1.jpg").tobuf(tarfile.GNU_FORMAT))
    # A negative size must not lead back.
    head[124:136] = b"\xff" * 12
    (tmp_path / "b.tar").write_bytes(head)
    (tmp_path / "c.xz").write_bytes(b"\xfd7zXZ\0" + bytes(900))
    (tmp_path / "d.gz").write_bytes(b"\x1f\x8b" + bytes(900))
    (tmp_path / "e.bz2").write_bytes(b"BZh9" + bytes(900))
    assert single_pictures(tmp_path, CLASSES) is None


def test_no_more_is_unpacked_than_is_looked_at(tmp_path):
    path = archive(tmp_path / "zeros.xz", "x")
    import lzma

    path.write_bytes(lzma.compress(bytes(1 << 26)))
    assert len(module._unpacked(path.read_bytes())) <= module._PEEK


def test_a_folder(tmp_path):
    folder = pictures(tmp_path / "cifar10")
    found = single_pictures(folder, CLASSES)
    assert found is not None
    assert (found.path, found.is_archive) == (folder, False)
    assert found.sample in {f"{half}/{name}/{n}.jpg" for half in ("train", "test")
                            for name in CLASSES for n in range(4)}  # fmt: skip


def test_doctor_says_what_is_there_and_what_reads_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def said() -> Finding:
        found = examine(tmp_path / "data", tmp_path / "runs")
        return next(each for each in found if each.name == "cifar10")

    folder = tmp_path / "data" / "cifar10"
    path = archive(folder / "it's cifar.tar", "train/cat/2.jpg")
    finding = said()
    assert finding.state == "note"
    assert f"{path} has pictures of it as single files, such as train/cat" in finding.value
    assert finding.advice.startswith("unpack it: mkdir cifar10 && tar -xf ")
    unpack, new, other = finding.advice.removeprefix("unpack it: ").split("; ")
    assert shlex.split(unpack)[-3:] == [str(path), "-C", "cifar10"]
    assert new == "dnnstack new cifar10 writes a config that reads them"
    # What is advised is right.
    pictures(Path("cifar10"))
    change = shlex.split(other.partition(" with ")[2])
    assert main(["config", "--config", "cifar10-quick.yaml", *change]) == 0
    capsys.readouterr()
    assert main(["data", "--config", "cifar10-quick.yaml", *change, "--no-sheet",
                 "--set", "data.validation=0", "--set", "data.batch_size=2"]) == 0  # fmt: skip
    assert "cat" in capsys.readouterr().out
    assert main(["new", "cifar10"]) == 0
    capsys.readouterr()
    assert main(["train", "--config", "cifar10-quick.yaml", "--data-dir", "data", "--offline"]) == 1
    assert "it's cifar.tar has pictures of it as single files" in capsys.readouterr().err
    path.unlink()
    assert "single files" not in said().value
    pictures(folder)
    assert said().advice.startswith(f"dnnstack new {folder} writes a config that reads them; any")
