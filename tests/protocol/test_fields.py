"""Mirrors `engine/protocol/fields.py`; what the fields take is tested with the params."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParams
from engine.protocol.fields import to_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01.25Z", 1250),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_time_is_milliseconds_since_1970(text: str, ms: int) -> None:
    assert to_ms("$.since", text) == ms


@pytest.mark.parametrize("text", ["2024-02-30T00:00:00Z", "2024-01-01T25:00:00Z"])
def test_a_time_that_there_is_not_is_an_error_with_its_path(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"\$\.since: expected time that there is"):
        to_ms("$.since", text)
