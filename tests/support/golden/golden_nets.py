"""Small fixed nets whose weights and data follow from formulas, so that any library can have them.

``make_golden.py`` trains them elsewhere; the suite trains them here. Pure NumPy and text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS = 10
BATCH = 6
CLASSES = 5
COUNT = 24


class Net(NamedTuple):
    """Layers as (kind, options), the picture's shape, and how the net is trained."""

    layers: list[tuple[str, dict[str, Any]]]
    picture: tuple[int, int, int]
    lr: float
    label_smoothing: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    loss: str = "cross_entropy"


SMALL: list[tuple[str, dict[str, Any]]] = [
    ("flatten", {}),
    ("dense", {"units": 7}),
    ("scaled_tanh", {}),
    ("dense", {"units": CLASSES}),
]


def _conv(filters: int, stride: int = 1) -> tuple[str, dict[str, Any]]:
    return "conv2d", {"filters": filters, "kernel_size": 3, "padding": 1, "stride": stride}


NETS: dict[str, Net] = {
    "mlp": Net(
        [
            ("flatten", {}),
            ("dense", {"units": 12}),
            ("sigmoid", {}),
            ("dense", {"units": 9}),
            ("relu", {}),
            ("dense", {"units": CLASSES}),
            ("softmax", {}),
        ],
        (1, 6, 5),
        lr=0.5,
    ),
    "lenet": Net(
        [
            ("conv2d", {"filters": 4, "kernel_size": 3}),
            ("max_pool2d", {"pool_size": 2}),
            ("relu", {}),
            ("conv2d", {"filters": 6, "kernel_size": 3, "padding": 1, "stride": 2}),
            ("relu", {}),
            ("max_pool2d", {"pool_size": 2}),
            ("flatten", {}),
            ("dense", {"units": 10}),
            ("relu", {}),
            ("dense", {"units": CLASSES}),
            ("softmax", {}),
        ],
        (1, 16, 16),
        lr=0.03,
        momentum=0.9,
    ),
    "averages": Net(
        [
            ("conv2d", {"filters": 4, "kernel_size": 3, "groups": 2, "dilation": 2}),
            ("tanh", {}),
            ("avg_pool2d", {"pool_size": 3, "stride": 2, "padding": 1}),
            ("gelu", {}),
            ("conv2d", {"filters": 4, "kernel_size": 1}),
            ("elu", {"alpha": 0.8}),
            ("flatten", {}),
            ("dense", {"units": 8}),
            ("silu", {}),
            ("dense", {"units": CLASSES}),
            ("softmax", {}),
        ],
        (2, 11, 10),
        lr=0.1,
        label_smoothing=0.1,
        momentum=0.8,
        nesterov=True,
        weight_decay=0.01,
    ),
    "squares": Net(
        [
            ("conv2d", {"filters": 3, "kernel_size": 2}),
            ("softplus", {}),
            ("global_avg_pool2d", {}),
            ("dense", {"units": CLASSES}),
            ("leaky_relu", {"negative_slope": 0.2}),
        ],
        (2, 5, 4),
        lr=0.3,
        weight_decay=0.05,
        momentum=0.5,
        loss="mse",
    ),
    "normalised": Net(
        [
            ("conv2d", {"filters": 6, "kernel_size": 3, "use_bias": False}),
            ("batch_norm", {"eps": 0.01}),
            ("relu", {}),
            ("max_pool2d", {"pool_size": 3, "stride": 2, "ceil_mode": True}),
            ("lrn", {"size": 3, "alpha": 2.0, "beta": 0.5, "k": 0.75}),
            ("conv2d", {"filters": 8, "kernel_size": 2}),
            ("tanh", {}),
            ("flatten", {}),
            ("dense", {"units": 10, "use_bias": False}),
            ("batch_norm", {"eps": 0.1}),
            ("relu", {}),
            ("dense", {"units": CLASSES}),
        ],
        (2, 12, 10),
        lr=0.1,
        momentum=0.9,
        weight_decay=0.01,
    ),
    "classic": Net(
        [
            ("pad2d", {"padding": 1, "value": -0.1}),
            ("conv2d", {"filters": 3, "kernel_size": 3, "connections": [[0], [1], [0, 1]]}),
            ("scaled_tanh", {}),
            ("scaled_subsampling", {}),
            ("conv2d", {"filters": 4, "kernel_size": 2, "stride": 2, "algorithm": "im2col"}),
            ("scaled_tanh", {}),
            ("flatten", {}),
            ("dense", {"units": CLASSES}),
        ],
        (2, 11, 10),
        lr=0.05,
        momentum=0.9,
        weight_decay=0.01,
        loss="rbf_map",
    ),
    "composed": Net(
        [
            ("conv2d", {"filters": 3, "kernel_size": 3, "padding": 1}),
            ("residual", {"body": [_conv(3), ("relu", {}), _conv(3)]}),
            ("relu", {}),
            ("residual", {"body": [_conv(5, 2), ("tanh", {})], "shortcut": "padding"}),
            ("relu", {}),
            ("residual", {"body": [_conv(4, 2)], "shortcut": "projection"}),
            (
                "concat",
                {
                    "branches": [
                        [_conv(2), ("relu", {})],
                        [("residual", {"body": [_conv(6)], "shortcut": [_conv(6)]})],
                        [],
                    ]
                },
            ),
            ("flatten", {}),
            ("dense", {"units": CLASSES}),
        ],
        (2, 9, 7),
        lr=0.004,
        momentum=0.9,
        weight_decay=0.01,
    ),
    "margins": Net(SMALL, (1, 4, 3), lr=0.2, loss="hinge"),
    "probabilities": Net(SMALL, (1, 4, 3), lr=0.5, loss="one_minus_p"),
    "distances": Net(SMALL, (1, 4, 3), lr=0.05, loss="squared_distance"),
}


def weights(shape: tuple[int, ...], place: int) -> NDArray[np.float32]:
    """Values between -0.5 and 0.5 with no pattern to speak of, by integers alone."""
    index = np.arange(np.prod(shape), dtype=np.int64) + 1000 * place
    return ((index * index * 31 + index * 17) % 1009 / 1009 - 0.5).astype(np.float32).reshape(shape)


def images(picture: tuple[int, int, int]) -> NDArray[np.uint8]:
    index = np.arange(COUNT * np.prod(picture), dtype=np.int64)
    pixels = (index * index * 7 + index * 113 + index // 61) % 251
    return pixels.astype(np.uint8).reshape(COUNT, *picture)


def labels() -> NDArray[np.int32]:
    index = np.arange(COUNT)
    return ((index * index + index // 3) % CLASSES).astype(np.int32)


def order() -> NDArray[np.int32]:
    """Which samples each step takes: STEPS * BATCH entries."""
    return (np.arange(STEPS * BATCH) * 7 % COUNT).astype(np.int32)


# x = pixel * SCALE + SHIFT; both are exact in binary, so that no library rounds them.
SCALE = 1 / 128
SHIFT = -1.0
