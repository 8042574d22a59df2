"""Pictures that are made for a class: one that fools a network, and one from noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from ...backends.base import Backend
from ...common import random
from ...common.errors import UsageError
from .inspect import Array, compiled
from .trained import Trained

_STEPS = 200


def fooled(trained: Trained, backend: Backend, picture: Array, chosen: int) -> Array:
    """A picture of bytes near this one, (C, H, W), that is taken for the class ``chosen``.

    Each step would suffice for a linear network, and goes along the gradient of the difference
    of two scores (Moosavi-Dezfooli et al. 2016). Raises UsageError if that leads nowhere.
    """
    pixels, one = picture.astype(np.float64), np.eye(len(trained.classes), dtype=np.float32)
    with _gradients(trained, backend) as gradient:
        for _ in range(_STEPS):
            seen = np.rint(pixels).astype(np.uint8)
            scores, _ = gradient(seen, one[chosen])
            best = int(scores.argmax())
            if best == chosen:
                return seen
            _, slope = gradient(seen, one[chosen] - one[best])
            far = 1.02 * float(scores[best] - scores[chosen]) + 1e-3
            pixels += far * slope / max(float((slope**2).sum()), 1e-30)
            pixels = pixels.clip(0.0, 255.0)
    told = f"no small steps lead from here to '{trained.classes[chosen]}'; choose another class"
    raise UsageError(f"{trained.path}: {told}")


def class_picture(trained: Trained, backend: Backend, chosen: int, seed: int) -> Array:
    """A picture of bytes (C, H, W) with a high score of the class, by ascent from noise.

    Each of 200 steps moves it by 6 grey levels (root of the mean square) after a random shift, and
    draws it back to grey by 2%; every tenth blurs it (Simonyan et al. 2014).
    """
    key = random.key(seed, "class picture", str(chosen))
    pixels: Any = 127.5 + 10.0 * random.normal(key, 0, trained.input_shape)
    one = np.eye(len(trained.classes), dtype=np.float32)[chosen]
    shifts = (random.integers(key, 1, (_STEPS, 2), 5) - 2).tolist()
    with _gradients(trained, backend) as gradient:
        for step, (down, across) in enumerate(shifts, 1):
            _, slope = gradient(np.roll(pixels, (down, across), (1, 2)), one)
            slope = np.roll(slope, (-down, -across), (1, 2))
            pixels += 6.0 * slope / max(float(np.sqrt((slope**2).mean())), 1e-30)
            pixels -= 0.02 * (pixels - 127.5)
            for axis in (1, 2) if step % 10 == 0 else ():
                pixels = (np.roll(pixels, 1, axis) + 2 * pixels + np.roll(pixels, -1, axis)) / 4
            pixels = pixels.clip(0.0, 255.0)
    return np.asarray(np.rint(pixels), np.uint8)


@contextmanager
def _gradients(
    trained: Trained, backend: Backend
) -> Iterator[Callable[[Array, Array], tuple[Array, Array]]]:
    """What makes of pixels (C, H, W) and slope (K,) the scores (K,) and d(slope scores)/dpixels."""
    scaling = trained.checkpoint.provenance.preprocessing
    scale = np.array(scaling.scale)[:, None, None]
    graph, executable = compiled(trained, backend, 1, slopes=True)
    with closing(executable):

        def of(pixels: Array, slope: Array) -> tuple[Array, Array]:
            executable.write(graph["slope"], slope[None])
            dx = executable.function(graph.name, graph["x"], graph["dx"])(scaling(pixels[None]))
            return executable.read(graph["scores"])[0], dx.reshape(pixels.shape) * scale

        yield of
