from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from dnnstack.common import random
from dnnstack.common.errors import ConfigError
from dnnstack.layers.initializers import NAMES, Initializer

KEY = random.key(1, "test")
SHAPE, FAN_IN, FAN_OUT = (400, 300), 300, 100
# variance by the papers' formulas
SCALED = {"glorot": 2 / (FAN_IN + FAN_OUT), "he": 2 / FAN_IN, "lecun": 1 / FAN_IN}


@pytest.mark.parametrize("law", ["uniform", "normal"])
@pytest.mark.parametrize("family", SCALED)
def test_scaled_by_fans(family: str, law: str) -> None:
    drawn = Initializer(f"{family}_{law}").draw(SHAPE, FAN_IN, FAN_OUT, KEY)
    spread = sqrt(SCALED[family])
    assert drawn.dtype == np.float32
    assert drawn.std() == pytest.approx(spread, rel=0.02)
    assert abs(drawn.mean()) < 0.02 * spread
    limit = np.abs(drawn).max()
    if law == "uniform":
        assert 0.99 * sqrt(3) * spread < limit <= sqrt(3) * spread * (1 + 1e-6)
    else:
        assert limit > 3.5 * spread


@pytest.mark.parametrize(("name", "value"), [("zeros", 0.0), ("ones", 1.0), ("constant", 0.3)])
def test_constants(name: str, value: float) -> None:
    drawn = Initializer(name, 0.3).draw((2, 3), 1, 1, KEY)
    np.testing.assert_array_equal(drawn, np.full((2, 3), value, np.float32))


def test_value_is_the_limit_or_the_deviation() -> None:
    uniform = Initializer("uniform", 0.25).draw(SHAPE, 1, 1, KEY)
    assert 0.2499 < np.abs(uniform).max() <= 0.25
    normal = Initializer("normal", 0.25).draw(SHAPE, 1, 1, KEY)
    assert normal.std() == pytest.approx(0.25, rel=0.02)
    truncated = Initializer("truncated_normal", 0.25).draw(SHAPE, 1, 1, KEY)
    assert 0.49 < np.abs(truncated).max() <= 0.5
    # The deviation of a normal cut at two deviations is 0.8796 of it.
    assert truncated.std() == pytest.approx(0.25 * 0.8796, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_the_key_alone_decides(name: str) -> None:
    initializer = Initializer(name, 0.1)
    first, again = (initializer.draw((5, 6), 6, 5, KEY) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = initializer.draw((5, 6), 6, 5, random.key(2, "test"))
    constant = name in ("zeros", "ones", "constant")
    assert np.array_equal(first, other) == constant


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="unknown initializer 'xavier'; one of: zeros, "):
        Initializer("xavier")
