from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.common import random
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.layers import initializers
from dnnstack.layers.initializers import NAMES, Initializer
from dnnstack.layers.whitening import Dirac, Whiten, _moments, host_sums
from dnnstack.training.preprocessing import Prepared, Preprocessing

from ..support.frozen import changed

KEY = random.key(1, "test")


def test_draws_are_what_they_were():
    shapes = ((7, 4, 3, 3), (4, 4, 2, 4), (3, 5, 1, 1), (5, 3))
    drawn = {name: Initializer(name, 0.25).draw((40, 3, 2, 2), 12, 160, KEY) for name in NAMES}
    # The first filters of an identity copy channels, the others are those of its base.
    base = Initializer("normal", 0.3)
    drawn |= {f"dirac {shape}": Dirac(base=base).draw(shape, 9, 1, KEY) for shape in shapes}
    assert {values.dtype.name for values in drawn.values()} == {"float32"}
    found = {name: {"drawn": values} for name, values in drawn.items()}
    assert changed(__file__, found, rtol=1e-7) == []


def test_what_was_drawn_is_kept_and_nobody_else_s(monkeypatch):
    """A change of what one got changes nothing for the next; what is old makes room."""
    made: list[random.Key] = []
    uniform = random.uniform

    def noted(key: random.Key, *given: Any) -> Any:
        made.append(key)
        return uniform(key, *given)

    monkeypatch.setattr(random, "uniform", noted)
    monkeypatch.setattr(initializers, "_KEPT", initializers._LastDrawn())
    monkeypatch.setattr(initializers, "MOST_KEPT", 2 * 4 * 30)
    keys = [random.key(seed, "kept") for seed in range(3)]

    def draw(key: random.Key, value: float = 0.5, shape: tuple[int, ...] = (5, 6)) -> Any:
        return Initializer("uniform", value).draw(shape, 1, 1, key)

    first = draw(keys[0])
    wanted = first.copy()
    first += 1
    np.testing.assert_array_equal(draw(keys[0]), wanted)
    assert made == [keys[0]]
    for given in ((keys[0], 0.25), (keys[0], 0.5, (6, 5))):
        assert not np.array_equal(draw(*given).ravel(), wanted.ravel()) or given[-1] == (6, 5)
    assert len(made) == 3
    # Of 30 numbers there is room for two; the one that was used last stays.
    del made[:]
    draw(keys[1]), draw(keys[2]), draw(keys[1])
    assert made == [keys[1], keys[2]]
    draw(keys[0])
    draw(keys[1])
    draw(keys[2])
    assert made == [keys[1], keys[2], keys[0], keys[2]]
    draw(keys[0], shape=(31, 2))
    draw(keys[0], shape=(31, 2))
    assert made[4:] == [keys[0], keys[0]]


@pytest.mark.parametrize("name", NAMES)
def test_the_key_alone_decides(name):
    initializer = Initializer(name, 0.1)
    first, again = (initializer.draw((5, 6), 6, 5, KEY) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = initializer.draw((5, 6), 6, 5, random.key(2, "test"))
    constant = name in ("zeros", "ones", "constant")
    assert np.array_equal(first, other) == constant


def test_unknown_name():
    with pytest.raises(ConfigError, match="unknown initializer 'xavier'; one of: zeros, "):
        Initializer("xavier")


def pictures_of(pixels: np.ndarray, scale: float = 1 / 64, shift: float = -2.0) -> Prepared:
    channels = pixels.shape[1]
    scaling = Preprocessing((scale,) * channels, (shift,) * channels)
    return Prepared(pixels, np.arange(len(pixels), dtype=np.int32), scaling)


@pytest.mark.parametrize("shape", [(30, 2, 5, 6), (19, 1, 40, 1100), (3, 3, 64, 9)])
@pytest.mark.parametrize("kernel", [(2, 3), (1, 1), (3, 2)])
def test_whitening_sums_are_exact(shape, kernel):
    """Also of pictures that are black or white everywhere, whose sums are the largest."""
    drawn = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    for pixels in (drawn, np.zeros_like(drawn), np.full_like(drawn, 255)):
        products, sums = host_sums(pictures_of(pixels), *kernel, threads=2)
        view = np.lib.stride_tricks.sliding_window_view(pixels, kernel, (2, 3))
        rows = view.transpose(1, 4, 5, 0, 2, 3).reshape(len(products), -1).astype(np.int64) - 128
        np.testing.assert_array_equal(products, rows @ rows.T)
        np.testing.assert_array_equal(sums, rows.sum(1))


def test_whitening_moments_are_those_of_normalised_patches():
    pixels = np.random.default_rng(4).integers(0, 256, (30, 2, 5, 6), np.uint8)
    scaling = Preprocessing((0.02, 0.01), (-2.5, -0.3))
    pictures = Prepared(pixels, np.arange(30, dtype=np.int32)[::-1], scaling)
    values = pictures[0:30].astype(np.float64)
    view = np.lib.stride_tricks.sliding_window_view(values, (2, 3), (2, 3))
    rows = view.transpose(1, 4, 5, 0, 2, 3).reshape(12, -1)
    found = _moments(pictures, (24, 2, 2, 3), 1)
    np.testing.assert_allclose(found, rows @ rows.T / rows.shape[1], rtol=1e-6, atol=1e-7)
    filters = Whiten().from_pictures((24, 2, 2, 3), pictures)
    np.testing.assert_array_equal(filters[12:], -filters[:12])


def test_whitening_has_the_same_bits_with_any_threads(monkeypatch):
    """More threads than chunks too, and however pictures are cut."""
    pixels = np.random.default_rng(3).integers(0, 256, (205, 3, 32, 32), np.uint8)
    pictures = pictures_of(pixels)
    one, *others = (_moments(pictures, (24, 3, 2, 2), count) for count in (1, 4, 4, 64))
    monkeypatch.setattr("dnnstack.layers.whitening._CHUNK", 7)
    for other in (*others, _moments(pictures, (24, 3, 2, 2), 3)):
        assert other.tobytes() == one.tobytes()


def test_whitening_needs_pictures():
    with pytest.raises(ShapeError, match="whiten needs the training pictures, so it can only"):
        Whiten().draw((8, 1, 2, 2), 4, 32, KEY)


@pytest.mark.parametrize(
    ("values", "shape", "found"),
    [
        (((1, 2), (3, 4)), (3, 2, 2, 2), lambda at: 1 + 2 * at[2] + at[3]),
        ((((1,),), ((2,),)), (2, 3, 1, 1), lambda at: 1 + at[0]),
        ((((1, 2),), ((3, 4),)), (2, 1, 2), lambda at: 1 + 2 * at[0] + at[2]),
        ((5, 6), (3, 2), lambda at: 5 + at[1]),
    ],
)
def test_given_values(values: Any, shape: tuple[int, ...], found: Any) -> None:
    """One filter, one for each filter, an array as it is, and a row for every unit."""
    given = Initializer("constant", values)
    given.check(shape)
    drawn = given.draw(shape, 1, 1, KEY)
    np.testing.assert_array_equal(drawn, np.fromfunction(lambda *at: found(at), shape))
    drawn += 1
    assert not np.array_equal(given.draw(shape, 1, 1, KEY), drawn)


@pytest.mark.parametrize("values", [((1, 2), (3,)), (((1, 2),),) * 3, (1, 2, 3)])
def test_values_that_do_not_fit(values: Any) -> None:
    with pytest.raises(ShapeError, match=r"do not fill \(2, 1, 2, 2\)"):
        Initializer("constant", values).check((2, 1, 2, 2))
