"""The lock files fit setup.cfg; ``release/lock`` writes them anew."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
USERS = (
    "cuda12",
    "cuda13",
    "docs",
    "heic",
    "mpi",
    "nccl12",
    "nccl13",
    "onnx",
    "serve",
    "sweep",
    "tensorboard",
)
FILES: dict[str, tuple[str, ...]] = {
    "test.txt": ("test", "dev"),
    "user.txt": (),
    **{f"user-{extra}.txt": (extra,) for extra in USERS},
}
# What the tests do not run with: themselves, and what makes the site.
APART = ("test.txt", "user-docs.txt")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_ENTRY = re.compile(r"(?P<requirement>[^\s#][^\\\n]*?)(?P<hashes>( \\\n    --hash=\S+)*)\n")


def _entries(file: str) -> list[tuple[Requirement, list[str]]]:
    """The requirements of a lock file with their hashes."""
    text = (ROOT / "release" / file).read_text(encoding="utf-8")
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    matches = list(_ENTRY.finditer(text))
    assert "".join(match[0] for match in matches) == text
    return [
        (Requirement(m["requirement"]), re.findall(r"--hash=(\S+)", m["hashes"])) for m in matches
    ]


def _setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup


def _direct(file: str) -> list[str]:
    """What setup.cfg and the build need, with the extras of this lock file."""
    extras = _setup()["options.extras_require"]
    lines = _setup()["options"]["install_requires"]
    lines += "".join(extras[extra] for extra in FILES[file])
    build = re.search(r'^requires = \["(.*)"\]$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert build is not None
    return [*lines.strip().splitlines(), build[1]]


def _applies(requirement: Requirement, python: str) -> bool:
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_every_extra_of_users_has_a_file():
    users = {*_setup()["options.extras_require"]} - {"test", "dev", "bench"}
    assert {extra for extras in FILES.values() for extra in extras} == {*users, "test", "dev"}
    assert {path.name for path in (ROOT / "release").glob("*.txt")} == {*FILES}


@pytest.mark.parametrize("file", FILES)
def test_every_entry_is_one_version_with_hashes(file):
    assert len(_entries(file)) > 25
    for requirement, hashes in _entries(file):
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("file", [name for name in FILES if name not in APART])
def test_users_get_what_is_tested(file):
    """The same files of all packages that the tests run with; only a GPU's are others."""
    tested = {str(requirement): hashes for requirement, hashes in _entries("test.txt")}
    names = {canonicalize_name(Requirement(text).name) for text in tested}
    others = [
        requirement.name
        for requirement, hashes in _entries(file)
        if tested.get(str(requirement)) != hashes
    ]
    assert not names & {canonicalize_name(name) for name in others}
    assert all(name.startswith(("cuda", "cupy", "nvidia")) for name in others), others


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_locked_within_its_range(python, file):
    locked: dict[str, str] = {}
    for requirement, _ in _entries(file):
        if _applies(requirement, python):
            name = canonicalize_name(requirement.name)
            assert name not in locked, f"two versions of {name}"
            locked[name] = str(requirement.specifier).removeprefix("==")
    for line in _direct(file):
        wanted = Requirement(line)
        if not _applies(wanted, python):
            continue
        version = locked.get(canonicalize_name(wanted.name))
        assert version is not None, f"release/{file} lacks {wanted}; run release/lock"
        assert wanted.specifier.contains(version), f"{wanted} is locked to {version}"
