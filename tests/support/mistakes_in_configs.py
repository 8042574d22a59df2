"""Mistakes in the config, about the machine, and on the command line."""

from __future__ import annotations

from .machines import cuda_as, disk_full, no_devices, without_bfloat16, without_cupy
from .mistakes import config, stored_mistakes

CONFIGS = stored_mistakes(
    "mistakes_in_configs.txt",
    {
        "not UTF-8": config(b"name: caf\xe9\n"),
        "empty config": config(""),
        "an empty file where stages are needed": config(""),
        "bf16 on a CPU without it": without_bfloat16,
        "cuda without CuPy": without_cupy,
        "no GPU": cuda_as(no_devices),
        "no room for checkpoints": disk_full,
    },
)
