"""MNIST (LeCun, Cortes, Burges) and Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), four files each.

Both have 60,000 + 10,000 grey pictures of 28x28 pixels: handwritten digits, and clothes.
"""

from __future__ import annotations

from .download import Origin, RemoteFile
from .idx_set import IdxSet, file_name

# For each file its length and SHA-256. MNIST's compressed files differ by mirror, so its SHA-256 is
# that of the decompressed original, whose length follows.
_MNIST = """
train images 9912422 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016
train labels 28881 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 60008
t10k images 1648877 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 7840016
t10k labels 4542 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 10008
"""
_FASHION_MNIST = """
train images 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train labels 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k images 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k labels 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
"""


def _origin(table: str, *mirrors: str) -> Origin:
    rows = map(str.split, table.strip().splitlines())
    files = (
        RemoteFile(file_name(split, part), int(size), digest, *map(int, content_size))
        for split, part, size, digest, *content_size in rows
    )
    return Origin(mirrors, tuple(files))


MNIST = IdxSet(
    "mnist",
    "MNIST",
    tuple("0123456789"),
    _origin(
        _MNIST,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://yann.lecun.com/exdb/mnist/",
    ),
)
FASHION_MNIST = IdxSet(
    "fashion_mnist",
    "Fashion-MNIST",
    (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    _origin(
        _FASHION_MNIST,
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
)
