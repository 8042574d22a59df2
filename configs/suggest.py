"""Suggestions for misspelt words, including the words of other tools."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from .document import Node

_ELSEWHERE = {
    "lr": "learning_rate base_lr",
    "units": "num_output out_features",
    "filters": "out_channels num_output",
    "dense": "linear fully_connected inner_product",
    "conv2d": "convolution",
    "use_bias": "bias",
    "dilation": "dilation_rate",
    "padding": "pad",
    "silu": "swish",
    "cuda": "gpu",
    "cpu": "onednn",
    "numpy": "reference",
    "fp32": "float32",
    "bf16": "bfloat16",
    "clip_norm": "clipnorm max_grad_norm",
    "type": "lr_policy",
    "max_steps": "max_iter steps",
    "reduce_on_plateau": "plateau reduce_lr_on_plateau reducelronplateau",
    "step_size": "stepsize",
    "milestones": "stepvalue",
    "fixed": "constant",
    "exp": "exponential",
    "poly": "polynomial linear_decay",
    "one_cycle": "onecycle",
    "mse": "mean_squared_error",
    "strokes": "digits",
    "glorot_uniform": "xavier",
    "he_normal": "kaiming_normal",
    "he_uniform": "kaiming_uniform",
    "normal": "gaussian",
    "kernel_initializer": "weight_filler",
    "validation": "val_split validation_split",
}
"""Our words, and those of Keras, PyTorch and Caffe for the same."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be."""
    known = list(known)
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    ours = (own for own, words in _ELSEWHERE.items() if plain in words.split())
    for choice in (plain, *ours):
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


def expected(known: Iterable[str], word: str, got: str) -> str:
    """``expected a, b or c (got 'd'; did you mean 'b'?)``; ``got``: how ``word`` is shown."""
    known = list(known)
    near = did_you_mean(word, known)
    return f"expected {listed(known)} (got {got}{f'; {near}' if near else ''})"


def listed(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def meant_value(kind: str, node: Node) -> str:
    """What the writer may have meant by text if a number or a truth value is expected."""
    if kind == "string_type" and node.text:
        return f'; as text: "{node.text}"'
    if kind == "model_type" and node.value is None and not node.place.rank:
        return "; indent its keys below it, or remove it"
    if not isinstance(node.value, str):
        return ""
    if kind == "bool_type" and node.text.lower() in ("yes", "on", "y"):
        return "; write true"
    if kind == "bool_type" and node.text.lower() in ("no", "off", "n"):
        return "; write false"
    number = node.text.replace("_", "").replace(",", "." if kind == "float_type" else "")
    if kind in ("int_type", "float_type") and re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+", number):
        return f"; write {number}"
    return ""
