"""What a training by several ranks says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from dnnstack.cli.ranks import described
from dnnstack.configs import parse_config

from ..support.stored import cases
from ..support.training_fixtures import TINY


@pytest.mark.parametrize(
    ("hosts", "parallel", "said"), cases(__file__, "ranks_are_told_with_what_they_do")
)
def test_ranks_are_told_with_what_they_do(hosts: str, parallel: str, said: str) -> None:
    config = parse_config(TINY, "tiny.yaml", [f"parallel={parallel}"] if parallel else [])
    team = cast(Any, SimpleNamespace(hosts=[*hosts], size=len(hosts)))
    assert described(team, config) == f"ranks       {said}"
