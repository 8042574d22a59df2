"""Sums over patches by the kernel, run on the processor: those of the host. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
import os
import random

import numpy as np
import pytest
from dnnstack.backends.cuda.operations import whiten
from dnnstack.backends.cuda.operations.whiten import BLOCKS, LARGEST, patch_sums
from dnnstack.layers.whitening import Whiten, host_sums
from dnnstack.training.preprocessing import Prepared, Preprocessing

from ....support import emulated_build
from ....support.emulated_build import COMPILER

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "5"))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return emulated_build.library("whiten", tmp_path_factory.mktemp("whiten"), {"BFLOAT": 0})


@pytest.fixture
def emulated(bound, library, fake_cuda, monkeypatch):
    """Kernels of whiten.cu compute, in a grid of few blocks; gives the launches."""
    launches, plain = [], fake_cuda.Module

    class Module(plain):
        def function(self, name):
            found = super().function(name)
            return Function(found) if name == "patch_sums" else found

    class Function:
        ptr = 0

        def __init__(self, plain):
            self.check = plain.check

        def launch(self, stream, grid, block, arguments, shared):
            launches.append((grid, shared, arguments[-2]))
            sizes = (ctypes.c_int * 2)(*grid)
            given = [
                ctypes.c_void_p(a.ctypes.data) if np.ndim(a) else ctypes.c_int(int(a))
                for a in arguments
            ]
            return lambda: library.run(sizes, block[0], shared, *given)

    fake_cuda.Module = Module
    # An emulated block costs about as much as a real grid.
    monkeypatch.setattr(whiten, "BLOCKS", 5)
    return launches


def prepared(images, rows, **more):
    rows = np.array(rows, np.int32)
    return Prepared(images, rows, Preprocessing((0.02,) * 3, (-2.5,) * 3), **more)


def check(fake_cuda, images, rows, window):
    found = patch_sums(fake_cuda.asarray(images), rows, window, fake_cuda.Stream())
    wanted = host_sums(prepared(images, rows), *window, threads=1)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == np.int64
        np.testing.assert_array_equal(mine, theirs)


def draw(seed):
    """Pictures of any size, often with the numbers whose products are the largest."""
    dice, rng = random.Random(seed), np.random.default_rng(seed)
    channels, window = dice.randint(1, 4), (dice.randint(1, 4), dice.randint(1, 4))
    sides = [side + dice.choice([0, 1, dice.randint(2, 40)]) for side in window]
    shape = (dice.randint(1, 12), channels, *sides)
    images = rng.integers(0, 256, shape, np.uint8)
    images[rng.random(shape) < dice.choice([0.0, 0.5, 1.0])] = dice.choice([0, 255])
    return images, rng.integers(0, len(images), dice.randint(1, 15)).astype(np.int32), window


@needs_compiler
@pytest.mark.parametrize("seed", range(4 * COUNT))
def test_any_pictures(emulated, fake_cuda, seed):
    check(fake_cuda, *draw(seed))


@needs_compiler
def test_patches_for_many_blocks(emulated, fake_cuda):
    """Entries in several columns of blocks, the last of which shares out its rows again."""
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 9, 11), np.uint8)
    check(fake_cuda, images, [2, 0], (4, 3))
    (grid, _, _), *_ = emulated
    assert grid == (2, 2)


@needs_compiler
def test_pictures_in_several_bands(emulated, fake_cuda, monkeypatch):
    """Of the largest products too, as many as memory holds."""
    black = np.zeros((1, 1, 200, 700), np.uint8)
    check(fake_cuda, black, [0, 0], (1, 1))
    monkeypatch.setattr(whiten, "UNASKED", 4 << 10)
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 30, 37), np.uint8)
    check(fake_cuda, images, [1, 0, 1], (3, 2))
    (_, first, wide), (_, second, narrow) = emulated
    assert (wide, narrow) == (70, 16)
    assert (first, second) == (4 * (70 * 175 + 1), 4 * 6 * (18 * 9 + 1))


@needs_compiler
def test_sums_of_more_than_32_bits(emulated, fake_cuda, monkeypatch):
    """One block adds up all products of black pictures."""
    monkeypatch.setattr(whiten, "BLOCKS", 1)
    check(fake_cuda, np.zeros((1, 3, 350, 350), np.uint8), [0, 0, 0], (2, 2))


def test_what_the_host_does(fake_cuda):
    """Patches that are too large, pictures so wide that no row fits; nothing is launched."""
    stream = fake_cuda.Stream()
    for shape, window in [((1, 1, 40, 40), (16, 17)), ((1, 3, 4, 9000), (2, 2))]:
        images = np.zeros(shape, np.uint8)
        assert patch_sums(fake_cuda.asarray(images), [0], window, stream) is None
    assert LARGEST == 16 * 16
    assert BLOCKS > 5


@needs_compiler
@pytest.mark.parametrize("streamed", [False, True])
def test_filters_have_the_bits_of_the_host(emulated, bound, sections, streamed):
    """Where pictures do not lie on the device, by the host."""
    graphs = sections("cifar")
    executable, _ = bound(graphs, streamed=streamed)
    images = np.random.default_rng(2).integers(0, 256, (70, 3, 32, 32), np.uint8)
    executable.write(graphs["train"]["images"], images)
    rows = np.array([3, 69, 4, 4, 17], np.int32)

    def summed(window):
        return executable.patch_sums(graphs["train"]["images"], rows, window)

    shape = (24, 3, 2, 2)
    found = Whiten().from_pictures(shape, prepared(images, rows, summed=summed))
    wanted = Whiten().from_pictures(shape, prepared(images, rows))
    assert found.tobytes() == wanted.tobytes()
    assert len(emulated) == (not streamed)
