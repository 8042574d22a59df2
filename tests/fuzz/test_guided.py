"""The same readers, with inputs that are bred by which code they reach; needs atheris.

DNNSTACK_GUIDED=100000 runs so many for each reader.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .targets import TARGETS

COUNT = int(os.environ.get("DNNSTACK_GUIDED", "0"))

pytestmark = [
    pytest.mark.timeout(0 if COUNT else 600),
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None, reason="atheris is not installed"
    ),
]


@pytest.mark.parametrize("name", TARGETS if COUNT else ["idx", "manifest"])
def test_no_input_that_reaches_new_code_breaks_a_reader(name, tmp_path):
    guided = Path(__file__).with_name("guided.py")
    done = subprocess.run(
        [sys.executable, str(guided), name, str(tmp_path), f"-runs={COUNT or 500}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert f"Done {COUNT or 500} runs" in said
    assert not list(tmp_path.glob("crash-*"))
