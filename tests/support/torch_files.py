"""Files as torch.save writes them, put together by hand so that they may be wrong.

``torch_2.13.pth`` is of PyTorch 2.13: weights of a convolution and a batch norm under ``model``,
with ``module.`` before their names, and views of ``arange(12)`` in a matrix (3, 4).
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REAL = Path(__file__).with_name("torch_2.13.pth")
MAPPING, TENSOR = b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n"
PARAMETER = b"ctorch._utils\n_rebuild_parameter\n"


def plain(value: Any) -> bytes:
    """The instructions for a value of Python's own."""
    return pickle.dumps(value, 2)[2:-1]


def storage(kind: str, count: Any, key: Any = "0") -> bytes:
    """The instructions for a storage of this type."""
    named = f"ctorch\n{kind}Storage\n".encode()
    return b"(" + plain("storage") + named + plain(key) + plain("cpu") + plain(count) + b"tQ"


def tensor(held: bytes, offset: Any, shape: Any, strides: Any) -> bytes:
    """The instructions for a tensor of a storage."""
    given = b"".join(map(plain, (offset, shape, strides, False)))
    return TENSOR + b"(" + held + given + MAPPING + b")RtR"


def mapping(**items: bytes) -> bytes:
    """The instructions for a mapping of names to values."""
    return b"}(" + b"".join(plain(name) + value for name, value in items.items()) + b"u"


def torch_file(
    pickled: bytes, entries: Mapping[str, bytes], how: int = zipfile.ZIP_STORED, folder: str = "m"
) -> bytes:
    """A zip archive with these instructions and other entries."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", how) as archive:
        for name, data in {"data.pkl": b"\x80\x02" + pickled + b".", **entries}.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}"), data, how)
    return written.getvalue()
