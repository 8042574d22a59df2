"""Writes docs/licences.md: what is installed with dnnstack, under which licence, and why.

    python3 release/licences.py docs/licences.md

Run it where dnnstack and the packages of release/test.txt are installed. Names, versions and
licences are those that the installed packages state about themselves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).with_name("test.txt")
WHY = {
    "annotated-types": "bounds in the types of a config's keys",
    "click": "the command line",
    "cyclonedx-python-lib": "writes the bill of materials of a release",
    "hypothesis": "draws the inputs of tests",
    "import-linter": "checks which folder may import which",
    "matplotlib": "curves and pictures of reports",
    "mpi4py": "several processes (the extra `[mpi]`): calls MPI",
    "mpich": "several processes (the extra `[mpi]`): MPI and its launcher",
    "mypy": "checks the types",
    "numpy": "arrays, and the reference of every operation",
    "onnx": "exported networks (the extra `[onnx]`): the format of their files",
    "onnxruntime": "exported networks (the extra `[onnx]`): runs them, to check their answers",
    "optuna": "searches (the extra `[sweep]`): draws the values of trials",
    "onednn-cpu-gomp": "oneDNN, the library that computes on a CPU (x86-64)",
    "pillow": "reads and writes pictures",
    "pillow-heif": "pictures of telephones (the extra `[heic]`): reads HEIC",
    "pydantic": "checks configs, and the JSON of files",
    "pytest": "runs the tests",
    "pytest-timeout": "ends a test that waits for ever",
    "pytest-xdist": "runs tests in several processes",
    "pyyaml": "reads configs",
    "ruff": "checks and formats the code",
    "safetensors": "the format of checkpoints",
    "setuptools": "builds the package",
    "starlette": "answers over HTTP (the extra `[serve]`): requests and responses",
    "tqdm": "the progress bar",
    "types-pyyaml": "types for mypy",
    "types-tqdm": "types for mypy",
    "uvicorn": "answers over HTTP (the extra `[serve]`): the server",
    "typing-extensions": "types that Python 3.10 lacks",
    "wcwidth": "widths of names in tables: Chinese characters and emoji take two columns",
}
# Not installed on the Python that the page is written on: licence, why.
ELSEWHERE = {
    "coloredlogs": ("MIT", "needed by onnxruntime on Python 3.10"),
    "exceptiongroup": ("MIT", "needed by hypothesis, pytest on Python 3.10"),
    "humanfriendly": ("MIT", "needed by coloredlogs on Python 3.10"),
    "mpmath": ("BSD-3-Clause", "needed by sympy on Python 3.10"),
    "six": ("MIT", "needed by python-dateutil on Python 3.10"),
    "sympy": ("BSD-3-Clause", "needed by onnxruntime on Python 3.10"),
    "tomli": ("MIT", "needed by import-linter, mypy, pytest on Python 3.10"),
}
ACCEPTED = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "HPND",
    "ISC",
    # Use, changes and redistribution are permitted, as by MIT, if its notice is kept.
    "LicenseRef-MPICH",
    "MIT",
    "MIT-CMU",
    "MPL-2.0",
    "PSF",
    "PSF-2.0",
    "Zlib",
}
# What packages without a licence expression say.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache v2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF",
}
_LONGEST_NAME = 40
_HEAD = """\
# Licences

dnnstack is under the MIT licence. These packages are installed with it, here on Python {python} on
Linux, with the versions of `release/test.txt`. The licences are those that the packages state about
themselves. All of them permit use, also in commercial products; under the Mozilla Public License,
whoever passes on changed files of such a package has to publish these files.
`python3 release/licences.py docs/licences.md` writes this page, and the tests check it.
"""
_GPU = """
## With a GPU

The extras `[cuda12]` and `[cuda13]` install CuPy (MIT), NVIDIA's frontend of cuDNN (MIT) and finder
of libraries (cuda-pathfinder, Apache-2.0), and NVIDIA's own libraries: cuBLAS, NVRTC, cuDNN and
other parts of the CUDA Toolkit. The latter are proprietary; NVIDIA's licence agreements for the
CUDA Toolkit and for cuDNN apply to them. They are not part of `release/test.txt`, and the tables do
not list them. The extras `[nccl12]` and `[nccl13]` add NVIDIA's NCCL, to which the licence applies
that its package states.
"""
_HEIC = """\
## With pictures of telephones

The wheel of pillow-heif, which the extra `[heic]` installs, is under GPL-2.0 as a whole. It brings
libheif and libde265 (LGPL-3.0), which decode HEIC, and x265 (GPL-2.0), which encodes it and which
dnnstack does not call. Whoever passes the wheel on has to keep to these licences.
"""
_PAGE = """
## On the page of a run

The page that `dnnstack report` writes contains uPlot 1.6.32 (MIT, Copyright (c) 2022 Leon Sorokin),
which draws its curves. It is in `reports/vendored`, with its licence.
"""
_SITE = """
## With the site

The extra `[docs]` installs Sphinx (BSD-2-Clause), MyST-Parser and Furo (MIT), and what they need.
All is under licences of the tables above but for docutils: public domain for the most part, with
files under BSD licences and an editor's mode under GPL-3.0. They make the site and are no part of
it.
"""
_DATA = """
## Data of the tests

`tests/training/known` has the measurements of irises (Fisher 1936) and of patients with diabetes
(Efron et al. 2004) as scikit-learn (BSD-3-Clause) passes them on. They are not installed.
"""


def licence(package: Distribution) -> str:
    """An SPDX expression where the package has one, else what its metadata say."""
    said = package.metadata.json
    if expression := said.get("license_expression"):
        return str(expression)
    classifiers = [str(c).rpartition(" :: ") for c in said.get("classifier", ())]
    approved = [name for kind, _, name in classifiers if kind.startswith("License :: OSI Approved")]
    short = str(said.get("license", "")).strip()
    short = _SPDX.get(short, short)
    if short not in ACCEPTED and approved:
        return " AND ".join(_SPDX.get(name, name) for name in approved)
    return short if 0 < len(short) <= _LONGEST_NAME and "\n" not in short else "unknown"


def is_accepted(expression: str) -> bool:
    """Whether every licence that an expression names is accepted."""
    names = re.split(r"\s+(?:AND|OR)\s+", expression.replace("(", "").replace(")", ""))
    return set(names) <= ACCEPTED


def needed(roots: Iterable[Requirement]) -> dict[str, tuple[Distribution, list[str]]]:
    """Name -> the installed package and which packages need it (none for roots), here."""
    found: dict[str, tuple[Distribution, list[str]]] = {}
    waiting = [(root, "") for root in roots]
    while waiting:
        requirement, user = waiting.pop(0)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            package = distribution(name)
            found[name] = (package, [])
            waiting += [(Requirement(line), name) for line in package.requires or ()]
        if user and user not in found[name][1]:
            found[name][1].append(user)
    return found


def requirements(*extras: str) -> list[Requirement]:
    """What dnnstack needs itself; with names of extras, what these add."""
    found = []
    for line in distribution("dnnstack").requires or ():
        requirement = Requirement(line)
        extra = re.search(r'extra == "(\w+)"', line)
        if (extra[1] in extras) if extra else not extras:
            requirement.marker = None if extra else requirement.marker
            found.append(requirement)
    return found


def page() -> str:
    """The whole of docs/licences.md."""
    own, tools = _rows(needed(requirements())), _rows(needed(requirements("test", "dev")))
    for name, (expression, why) in ELSEWHERE.items():
        version = re.search(rf"^{name}==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
        table = own if name == "six" else tools
        table.setdefault(name, f"| {name} | {version and version[1]} | {expression} | {why} |")
    tools = {name: row for name, row in tools.items() if name not in own}
    python = ".".join(map(str, sys.version_info[:2]))
    return "\n".join(
        [
            _HEAD.format(python=python),
            *_table("What dnnstack needs", own),
            "",
            *_table("What its tests and checks need besides", tools),
            _GPU,
            _HEIC.strip("\n"),
            _PAGE.rstrip("\n"),
            _SITE.rstrip("\n"),
            _DATA,
        ]
    )


def _rows(packages: dict[str, tuple[Distribution, list[str]]]) -> dict[str, str]:
    found = {}
    for name, (package, users) in packages.items():
        why = WHY.get(name) or f"needed by {', '.join(sorted(users))}"
        found[name] = f"| {name} | {package.version} | {licence(package)} | {why} |"
    return found


def _table(title: str, rows: dict[str, str]) -> list[str]:
    head = ["| package | version | licence | why |", "| --- | --- | --- | --- |"]
    return [f"## {title}", "", *head, *(row for _, row in sorted(rows.items()))]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
