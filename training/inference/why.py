"""Why a network answers with a class: how much the parts of a picture speak for it."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from ...backends.base import Backend
from ...common.errors import UsageError
from .inspect import Array, compiled, score_gradients
from .trained import Trained

_BATCH = 32


def last_maps(trained: Trained) -> str | None:
    """The layer whose maps Grad-CAM weighs: the last of the last convolution's size, or None.

    So its activation and a sum with a shortcut count, and a pooling after them does not.
    """
    found, size = None, (1, 1)
    kinds = {layer.name: layer.kind for layer in trained.network.every_layer()}
    for name, tensor in trained.network.infer_graph(1).outputs.items():
        here = tensor.shape[2:]
        if len(here) == 2 and here != (1, 1) and (kinds[name] == "conv2d" or here == size):
            found, size = name, here
    return None if trained.checkpoint.quantization else found


def heat(trained: Trained, backend: Backend, method: str, picture: Array, chosen: int) -> Array:
    """How much a picture's (C, H, W) pixels, or places of a map, speak for a class: (h, w)."""
    if method == "occlusion":
        return occlusion(trained, backend, picture, chosen)
    x, layer = trained.checkpoint.provenance.preprocessing(picture[None]), last_maps(trained)
    if method == "grad-cam" and layer is None:
        told = "has no conv2d with maps larger than 1x1, or no gradients"
        raise UsageError(f"{trained.path}: {told}; the method occlusion needs neither")
    outputs, slopes, dx = score_gradients(trained, backend, x, np.array([chosen]))
    if method == "gradient" or layer is None:
        return np.asarray((dx * x).sum((0, 1), dtype=np.float64).clip(0.0))
    return grad_cam(outputs[layer][0], slopes[layer][0])


def grad_cam(maps: Array, slopes: Array) -> Array:
    """max(0, sum over k of mean(slopes[k]) maps[k]): (h, w) (Selvaraju et al. 2017)."""
    weights = slopes.mean((1, 2), dtype=np.float64)
    return np.asarray(np.tensordot(weights, maps.astype(np.float64), 1).clip(0.0))


def occlusion(trained: Trained, backend: Backend, picture: Array, chosen: int) -> Array:
    """How far the class's score falls where squares are covered, the mean of those on a pixel.

    A square is a fifth of the shorter side, of the picture's median colour, and moves by a third
    of its side (Zeiler and Fergus 2014).
    """
    sides, scaling = picture.shape[1:], trained.checkpoint.provenance.preprocessing
    side = max(1, round(min(sides) / 5))
    starts = [sorted({*range(0, n - side, max(1, side // 3)), n - side}) for n in sides]
    corners = [(top, left) for top in starts[0] for left in starts[1]]
    places = [np.s_[:, top : top + side, left : left + side] for top, left in corners]
    covered = np.stack([picture] * (1 + len(places)))
    for one, place in zip(covered[1:], places, strict=True):
        one[place] = np.median(picture, (1, 2))[:, None, None]
    batches = np.split(covered, range(_BATCH, len(covered), _BATCH))
    graph, executable = compiled(trained, backend, _BATCH, slopes=False)
    with closing(executable):
        run = executable.function(graph.name, graph["x"], graph["scores"])
        full = (np.resize(batch, (_BATCH, *picture.shape)) for batch in batches)
        scores = np.concatenate([run(scaling(batch))[:, chosen] for batch in full])
    total, count = np.zeros((2, 1, *sides))
    for place, score in zip(places, scores[1:], strict=False):
        total[place] += float(scores[0]) - float(score)
        count[place] += 1
    return np.asarray((total / count)[0])
