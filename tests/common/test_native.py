"""What the process asks of the C library."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
{first}

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.full(1 << 20, 1, np.uint8) for _ in range(8)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([faults() for _ in range(5)][-1])
"""
KEEP = "from dnnstack.backends.select import open_backend; open_backend({device!r})"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt belongs to glibc")
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_memory_that_was_freed_is_given_out_again(device):
    """Without new pages from the kernel, of which 8 MiB have 2,048."""
    found = []
    for first in ("", KEEP.format(device=device)):
        command = [sys.executable, "-c", FAULTS.format(first=first)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(int(done.stdout))
    assert found[0] > 1000
    assert found[1] < 100
