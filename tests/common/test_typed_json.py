"""JSON that anybody may have written, read into types."""

from __future__ import annotations

import json

import pytest
from dnnstack.common.typed_json import from_json


def test_a_reason_is_short():
    """It names the key that is wrong, which may be as long as the file."""
    with pytest.raises(ValueError, match="xxx") as caught:
        from_json(json.dumps({"x" * 1_000_000: "text"}), dict[str, int])
    assert len(str(caught.value)) <= 200


def test_a_reason_names_the_place():
    with pytest.raises(ValueError, match=r"b: Input should be"):
        from_json('{"a": 1, "b": "1"}', dict[str, int])
    assert from_json('{"a": 1}', dict[str, int]) == {"a": 1}
