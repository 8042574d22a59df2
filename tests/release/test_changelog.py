"""CHANGELOG.md names the version of now first, and every version has one entry."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
_VERSION = re.compile(r"## (\d+\.\d+\.\d+)(?: \(unreleased\)| - \d{4}-\d\d-\d\d)?")


def _headings(level: str) -> list[str]:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith(f"{level} ")]


def _versions() -> list[str]:
    found = [_VERSION.fullmatch(line) for line in _headings("##")]
    assert all(found), _headings("##")
    return [match[1] for match in found if match]


def test_the_newest_entry_is_the_version_of_now():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert _versions()[0] == setup["metadata"]["version"] == version("dnnstack")


def test_versions_stand_from_the_newest_to_the_oldest():
    numbers = list(map(Version, _versions()))
    assert numbers == sorted(set(numbers), reverse=True)


def test_changes_are_of_known_kinds():
    assert {line.removeprefix("### ") for line in _headings("###")} <= {*KINDS}


def test_the_version_stands_in_one_place():
    """The rest asks the metadata of the package."""
    wanted = re.compile(rf"(?<![\d.]){re.escape(version('dnnstack'))}(?![\d.])")
    folders = [
        ROOT / name for name in ("api", "cli", "common", "many", "reports", "training", "release")
    ]
    files = [ROOT / "setup.cfg", ROOT / "pyproject.toml", ROOT / "README.md"]
    files += [path for folder in folders for path in folder.rglob("*.py")]
    assert [path.name for path in files if wanted.search(path.read_text("utf-8"))] == ["setup.cfg"]
