"""Every listed fault fits the code; DNNSTACK_MUTANTS=all also tries them, one at a time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .listed import LISTED
from .mutant import TESTS, Copy, Mutant, installed, ran

_TRIED = [m for m in LISTED if os.environ.get("DNNSTACK_MUTANTS") == "all"] or [
    mutant for mutant in LISTED if mutant.name == "random: the key's words swapped"
]


@pytest.fixture(scope="session")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("mutants"))


def test_the_documents_say_how_many():
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert f"lists {len(LISTED)} faults" in (docs / "testing.md").read_text("utf-8")
    assert f"| 1 of {len(LISTED)} |" in (docs / "reliability.md").read_text("utf-8")
    assert len({mutant.name for mutant in LISTED}) == len(LISTED)


@pytest.mark.parametrize("mutant", LISTED, ids=lambda mutant: mutant.name)
def test_the_entry_fits_the_code(mutant):
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
        assert f"def {function.partition('[')[0]}(" in code, node


def test_an_entry_that_does_not_fit_is_an_error():
    mutant = Mutant("some", "common/files.py", "gone", "", ())
    with pytest.raises(ValueError, match=r"'gone' occurs 0 times in common/files\.py, not 1"):
        mutant.applied("what is here")


@pytest.mark.parametrize("mutant", _TRIED, ids=lambda mutant: mutant.name)
def test_the_fault_is_noticed(copy, mutant):
    status, said = copy.output(mutant.tests)
    assert status == 0, said
    if not ran(said):
        pytest.skip(f"skipped here: {mutant.tests}")
    status, said = copy.output_with(mutant)
    if status == -signal.SIGABRT:
        # Emulated threads cannot raise; see tests/support/emulated/device.hpp.
        assert mutant.file.endswith((".cu", ".cuh")), said
        return
    # 1: a test has failed; anything else is an error of pytest or of the entry, or no end.
    assert status == 1, said
    assert " failed" in said or " error" in said, said
