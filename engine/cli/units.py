"""Durations, ages, sizes, numbers and times as people read them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400
SIZES: Final = ("KiB", "MiB", "GiB", "TiB")


def duration(milliseconds: int) -> str:
    """`7ms 0.4s 3s 14s 2m11s 3h04m 2d05h`: two units at most, nothing rounded up."""
    if milliseconds < 100:
        return f"{max(0, milliseconds)}ms"
    seconds = milliseconds // 1000
    if seconds < 10:
        tenths = milliseconds // 100
        return f"{tenths // 10}s" if tenths % 10 == 0 else f"{tenths / 10:.1f}s"
    if seconds < MINUTE:
        return f"{seconds}s"
    if seconds < HOUR:
        return f"{seconds // MINUTE}m{seconds % MINUTE:02d}s"
    if seconds < DAY:
        return f"{seconds // HOUR}h{seconds % HOUR // MINUTE:02d}m"
    return f"{seconds // DAY}d{seconds % DAY // HOUR:02d}h"


def tenths(milliseconds: int) -> str:
    """`21.4s 1m02s`: a duration that is of interest to the tenth under a minute."""
    fine = 100 <= milliseconds < 1000 * MINUTE
    return f"{milliseconds // 100 / 10:.1f}s" if fine else duration(milliseconds)


def age(milliseconds: int) -> str:
    """`12s 5m 3h 2d`: how long ago, in one unit."""
    seconds = max(0, milliseconds) // 1000
    for size, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds >= size:
            return f"{seconds // size}{letter}"
    return f"{seconds}s"


def exact_seconds(milliseconds: int) -> str:
    """`14.020s`: for pipes."""
    return f"{milliseconds / 1000:.3f}s"


def size(count: int) -> str:
    """`812 B 3.2 MiB 20 GiB 118 GiB`."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in SIZES:
        value /= 1024
        if value < 1023.95 or unit == SIZES[-1]:
            break
    text = f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")
    return f"{text} {unit}"


def parse_time(text: str) -> datetime:
    """The moment that an RFC 3339 text names."""
    return datetime.fromisoformat(text)


def since(text: str | None, now: datetime) -> int:
    """Milliseconds from the moment `text` to `now`; 0 where there is none."""
    return 0 if text is None else (now - parse_time(text)) // timedelta(milliseconds=1)


def clock(text: str, now: datetime, zone: tzinfo | None) -> str:
    """Local `HH:MM:SS.mmm`, with the date where it is not today."""
    moment = parse_time(text).astimezone(zone)
    time = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
    same_day = moment.date() == now.astimezone(zone).date()
    return time if same_day else f"{moment:%Y-%m-%d} {time}"


def parse_span(text: str) -> float:
    """Seconds in `90`, `90s`, `10m`, `2h` or `3d`. Raises ValueError."""
    units = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
    factor = units.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is no span of time")
    return seconds
