"""docs/licences.md lists every package that comes with dnnstack, under an accepted licence."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from ..support.stored import cases

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("licences", ROOT / "release" / "licences.py")
assert _SPEC is not None
assert _SPEC.loader is not None
licences: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(licences)

PAGE = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
OWN = PAGE.partition("\n## What its tests")[0]
LOCK = (ROOT / "release" / "test.txt").read_text(encoding="utf-8").lower().replace("_", "-")


def _rows(text: str) -> dict[str, list[str]]:
    """Package -> version, licence, why."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {name: cells for name, *cells in rows if name not in ("package", "---")}


@pytest.mark.parametrize("name", sorted(licences.needed(licences.requirements())))
def test_what_dnnstack_needs_is_listed_and_accepted(name):
    package, _ = licences.needed(licences.requirements())[name]
    assert name in _rows(OWN), "write the page anew: python3 release/licences.py docs/licences.md"
    found = licences.licence(package)
    assert licences.is_accepted(found), f"{name} {package.version}: {found}"


def test_what_is_locked_for_linux_is_listed():
    entries = re.findall(r"^([\w-]+)==\S+(.*)$", LOCK, re.MULTILINE)
    assert {name for name, marker in entries if "win32" not in marker} == {*_rows(PAGE)}


@pytest.mark.parametrize("name", sorted(_rows(PAGE)))
def test_what_is_listed_is_locked_and_accepted(name):
    version, licence, why = _rows(PAGE)[name]
    assert re.search(rf"^{re.escape(name)}=={re.escape(version)} ", LOCK, re.MULTILINE)
    assert licences.is_accepted(licence)
    assert why


def test_the_page_is_what_the_script_writes():
    """Beside the rows of packages of which another version is installed here."""
    try:
        written = licences.page()
    except PackageNotFoundError as error:
        pytest.skip(f"the tools of the extra [dev] are not installed: {error.name}")
    for name, (version, *cells) in _rows(PAGE).items():
        here, *others = _rows(written).get(name, ("",))
        assert here != version or cells == others or name in licences.ELSEWHERE
    assert {*_rows(PAGE)} >= {*licences.WHY}

    def prose(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if not line.startswith("| ")]
        return re.sub(r"Python 3\.\d+ on", "Python on", "\n".join(lines)).splitlines()

    assert prose(PAGE) == prose(written)


@pytest.mark.parametrize(
    ("metadata", "expression"), cases(__file__, "a_licence_is_found_in_metadata")
)
def test_a_licence_is_found_in_metadata(tmp_path, metadata, expression):
    folder = tmp_path / "x-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{metadata}\n")
    assert licences.licence(Distribution.at(folder)) == expression


@pytest.mark.parametrize(
    ("expression", "accepted"), cases(__file__, "licences_outside_the_list_are_refused")
)
def test_licences_outside_the_list_are_refused(expression, accepted):
    assert licences.is_accepted(expression) is accepted
