from __future__ import annotations

from collections.abc import Callable

import pytest
from dnnstack.configs import RunConfig

from ...support.training_fixtures import *  # noqa: F403


@pytest.fixture
def tiny(tiny: Callable[..., RunConfig]) -> Callable[..., RunConfig]:
    """The same without a search: on a device that other tests keep busy it may be made again, with
    other choices and so with other bits.
    """
    return lambda *overrides: tiny("run.tune=false", *overrides)
