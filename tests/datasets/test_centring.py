from __future__ import annotations

import numpy as np
from dnnstack.datasets.centring import centre_by_mass
from hypothesis import given
from hypothesis import strategies as st


@given(row=st.integers(0, 19), column=st.integers(0, 19))
def test_a_single_pixel_goes_to_the_centre_as_far_as_the_box_may_move(row, column):
    box = np.zeros((1, 20, 20), np.uint8)
    box[0, row, column] = 200
    field = centre_by_mass(box)[0]
    assert field.shape == (28, 28)
    where = np.argwhere(field)
    assert where.tolist() == [
        [row + min(max(14 - row, 0), 8), column + min(max(14 - column, 0), 8)]
    ]
    assert field.max() == 200
