"""Filters that whiten the patches of the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.common.errors import ShapeError
from dnnstack.datasets import describe
from dnnstack.graph.graph import Tensor
from dnnstack.training.assemble import build_network
from dnnstack.training.records.resume import open_resume
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.trainer import train

from ..support.augmented import MEASURED, OPTIONS, with_session
from ..support.stored import cases
from ..support.trainings import end_of

WHITE = (
    "layers=[conv2d: {filters: 8, kernel_size: 2, kernel_initializer: {whiten: {samples: 100, "
    "eps: 1e-3}}}, max_pool2d, flatten, dense: {units: 10}]"
)


def test_whitening_filters_decorrelate_the_patches(tiny, reference):
    def check(session: Session) -> None:
        filters = session.arrays()["conv2d_1.weight"]
        np.testing.assert_array_equal(filters[4:], -filters[:4])
        pictures = session.setup.scaling(session.setup.data.images[session.plan.train[:100]])
        # Plainly: every patch, one after the other.
        patches = [
            picture[0, y : y + 2, x : x + 2].reshape(-1)
            for picture in pictures.astype(np.float64)
            for y in range(27)
            for x in range(27)
        ]
        moments = np.mean([np.outer(patch, patch) for patch in patches], axis=0)
        rows = filters[:4].reshape(4, 4).astype(np.float64)
        through = rows @ moments @ rows.T
        values = np.linalg.eigvalsh(moments)[::-1]
        np.testing.assert_allclose(through, np.diag(values / (values + 1e-3)), atol=1e-4)

    with_session(tiny(WHITE, MEASURED), reference, check)


def test_a_device_that_has_the_pictures_adds_up_their_patches(tiny, reference, monkeypatch):
    asked = []

    def sums(
        executable: ReferenceExecutable, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array]:
        asked.append((images.name, [*rows], window))
        pictures = executable.read(images)[rows]
        view = np.lib.stride_tricks.sliding_window_view(pictures, window, (2, 3))
        patches = view.transpose(1, 4, 5, 0, 2, 3).reshape(4, -1).astype(np.int64) - 128
        return patches @ patches.T, patches.sum(1)

    def check(session: Session) -> None:
        first = session.arrays()["conv2d_1.weight"]
        monkeypatch.setattr(ReferenceExecutable, "patch_sums", sums)
        session.initialize()
        assert asked == [("train.images", [*session.plan.train[:100]], (2, 2))]
        assert session.arrays()["conv2d_1.weight"].tobytes() == first.tobytes()

    with_session(tiny(WHITE, MEASURED), reference, check)


def test_a_resume_does_not_whiten_again(tiny, reference, monkeypatch):
    options = (WHITE, "run.device=numpy")
    whole = train(tiny(*options, "name=whole", "train.max_steps=6"), reference, Path("unused"))
    first = train(tiny(*options, "name=part", "train.max_steps=3"), reference, Path("unused"))

    def never(setup: Setup, count: int) -> None:
        raise AssertionError("whitened again")

    monkeypatch.setattr(Setup, "first_pictures", never)
    source = open_resume(first.run, lambda text: None)
    longer = tiny(*options, "name=part", "train.max_steps=6")
    second = train(longer, reference, Path("unused"), resume=source)
    for name, array in end_of(whole).arrays.items():
        assert array.tobytes() == end_of(second).arrays[name].tobytes(), name


WRONG = cases(__file__, "wrong")


@pytest.mark.parametrize(("layer", "message"), WRONG)
def test_initialisers_that_do_not_fit(tiny, layer, message):
    config = tiny(f"layers=[{layer}, flatten, dense: {{units: 10}}]")
    with pytest.raises(ShapeError, match=message):
        build_network(config, describe("strokes", options=OPTIONS))
