"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 handwritten digits, 28x28, from four IDX files."""

from __future__ import annotations

from .download import Origin, RemoteFile
from .idx_set import IdxSet

# SHA-256 and length of the decompressed originals: their compressed files differ by mirror.
_ORIGIN = Origin(
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://yann.lecun.com/exdb/mnist/",
    ),
    files=(
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            47_040_016,
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            60_008,
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            7_840_016,
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            10_008,
        ),
    ),
)
MNIST = IdxSet("mnist", "MNIST", tuple("0123456789"), _ORIGIN)
SOURCE = MNIST.source()
