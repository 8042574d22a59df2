"""What released versions have written goes on working: each command, and a resume.

The runs and what their version made of them are in ``support/released``, with the script that wrote
them. Its figures are met to the bit where libraries and processor are those that it names, else to
within roundings.
"""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.cli.main import main
from dnnstack.training.records.formats.checkpoint import encode, read_checkpoint
from dnnstack.training.records.numerics import NUMERICS

from ...support.released import make_released

RELEASED = Path(make_released.__file__).parent
VERSIONS = sorted(path.parent.name for path in RELEASED.glob("*/expected.json"))
RUNS = [*make_released.CONFIGS]
# Those whose resumed bits are others by a change that the warning names, by version.
OTHER_BITS: dict[str, set[str]] = {"0.1.0": set()}
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


class Place:
    """A copy of what a version has written, in which commands are called."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        shutil.copytree(RELEASED / version, folder)
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        now = dict(open_backend("numpy", 1, print).versions())
        self.same_machine = now == {key: self.expected["versions"].get(key) for key in now}
        self.errors = ""

    def dnnstack(self, *words: str) -> str:
        """The output of a command; ``errors`` is then what it told besides."""
        # The pictures are not where they were.
        where = () if words[0] == "weights" else ("--data-dir", ".")
        where = () if words[0] == "predict" else where
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            status = main([*words, *where])
        assert status == 0, errors.getvalue()
        self.errors = errors.getvalue()
        return out.getvalue()


@pytest.fixture(params=VERSIONS, scope="module")
def place(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("released")
        patch.setenv("DNNSTACK_CACHE", str(folder / "cache"))
        found = Place(request.param, folder / "copy")
        patch.setattr(make_released, "dnnstack", found.dnnstack)
        patch.chdir(found.folder)
        yield found


def test_every_release_but_this_one_is_there():
    assert VERSIONS == ["0.1.0"]


@pytest.mark.parametrize("name", [*RUNS, "small.dnnz"])
def test_eval_predict_and_weights_say_the_same(place, name):
    check(make_released.answers(name), place.expected["answers"][name], place.same_machine)


def test_compare_says_the_same(place):
    words = ("compare", "mlp", "batch-norm", "--device", "numpy", "--threads", "1", "--json")
    found = json.loads(place.dnnstack(*words))
    assert found.pop("kind") == "class"
    check(found, place.expected["compare"], place.same_machine)


@pytest.mark.parametrize("name", RUNS)
def test_a_checkpoint_is_written_as_it_was(place, name):
    path = RELEASED / place.version / f"runs/{name}/checkpoints/step-12.safetensors"
    found = read_checkpoint(path)
    assert b"".join(encode(found.arrays, found.state, found.provenance)) == path.read_bytes()


@pytest.mark.parametrize("name", RUNS)
def test_a_resume_ends_where_that_version_did(place, name):
    words = ("train", "--config", f"{name}.yaml", "--set", "train.max_steps=20", "--resume")
    place.dnnstack(*words, f"runs/{name}")
    warnings = [line for line in place.errors.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "step-12.safetensors: comes from a version of dnnstack that rounds" in warnings[0]
    assert "SGD's update with weight decay on a CPU" in warnings[0]
    found, wanted = make_released.bits(Path("runs", name)), place.expected["resumed"][name]
    exact = place.same_machine and name not in OTHER_BITS[place.version]
    for key in ("digest", "csv"):
        assert found.pop(key) == wanted.pop(key) or not exact
    check(found, wanted, exact)
    # From here on it is a run of this version.
    end = read_checkpoint(Path("runs", name, "checkpoints/step-20.safetensors"))
    assert end.provenance.numerics == NUMERICS
    place.dnnstack(*words, f"runs/{name}")
    assert "rounds otherwise" not in place.errors


def check(found: Any, wanted: Any, exact: bool) -> None:
    """Equal, floats unless ``exact`` to within roundings."""
    if isinstance(wanted, (dict, list)):
        assert len(found) == len(wanted)
        for key in wanted if isinstance(wanted, dict) else range(len(wanted)):
            check(found[key], wanted[key], exact)
    elif isinstance(wanted, float) and not exact:
        np.testing.assert_allclose(found, wanted, **TOLERANCE)
    else:
        assert found == wanted
