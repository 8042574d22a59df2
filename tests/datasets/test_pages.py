"""What is read of pages of many kinds is what was drawn, and what was read before."""

from __future__ import annotations

import numpy as np
import pytest

from .pages import drawn, found, likeness, stored


@pytest.mark.parametrize(("number", "before"), list(enumerate(stored())))
def test_a_page_is_read_as_before(number, before):
    """As far as other processors and versions may round it: 6 of 255 levels."""
    said, digit = found(number)
    assert said == before[0], "if this is meant: python -m tests.datasets.pages"
    np.testing.assert_allclose(digit, 16 * before[1] + 7.5, rtol=0, atol=7.5 + 6)
    assert not digit.any() or likeness(digit, drawn(number)) > 0.75
