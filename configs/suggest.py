"""Suggestions for misspelt words, including the words of other tools."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ELSEWHERE = {
    "learning_rate": ("lr",),
    "base_lr": ("lr",),
    "out_channels": ("filters",),
    "num_output": ("units", "filters"),
    "out_features": ("units",),
    "linear": ("dense",),
    "fully_connected": ("dense",),
    "inner_product": ("dense",),
    "convolution": ("conv2d",),
    "bias": ("use_bias",),
    "dilation_rate": ("dilation",),
    "pad": ("padding",),
    "swish": ("silu",),
    "gpu": ("cuda",),
    "onednn": ("cpu",),
    "reference": ("numpy",),
    "float32": ("fp32",),
    "bfloat16": ("bf16",),
    "clipnorm": ("clip_norm",),
    "max_grad_norm": ("clip_norm",),
    "lr_policy": ("type",),
    "max_iter": ("max_steps",),
    "steps": ("max_steps",),
    "stepsize": ("step_size",),
    "stepvalue": ("milestones",),
    "constant": ("fixed",),
    "exponential": ("exp",),
    "polynomial": ("poly",),
    "linear_decay": ("poly",),
    "onecycle": ("one_cycle",),
    "mean_squared_error": ("mse",),
    "digits": ("strokes",),
    "xavier": ("glorot_uniform",),
    "kaiming_normal": ("he_normal",),
    "kaiming_uniform": ("he_uniform",),
    "gaussian": ("normal",),
    "weight_filler": ("kernel_initializer",),
    "val_split": ("validation",),
    "validation_split": ("validation",),
}
"""Words of Keras, PyTorch and Caffe that have another name here."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be."""
    known = list(known)
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    for choice in (plain, *_ELSEWHERE.get(plain, ())):
        if choice in known:
            return choice
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    for other in known:
        if plain and (other.startswith(f"{plain}_") or sorted(other) == sorted(plain)):
            return other
    return None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean 'stride'?``, or ``otherwise`` if no word is similar."""
    found = nearest(word, known)
    return f"did you mean '{found}'?" if found else otherwise


def listed(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
