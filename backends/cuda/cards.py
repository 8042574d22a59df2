"""What NVIDIA states of common GPUs: the limits of a card that need not be there.

Rates are without sparsity. Sources: the data sheets of H200, H100 (SXM5), A100 (SXM4, 80 GB), L4,
T4 and V100 (SXM2); the white papers "NVIDIA Ada GPU Architecture" and "NVIDIA Ampere GA102 GPU
Architecture"; CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from ...common.records import dataclass
from .libraries.runtime import Processors

USUAL = "h100"


@dataclass(frozen=True)
class Card:
    """A GPU: ``name`` as CUDA gives it, compute capability, TFLOP/s in fp32, tf32 and bf16.

    ``bandwidth``: GB/s of its memory; ``count``: multiprocessors; ``shared``: KiB of shared memory
    of each, and of a block at most.
    """

    name: str
    capability: tuple[int, int]
    tflops: tuple[float, ...]
    bandwidth: float
    gigabytes: float
    count: int
    shared: tuple[int, int]

    @property
    def has_tf32(self) -> bool:
        return len(self.tflops) > 1

    @property
    def processors(self) -> Processors:
        own, of_block = (size << 10 for size in self.shared)
        return Processors(self.count, own, of_block, self.capability == (9, 0))


_HOPPER = (66.9, 494.7, 989.4)
_RTX = "NVIDIA GeForce RTX"
CARDS = {
    "h100": Card("NVIDIA H100 80GB HBM3", (9, 0), _HOPPER, 3350, 80, 132, (228, 227)),
    "h200": Card("NVIDIA H200", (9, 0), _HOPPER, 4800, 141, 132, (228, 227)),
    "a100": Card("NVIDIA A100-SXM4-80GB", (8, 0), (19.5, 156, 312), 2039, 80, 108, (164, 163)),
    "l4": Card("NVIDIA L4", (8, 9), (30.3, 60.5, 121), 300, 24, 58, (100, 99)),
    "t4": Card("Tesla T4", (7, 5), (8.1,), 320, 16, 40, (64, 64)),
    "v100": Card("Tesla V100-SXM2-16GB", (7, 0), (15.7,), 900, 16, 80, (96, 96)),
    "rtx3090": Card(f"{_RTX} 3090", (8, 6), (35.6, 35.6, 71), 936, 24, 82, (100, 99)),
    "rtx4090": Card(f"{_RTX} 4090", (8, 9), (82.6, 82.6, 165.2), 1008, 24, 128, (100, 99)),
}
