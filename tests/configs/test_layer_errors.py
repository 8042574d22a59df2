"""The same for mistakes in the list of layers."""

from __future__ import annotations

import pytest
from dnnstack.configs.schema.layers import Layer
from dnnstack.configs.schema.shape import kinds, models_in

from ..support.config_errors import message, with_line
from ..support.stored import stored

_KINDS = [kind for model in models_in(Layer) for kind in kinds(model)]
ALL_LAYERS = ", ".join(_KINDS[:-1]) + f" or {_KINDS[-1]}"


@pytest.mark.parametrize(("line", "expected"), stored(__file__, "layer_errors.txt"))
def test_message(line, expected):
    assert message(with_line(line)) == expected
