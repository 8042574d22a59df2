"""What a training by several ranks says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from dnnstack.cli.ranks import described
from dnnstack.configs import parse_config

from ..support.training_fixtures import TINY


@pytest.mark.parametrize(
    ("hosts", "parallel", "said"),
    [
        ("aa", "", "2 on this machine"),
        ("ab", "{mode: sync}", "2 on 2 machines"),
        ("aab", "{mode: async, servers: 1}", "3 on 2 machines, 1 server and 2 workers"),
        ("aaa", "{mode: async, servers: 2}", "3 on this machine, 2 servers and 1 worker"),
    ],
)
def test_ranks_are_told_with_what_they_do(hosts: str, parallel: str, said: str) -> None:
    config = parse_config(TINY, "tiny.yaml", [f"parallel={parallel}"] if parallel else [])
    team = cast(Any, SimpleNamespace(hosts=[*hosts], size=len(hosts)))
    assert described(team, config) == f"ranks       {said}"
