"""Faults put into the code on purpose, one at a time: the tests that are named must notice each.

A few are tried in every run; DNNSTACK_MUTANTS=all tries all of them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .arithmetic import ARITHMETIC
from .compression import COMPRESSION
from .data import DATA
from .devices import DEVICES
from .interface import INTERFACE
from .memory import MEMORY
from .mutant import LONG, TESTS, Copy, Mutant, installed, ran
from .norms import NORMS
from .plugins import PLUGINS
from .ranks import RANKS
from .records import RECORDS
from .training import TRAINING
from .updates import UPDATES
from .weights import WEIGHTS

LISTS = {
    "records": RECORDS,
    "data": DATA,
    "arithmetic": ARITHMETIC,
    "training": TRAINING,
    "updates": UPDATES,
    "norms": NORMS,
    "interface": INTERFACE,
    "devices": DEVICES,
    "memory": MEMORY,
    "weights": WEIGHTS,
    "ranks": RANKS,
    "plugins": PLUGINS,
    "compression": COMPRESSION,
}
MUTANTS = tuple(mutant for each in LISTS.values() for mutant in each)
_ALWAYS = (
    "decoded cache: pickles are read",
    "files: temporary files without O_EXCL",
    "max-pooling: a tie goes to the last pixel",
)
CHOSEN = [
    mutant
    for mutant in MUTANTS
    if os.environ.get("DNNSTACK_MUTANTS") == "all" or mutant.name in _ALWAYS
]


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutants"))


def test_there_are_eighty_of_them() -> None:
    assert len(MUTANTS) >= 80
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert f"lists {len(MUTANTS)} faults" in (docs / "testing.md").read_text("utf-8")
    assert f"| {len(MUTANTS)} faults put" in (docs / "testing.md").read_text("utf-8")
    assert f"| {len(_ALWAYS)} of {len(MUTANTS)} |" in (docs / "reliability.md").read_text("utf-8")
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert {mutant.name for mutant in MUTANTS} >= set(_ALWAYS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_entry_fits_the_code(mutant: Mutant) -> None:
    """So the list cannot rot: the text is there, and the tests that are named exist."""
    folder, _, rest = mutant.file.partition("/")
    text = (installed()[folder] / rest).read_text(encoding="utf-8")
    changed = mutant.applied(text)
    assert changed != text
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    assert mutant.tests
    for node in mutant.tests:
        file, _, function = node.partition("::")
        code = (TESTS / file).read_text(encoding="utf-8")
        assert not function or f"def {function.partition('[')[0]}(" in code, node


def test_an_entry_that_does_not_fit_is_an_error() -> None:
    mutant = Mutant("some", "common/files.py", "gone", "", ())
    with pytest.raises(ValueError, match=r"'gone' occurs 0 times in common/files\.py, not 1"):
        mutant.applied("what is here")


@pytest.mark.parametrize("name", [name for name in LISTS if {*LISTS[name]} & {*CHOSEN}])
def test_the_unchanged_copy_passes(copy: Copy, name: str) -> None:
    tests = {node: None for m in LISTS[name] if m in CHOSEN for node in m.tests}
    status, said = copy.output(list(tests), LONG)
    assert status == 0, said
    assert ran(said), said


@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant.name)
def test_the_fault_is_noticed(copy: Copy, mutant: Mutant) -> None:
    status, said = copy.output_with(mutant)
    if status == 0 and not ran(said):
        pytest.skip(f"skipped here: {mutant.tests}")
    if status == -signal.SIGABRT:
        # Emulated threads cannot raise; see tests/support/emulated/device.hpp.
        assert mutant.file.endswith((".cu", ".cuh", ".hpp")), said
        return
    # 1: a test has failed; anything else is an error of pytest or of the entry, or no end.
    assert status == 1, said
    assert " failed" in said or " error" in said, said


def test_a_copy_is_what_is_tested(copy: Copy) -> None:
    """Otherwise every fault would survive, or none."""
    broken = Mutant(
        "an import that fails",
        "common/text.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nraise RuntimeError('the copy')\n",
        ("reports/test_runs_report.py",),
    )
    status, said = copy.output_with(broken)
    assert status not in (0, 1), said
    assert "the copy" in said
