"""The wheel and the sdist: the same bytes from the same sources, and what the sdist holds."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from ..support.ran import ran
from ..test_package import PACKAGED

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "pyproject.toml",
    "setup.cfg",
}
# What setuptools adds.
GENERATED = {"PKG-INFO", "dnnstack.egg-info"}
_BUILD = """
import sys
target = sys.argv[1]
sys.path.insert(0, "release")
import build_backend
build_backend.build_sdist(target)
build_backend.build_wheel(target)
"""


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


def _sources() -> list[str]:
    """What a checkout has beside tests and benchmarks, without what programs leave there."""
    packages = sorted(path.parent.name for path in ROOT.glob("*/py.typed"))
    found = [name for name in sorted(FILES) if (ROOT / name).is_file()]
    for folder in (*packages, "docs", "release"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.append(path.relative_to(ROOT).as_posix())
    return found


def _copied(folder: Path, mode: int) -> Path:
    """The sources and one test in a new folder, in files and folders of a mode."""
    for name in (*_sources(), "tests/test_package.py", "tests/conftest.py"):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(mode)
    return folder


def _built(sources: Path, umask: int = 0o022, **environment: str) -> Built:
    target = sources.parent / f"{sources.name} built"
    target.mkdir()
    outer = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    done = ran(
        [sys.executable, "-c", _BUILD, target],
        cwd=sources,
        env={**outer, **environment},
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return _built(_copied(tmp_path_factory.mktemp("first") / "checkout", 0o644))


@pytest.fixture(scope="module")
def members(first):
    """Path inside the sdist -> member."""
    with tarfile.open(first.sdist) as archive:
        return {str(PurePosixPath(*Path(m.name).parts[1:])): m for m in archive}


def test_two_builds_give_equal_bytes(first, tmp_path):
    """In another folder, of other times, modes and umask, after a build of other sources."""
    sources = _copied(tmp_path / "another place", 0o664)
    for file in sources.rglob("*"):
        os.utime(file, (time.time() - 1e6, time.time() - 1e6))
    stale = sources / "build" / "lib" / "dnnstack" / "cli" / "removed.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("removed = True\n")
    (sources / "dnnstack.egg-info").mkdir()
    (sources / "dnnstack.egg-info" / "SOURCES.txt").write_text("tests/test_package.py\n")
    again = _built(sources, umask=0o077)
    assert again.sdist.read_bytes() == first.sdist.read_bytes()
    assert again.wheel.read_bytes() == first.wheel.read_bytes()


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(first, tmp_path):
    with tarfile.open(first.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    again = _built(unpacked)
    assert again.wheel.read_bytes() == first.wheel.read_bytes()
    assert again.sdist.read_bytes() == first.sdist.read_bytes()


def test_the_time_of_a_build_can_be_chosen(first, tmp_path):
    again = _built(_copied(tmp_path / "checkout", 0o644), SOURCE_DATE_EPOCH="1700000000")
    assert again.wheel.read_bytes() != first.wheel.read_bytes()
    with tarfile.open(again.sdist) as archive:
        assert {member.mtime for member in archive} == {1700000000}


def test_members_of_the_sdist_say_nothing_of_who_built_it(members):
    said = {(m.mode, m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()}
    assert said == {(0o644, 0, 0, "", "", 1577836800)}


def test_the_sdist_holds_package_documents_and_nothing_else(members):
    held = {name for name in members if PurePosixPath(name).parts[0] not in GENERATED}
    wanted = set(_sources())
    assert held == wanted
    for name in wanted - FILES:
        folder, suffix = PurePosixPath(name).parts[0], PurePosixPath(name).suffix
        known = {"docs": {".md", ".png"}, "release": {"", ".py", ".txt"}}
        assert suffix in known.get(folder, PACKAGED), name


def test_links_of_the_documents_lead_into_the_sdist(members):
    for name in [name for name in members if name.endswith(".md")]:
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target:
                path = os.path.normpath(PurePosixPath(name).parent / target)
                assert path in members, f"{name} links to {target}"
