from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.configs import RunConfig, parse_config

from ..support.training_fixtures import *  # noqa: F403
from ..support.training_fixtures import TINY


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConfig]:
    """The same without a search: on a device that other tests keep busy it may be made again, with
    other choices and so with other bits.
    """
    untuned = (f"run.dir={tmp_path / 'runs'}", "run.tune=false")
    return lambda *overrides: parse_config(TINY, "tiny.yaml", [*untuned, *overrides])
