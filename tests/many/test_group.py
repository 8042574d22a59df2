"""Groups of runs, found by name or path."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.many import group


@pytest.mark.parametrize(("name", "there"), [("", True), ("", False), ("other", False)])
def test_what_is_no_group_is_refused(tmp_path, monkeypatch, name, there):
    """An empty name stands for no folder, not even for this one."""
    monkeypatch.setattr(group, "group_at", lambda *_: tmp_path if there else None)
    with pytest.raises(CheckpointError, match=f"{name or 'an empty name'}: no such group of runs"):
        group.find_group(name, tmp_path)


def test_a_group_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "group_at", lambda *_: tmp_path)
    assert group.find_group("a", tmp_path) == tmp_path
