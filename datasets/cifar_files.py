"""The files of CIFAR-10 and CIFAR-100: names, numbers of records, hashes and classes."""

from __future__ import annotations

from .cifar import Cifar, Cifar100, Part
from .download import RemoteFile

_MIRRORS = (
    "https://www.cs.toronto.edu/~kriz/",
    "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/",
)

_10 = "airplane automobile bird cat deer dog frog horse ship truck"
_100_COARSE = """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
    non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""

_100_FINE = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
    bowl boy bridge bus butterfly camel can castle caterpillar cattle
    chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


def _parts(table: str) -> tuple[Part, ...]:
    rows = map(str.split, table.strip().splitlines())
    return tuple(Part(name, int(count), sha256) for name, count, sha256 in rows)


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
        "train": _parts("""
            data_batch_1.bin 10000 cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5
            data_batch_2.bin 10000 a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed
            data_batch_3.bin 10000 bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67
            data_batch_4.bin 10000 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48
            data_batch_5.bin 10000 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add
        """),
        "test": _parts(
            "test_batch.bin 10000 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        ),
    },
    label_bytes=(("label", tuple(_10.split())),),
    mirrors=_MIRRORS,
)
CIFAR_100 = Cifar100(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-binary",
    archive=RemoteFile(
        "cifar-100-binary.tar.gz",
        168_513_733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    parts={
        "train": _parts(
            "train.bin 50000 f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"
        ),
        "test": _parts(
            "test.bin 10000 d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"
        ),
    },
    label_bytes=(
        ("coarse label", tuple(_100_COARSE.split())),
        ("fine label", tuple(_100_FINE.split())),
    ),
    mirrors=_MIRRORS,
)
