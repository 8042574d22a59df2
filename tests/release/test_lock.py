"""The lock file fits setup.cfg; ``release/lock`` writes it anew."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_ENTRY = re.compile(r"(?P<requirement>[^\s#][^\\\n]*?)(?P<hashes>( \\\n    --hash=\S+)*)\n")


def _entries() -> list[tuple[Requirement, list[str]]]:
    """The requirements of the lock file with their hashes."""
    text = (ROOT / "release" / "test.txt").read_text(encoding="utf-8")
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    matches = list(_ENTRY.finditer(text))
    assert "".join(match[0] for match in matches) == text
    return [
        (Requirement(m["requirement"]), re.findall(r"--hash=(\S+)", m["hashes"])) for m in matches
    ]


def _direct() -> list[str]:
    """What setup.cfg and the build need, but for the extras of GPUs and of the benchmarks."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    lines = setup["options"]["install_requires"] + extras["test"] + extras["dev"]
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


def test_every_entry_is_one_version_with_hashes() -> None:
    assert len(_entries()) > 40
    for requirement, hashes in _entries():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_locked_within_its_range(python: str) -> None:
    locked: dict[str, str] = {}
    for requirement, _ in _entries():
        if _applies(requirement, python):
            name = canonicalize_name(requirement.name)
            assert name not in locked, f"two versions of {name}"
            locked[name] = str(requirement.specifier).removeprefix("==")
    for line in _direct():
        wanted = Requirement(line)
        version = locked.get(canonicalize_name(wanted.name))
        assert version is not None, f"release/test.txt lacks {wanted}; run release/lock"
        assert wanted.specifier.contains(version), f"{wanted} is locked to {version}"
