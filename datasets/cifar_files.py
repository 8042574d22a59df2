"""The files of CIFAR-10 and CIFAR-100: names, lengths, hashes and classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .cifar_names import CIFAR10, CIFAR100_COARSE, CIFAR100_FINE
from .download import RemoteFile
from .image_set import Split

PICTURE = (3, 32, 32)
"""(C, H, W)."""

_MIRRORS = (
    "https://www.cs.toronto.edu/~kriz/",
    "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/",
)


@dataclass(frozen=True)
class Part:
    """A file of the set with its number of records; sha256 is the original's."""

    name: str
    count: int
    sha256: str


@dataclass(frozen=True)
class Cifar:
    """One of the two sets. labels: for each label byte of a record its name and the classes."""

    name: str
    title: str
    folder: str
    archive: RemoteFile
    parts: dict[Split, tuple[Part, ...]]
    labels: tuple[tuple[str, tuple[str, ...]], ...]
    mirrors: tuple[str, ...] = _MIRRORS

    @property
    def record(self) -> int:
        """Bytes of a picture with its labels."""
        return len(self.labels) + math.prod(PICTURE)

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(sum(self.sizes(split).values()) for split in self.parts)

    def count(self, split: Split) -> int:
        return sum(part.count for part in self.parts[split])

    def sizes(self, split: Split) -> dict[str, int]:
        """The files of a split with their lengths."""
        return {part.name: part.count * self.record for part in self.parts[split]}


CIFAR_10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-bin",
    archive=RemoteFile(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    parts={
        "train": (
            Part(
                "data_batch_1.bin",
                10_000,
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            Part(
                "data_batch_2.bin",
                10_000,
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            Part(
                "data_batch_3.bin",
                10_000,
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            Part(
                "data_batch_4.bin",
                10_000,
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            Part(
                "data_batch_5.bin",
                10_000,
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
        ),
        "test": (
            Part(
                "test_batch.bin",
                10_000,
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ),
    },
    labels=(("label", CIFAR10),),
)
CIFAR_100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-binary",
    archive=RemoteFile(
        "cifar-100-binary.tar.gz",
        168_513_733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    parts={
        "train": (
            Part(
                "train.bin",
                50_000,
                "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            ),
        ),
        "test": (
            Part(
                "test.bin",
                10_000,
                "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            ),
        ),
    },
    labels=(("coarse label", CIFAR100_COARSE), ("fine label", CIFAR100_FINE)),
)
