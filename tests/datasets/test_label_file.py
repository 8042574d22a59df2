"""Files of corrected labels: which samples get which class, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet
from dnnstack.datasets.label_file import relabelled

IMAGES = ImageSet(
    "own/train",
    np.zeros((4, 1, 1, 1), np.uint8),
    np.array([0, 1, 2, 0], np.int32),
    ("cat", "dog", "=1+1"),
    tuple(f"/data/{name}" for name in ("cat/1.png", "dog/1.png", "=1/1.png", "cat/2.png")),
    names=("cat/1.png", "dog/1.png", "=1/1.png", "cat/2.png"),
)


def of(text: str, folder, split="train") -> list[int]:
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    found = relabelled(IMAGES, "labels.csv", split, folder)
    assert not found.labels.flags.writeable
    assert (found.images is IMAGES.images, found.names) == (True, IMAGES.names)
    return found.labels.tolist()


@pytest.mark.parametrize(
    ("text", "split", "wanted"),
    [
        ("index,label\n3,dog\n0,=1+1\n", "train", [2, 1, 2, 1]),
        ("index,label\n3,dog\n", "test", [0, 1, 2, 0]),
        ("label,path\ndog,cat/2.png\ncat,/data/dog/1.png\n", "train", [0, 0, 2, 1]),
        # An empty path, as where samples have numbers alone.
        ("split,index,path,label\ntrain,3,,dog\n", "train", [0, 1, 2, 1]),
        ("split,index,label\ntest,9,dog\nvalidation,1,cat\ntrain,0,dog\n", "train", [1, 0, 2, 0]),
        ("split,index,label\ntest,3,dog\nvalidation,1,cat\n", "test", [0, 1, 2, 1]),
        # What a spreadsheet would run has an apostrophe.
        ("path,label\n'=1/1.png,cat\ncat/1.png,'=1+1\n", "train", [2, 1, 0, 0]),
        ("index,label\n0,dog\n0,cat\n", "train", [0, 1, 2, 0]),
    ],
)
def test_samples_get_the_labels_of_the_file(text, split, wanted, tmp_path):
    assert of(text, tmp_path, split) == wanted
    assert IMAGES.labels.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("index,label\n0,dog\n4,cat\n", "line 3, column 'index': '4' is not one of the 4 samples"),
        ("index,label\n-1,dog\n", "line 2, column 'index': '-1' is not one of the"),
        ("path,label\ncat/9.png,dog\n", "column 'path': 'cat/9.png' is not one of the"),
        (
            "index,label\n0,dgo\n",
            "line 2, column 'label': 'dgo' is not one of the 3 classes of own",
        ),
        ("index,label\n0,\n", "line 2, column 'label': has no value"),
        ("index,label\n,dog\n", "line 2, column 'index': has no value"),
        ("split,index,label\ntset,0,dog\n", "line 2, column 'split': 'tset' is not one of"),
        ("index,class\n0,dog\n", "has no column 'label'; it has index, class"),
        ("name,label\n0,dog\n", "has no column 'index'; it has name, label"),
        ("index,label\n", "has no rows"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, said, tmp_path):
    with pytest.raises(DatasetError) as raised:
        of(text, tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'labels.csv'}: ")
    assert said in str(raised.value)


def test_no_file_is_no_change_and_one_that_is_gone_an_error(tmp_path):
    assert relabelled(IMAGES, None, "train", tmp_path) is IMAGES
    with pytest.raises(DatasetError, match=r"labels\.csv: cannot be read"):
        relabelled(IMAGES, "labels.csv", "train", tmp_path)
