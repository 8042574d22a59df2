"""The software bill of materials names what is installed, and what needs what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib, of the extra [dev], is missing")
SCRIPT = Path(__file__).resolve().parents[2] / "release" / "sbom.py"


def written(target: Path, *words: str, **environment: str) -> dict[str, Any]:
    """The bill, written by a process of its own."""
    command = [sys.executable, str(SCRIPT), *words, str(target)]
    subprocess.run(command, check=True, env={**os.environ, **environment}, cwd=target.parent)
    found: dict[str, Any] = json.loads(target.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def bill(tmp_path_factory):
    return written(tmp_path_factory.mktemp("sbom") / "a.json")


def test_what_it_is_of(bill):
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == ("dnnstack", version("dnnstack"))
    assert own["purl"] == f"pkg:pypi/dnnstack@{version('dnnstack')}"
    assert own["licenses"] == [{"license": {"id": "MIT"}}]
    assert bill["metadata"]["timestamp"].startswith("2020-01-01T00:00:00")


def test_every_package_has_version_and_licence(bill):
    found = {each["name"]: each for each in bill["components"]}
    assert {"numpy", "pillow", "safetensors", "pydantic-core"} <= set(found)
    assert not {"optuna", "pytest", "cyclonedx-python-lib"} & set(found)
    for name, each in found.items():
        assert each["version"] == version(name)
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{name}@{each['version']}"
        (licence,) = each["licenses"]
        assert "unknown" not in str(licence)


def test_everything_is_there_because_something_needs_it(bill):
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    waiting, reached = [bill["metadata"]["component"]["bom-ref"]], set()
    while waiting:
        reference = waiting.pop()
        reached.add(reference)
        waiting += [each for each in needs[reference] if each not in reached]
    assert reached == {*needs}
    assert len(reached) == len(bill["components"]) + 1
    ends = (name for name in ("pydantic", "pydantic-core"))
    user, used = (f"pkg:pypi/{name}@{version(name)}" for name in ends)
    assert used in needs[user]
    assert used not in needs[bill["metadata"]["component"]["bom-ref"]]


def test_extras_add_to_it(bill, tmp_path):
    pytest.importorskip("optuna")
    more = written(tmp_path / "more.json", "--extra", "sweep")
    names = {each["name"] for each in more["components"]}
    assert names >= {each["name"] for each in bill["components"]} | {"optuna"}
    assert more["serialNumber"] != bill["serialNumber"]


def test_equal_packages_give_equal_bytes(tmp_path):
    for seed in ("1", "2"):
        written(tmp_path / seed, PYTHONHASHSEED=seed, SOURCE_DATE_EPOCH="1000000000")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert b"2001-09-09T01:46:40" in (tmp_path / "1").read_bytes()


def test_an_unknown_extra_is_refused(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        written(tmp_path / "a.json", "--extra", "nothing")
    assert caught.value.returncode == 2
