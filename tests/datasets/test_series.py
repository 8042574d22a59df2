"""``series``: what is drawn, and that it is the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.files import sha256_bytes
from dnnstack.common.random import key
from dnnstack.datasets import describe, load
from dnnstack.datasets.series import draw

STREAM = key(0, "series", "train")


def test_what_is_drawn_is_known_to_the_bit():
    sequences, labels = draw(STREAM, 0, 600)
    assert (sequences.shape, sequences.dtype, labels.dtype) == ((600, 128), np.uint8, np.int32)
    assert sha256_bytes(sequences.tobytes())[:16] == "6c930a3874c5e6aa"
    assert np.bincount(labels).tolist() == [195, 198, 207]
    # Whatever is drawn with it.
    alone, label = draw(STREAM, 511, 514)
    np.testing.assert_array_equal(alone, sequences[511:514])
    np.testing.assert_array_equal(label, labels[511:514])


def test_a_split_is_in_millivolts(tmp_path):
    info = describe("series", options={"train_count": 40, "test_count": 30, "seed": 2})
    assert (info.shape, info.train_count, info.test_count) == ((1, 1, 128), 40, 30)
    assert info.classes == ("normal", "elevated", "ventricular")
    assert info.scale is not None
    assert info.shift is not None
    assert 255 * info.scale[0] + info.shift[0] == pytest.approx(2.0)
    sets = [
        load("series", split, root=tmp_path, options={"train_count": 30, "seed": seed})
        for split, seed in (("train", 0), ("test", 0), ("train", 1))
    ]
    assert [each.images.shape for each in sets] == [(n, 1, 1, 128) for n in (30, 2000, 30)]
    assert sets[0].name == "series/train"
    assert len({row.tobytes() for each in sets for row in each.images}) == 2060
    np.testing.assert_array_equal(sets[0].images[:, 0, 0], draw(STREAM, 0, 30)[0])
    with pytest.raises(DatasetError, match="'series', option 'test_count': expects an integer"):
        describe("series", options={"test_count": 10_000_001})


def test_beats_of_a_class_have_its_waves():
    """Their mean around the highest value: the main wave, and what comes after it."""
    sequences, labels = draw(STREAM, 0, 2000)
    info = describe("series")
    assert info.scale is not None
    assert info.shift is not None
    values = sequences * info.scale[0] + info.shift[0]
    inside = np.flatnonzero(values.argmax(1) < 86)
    assert len(inside) > 1980
    around = np.stack([values[row, (at := values[row].argmax()) - 30 : at + 42] for row in inside])
    means = [around[labels[inside] == kind].mean(0) for kind in range(3)]
    normal, elevated, ventricular = means
    assert 0.9 < normal[30] < 1.3
    np.testing.assert_allclose(elevated[:33], normal[:33], atol=0.04)
    assert (elevated - normal)[44:50].min() > 0.1
    assert ventricular[65:70].max() < -0.1 < 0.1 < normal[62:67].min()
