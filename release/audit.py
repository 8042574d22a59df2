"""Looks up every version of the lock file in a database of known vulnerabilities.

    python3 release/audit.py [--database PATH] [LOCK]

The database has advisories in OSV's format: a checkout of github.com/pypa/advisory-database, or the
file all.zip of PyPI that OSV offers for use offline. PATH, or else ``$DNNSTACK_ADVISORIES``, names
the folder or the ZIP file. Without either, OSV's service is asked. Exit status: 1 if a version is
vulnerable; 2 if the lock file or a named database is empty or unreadable; 0 otherwise, also if
nothing can be reached, which is then said. (pip-audit asks PyPI's JSON API, which a mirror of the
index lacks: it then audits nothing, with exit status 0.)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

LOCK = Path(__file__).with_name("test.txt")
SERVICE = "https://api.osv.dev/v1/querybatch"
Package = tuple[str, str]
# Only what is text: a date stays one, and there are thousands of files.
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def locked(lock: Path) -> list[Package]:
    """Name and version of every entry of a lock file, whatever Python and system it is for."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([\w.-]+)==([^\s;]+)", line) for line in lines)
    return sorted({(canonicalize_name(m[1]), m[2]) for m in found if m})


def advisories(database: Path) -> Iterator[dict[str, Any]]:
    """Those of a folder or a ZIP file. Raises OSError, ValueError."""
    if database.is_dir():
        for path in sorted(database.rglob("*")):
            if path.suffix in (".json", ".yaml") and ".github" not in path.parts:
                yield _parsed(path.name, path.read_bytes())
        return
    with zipfile.ZipFile(database) as archive:
        for name in archive.namelist():
            if name.endswith((".json", ".yaml")):
                yield _parsed(name, archive.read(name))


def _parsed(name: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content) if name.endswith(".json") else yaml.load(content, _Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{name}: {error}") from None
    if not isinstance(found, dict) or "id" not in found:
        raise ValueError(f"{name}: is no advisory in OSV's format")
    return found


def affects(advisory: dict[str, Any], package: Package) -> bool:
    """Whether an advisory that was not withdrawn lists the version, or has a range around it."""
    name, version = package
    if advisory.get("withdrawn"):
        return False
    for affected in advisory.get("affected", ()):
        about = affected.get("package", {})
        if about.get("ecosystem") != "PyPI" or canonicalize_name(about.get("name", "")) != name:
            continue
        if version in affected.get("versions", ()):
            return True
        ranges = (r for r in affected.get("ranges", ()) if r.get("type") == "ECOSYSTEM")
        if any(_inside(Version(version), each.get("events", ())) for each in ranges):
            return True
    return False


def _inside(version: Version, events: Iterable[dict[str, str]]) -> bool:
    """Whether the events, in the order of their versions, end in affected at ``version``."""
    changes = []
    for event in events:
        for kind, text in event.items():
            try:
                changes.append((Version(text), kind))
            except InvalidVersion:
                continue
    affected = False
    for at, kind in sorted(changes):
        if kind == "introduced" and at <= version:
            affected = True
        elif (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version):
            affected = False
    return affected


def look_up(packages: list[Package], database: Path) -> tuple[list[str], str]:
    """Lines about vulnerable versions, and what was searched. Raises OSError, ValueError."""
    found, count, newest = [], 0, ""
    for advisory in advisories(database):
        count += 1
        newest = max(newest, str(advisory.get("modified", "")))
        hits = (package for package in packages if affects(advisory, package))
        found += [f"{name} {version}: {advisory['id']}" for name, version in hits]
    if not count:
        raise ValueError("has no advisories")
    return sorted(found), f"{database} ({count:,} advisories, the newest of {newest[:10]})"


def ask(packages: list[Package], service: str = SERVICE) -> list[str]:
    """Lines about vulnerable versions, from OSV's service. Raises OSError, ValueError."""
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in packages
    ]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(service, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answers = json.load(answer)
    results = answers.get("results", []) if isinstance(answers, dict) else []
    if len(results) != len(packages):
        raise ValueError(f"{len(results)} answers to {len(packages)} questions")
    return [
        f"{name} {version}: {found['id']}"
        for (name, version), result in zip(packages, results, strict=True)
        for found in (result or {}).get("vulns", ())
    ]


def main(arguments: list[str] | None = None, service: str = SERVICE) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lock", nargs="?", type=Path, default=LOCK)
    parser.add_argument("--database", default=os.environ.get("DNNSTACK_ADVISORIES"))
    options = parser.parse_args(arguments)
    packages = locked(options.lock)
    if not packages:
        print(f"{options.lock}: has no entries", file=sys.stderr)
        return 2
    if options.database:
        try:
            found, searched = look_up(packages, Path(options.database))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            print(f"{options.database}: {error}", file=sys.stderr)
            return 2
    else:
        try:
            found, searched = ask(packages, service), service
        except (OSError, ValueError) as error:
            print(f"NOT AUDITED: {service} cannot be reached ({error}), and no database is named")
            return 0
    for line in found:
        print(line)
    print(f"{len(packages)} versions looked up in {searched}: {len(found)} vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
