"""Mirrors `engine/cli/units.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from engine.cli import units

NOW = datetime(2026, 11, 30, 12, 4, 31, 208_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (2, "2ms"),
        (400, "0.4s"),
        (3_049, "3s"),
        (9_990, "9.9s"),
        (14_020, "14s"),
        (131_000, "2m11s"),
        (600_000, "10m00s"),
        (3 * 3_600_000 + 4 * 60_000, "3h04m"),
        (2 * 86_400_000 + 5 * 3_600_000, "2d05h"),
    ],
)
def test_a_duration_has_two_units_at_most(milliseconds: int, text: str) -> None:
    assert units.duration(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(21_449, "21.4s"), (5_000, "5.0s"), (59_999, "59.9s"), (60_000, "1m00s"), (40, "40ms")],
)
def test_what_is_of_interest_to_the_tenth_has_it_under_a_minute(
    milliseconds: int, text: str
) -> None:
    assert units.tenths(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0s"), (12_000, "12s"), (300_999, "5m"), (3 * 3_600_000, "3h"), (200_000_000, "2d")],
)
def test_an_age_has_one_unit(milliseconds: int, text: str) -> None:
    assert units.age(milliseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (812, "812 B"),
        (1024, "1 KiB"),
        (18_637, "18.2 KiB"),
        (3_355_443, "3.2 MiB"),
        (1_048_575, "1 MiB"),
        (20 << 30, "20 GiB"),
        (118 << 30, "118 GiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_a_size_has_three_digits_at_most_while_units_last(count: int, text: str) -> None:
    assert units.size(count) == text


def test_a_time_of_today_has_no_date_and_one_of_another_day_has() -> None:
    assert units.clock("2026-11-30T11:55:02.114Z", NOW, UTC) == "11:55:02.114"
    assert units.clock("2026-11-29T11:55:02.114Z", NOW, UTC) == "2026-11-29 11:55:02.114"


def test_a_time_is_shown_in_the_local_zone() -> None:
    zone = timezone(timedelta(hours=2))
    assert units.clock("2026-11-30T11:55:02.114Z", NOW, zone) == "13:55:02.114"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("3d", 259_200)]
)
def test_a_span_is_a_number_and_a_letter(text: str, seconds: float) -> None:
    assert units.parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1s", "nan", "1e999", "10 minutes"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        units.parse_span(text)
