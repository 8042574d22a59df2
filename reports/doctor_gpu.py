"""NVIDIA GPUs and the packages for them, without loading any of their libraries."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import shutil
import subprocess
from pathlib import Path

from ..common.records import dataclass

_DRIVER = Path("/proc/driver/nvidia")
_SECONDS = 10
# The architecture may come in between; it has digits too, but no dot.
_VERSION = r"Kernel Module.*?\s(\d+\.[\d.]+)"
# Either name will do; the unversioned ones are those of CUDA 13.
_PACKAGES = (
    ("cupy-cuda12x", "cupy-cuda13x"),
    ("nvidia-cublas-cu12", "nvidia-cublas"),
    ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("nvidia-cudnn-frontend",),
)
# The first driver that runs CUDA 13.
_DRIVER_OF_CUDA_13 = 580


@dataclass(frozen=True)
class Gpu:
    """A GPU. driver: the version of its driver, or "" if unknown; text: a description."""

    driver: str
    text: str


def gpus() -> list[Gpu]:
    """The GPUs that nvidia-smi lists, else those that the driver lists in /proc."""
    return _from_tool() or _from_driver()


def packages() -> tuple[dict[str, str], list[str]]:
    """Versions of the installed packages of the extras [cuda12] or [cuda13], and what is missing.

    A missing package is listed under the last of its names.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for names in _PACKAGES:
        there = [name for name in names if _version(name)]
        found.update((name, _version(name)) for name in there)
        if not there:
            missing.append(names[-1])
    return found, missing


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def extra(driver: str) -> str:
    """The extra with the CUDA version that the driver supports."""
    major = driver.partition(".")[0]
    return "cuda13" if major.isdecimal() and int(major) >= _DRIVER_OF_CUDA_13 else "cuda12"


def _from_tool() -> list[Gpu]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = "--query-gpu=driver_version,name,memory.total,compute_cap"
    try:
        done = subprocess.run(
            [tool, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in done.stdout.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == 4:
            driver, name, memory, capability = values
            text = f"{name}, {memory}, compute capability {capability}, driver {driver}"
            found.append(Gpu(driver, text))
    return found


def _from_driver() -> list[Gpu]:
    try:
        release = re.search(_VERSION, (_DRIVER / "version").read_text("utf-8"))
        driver = release[1] if release else ""
        found = []
        for file in sorted(_DRIVER.glob("gpus/*/information")):
            model = re.search(r"Model:\s*(.+)", file.read_text("utf-8"))
            name = model[1].strip() if model else "a GPU of unknown model"
            found.append(Gpu(driver, f"{name}, driver {driver or 'of unknown version'}"))
        return found
    except OSError:
        return []
