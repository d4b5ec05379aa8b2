"""The kinds of values that params have, and the checks that no annotation can say.

Each alias words, in its `extra`, what a refusal says was expected. No method is known here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from engine.errors import InvalidParams
from engine.protocol.decode import member_path

INLINE_BUDGET_SECS: Final = 20.0  # longest wait of bash, execute, wait and read_output
FOLLOW_MAX_SECS: Final = 55.0  # longest wait of list_tasks
MANY_MAX_SECS: Final = 240.0  # longest wait of wait_any
GRACE_MAX_SECS: Final = 300.0  # longest grace of cancel
DEADLINE_MAX_SECS: Final = 1e9  # 31 years: a later deadline is kept as this one
EXCLUSIVE_MAX_SECS: Final = 86_400.0  # longest that one caller has the engine, until it says more
COMMAND_MAX_BYTES: Final = 1 << 20
ARG_MAX_BYTES: Final = 131_072  # Linux: MAX_ARG_STRLEN; one string of argv or env must be shorter
PATH_MAX_BYTES: Final = 4_096  # Linux: PATH_MAX, with the NUL that ends it
SAFE_INT: Final = (1 << 53) - 1  # the integers that every double holds exactly
PAGE_MAX_BYTES: Final = 512 * 1024  # the largest page of output that a reply carries
RESERVED_PREFIX: Final = "ENGINE_"

NOT_OFFERED: Final = "nothing: this engine does not offer {} yet"


def says(expected: str) -> dict[str, str]:
    """`Meta.extra` by which a refusal words what it expected."""
    return {"expected": expected}


# `$(?!\n)`: a plain `$` also matches before a last newline.
Caller = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9_-]{1,64}$(?!\n)", extra=says("1 to 64 characters of a-z 0-9 _ -")),
]
CallerOrAll = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9_-]{1,64}|\*)$(?!\n)",
        extra=says('1 to 64 characters of a-z 0-9 _ -, or "*"'),
    ),
]
Handle = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,84}$(?!\n)",
        extra=says("handle of 1 to 84 characters of A-Z a-z 0-9 _ -"),
    ),
]
LaneName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9_-]{1,64}$(?!\n)",
        extra=says("name of a lane, 1 to 64 characters of a-z 0-9 _ -"),
    ),
]
LaneLimit = Annotated[int, Meta(ge=0, le=100_000, extra=says("integer between 0 and 100000"))]
After = Annotated[list[Handle], Meta(max_length=1_000, extra=says("array of at most 1000 handles"))]
Handles = Annotated[
    list[Handle],
    Meta(min_length=1, max_length=10_000, extra=says("array of 1 to 10000 handles")),
]
Seats = Annotated[dict[str, Any], Meta(extra=says("object of 1 to 256 seats"))]
SeatNames = Annotated[
    list[str], Meta(min_length=1, max_length=256, extra=says("array of 1 to 256 names of seats"))
]
Seconds = Annotated[float, Meta(ge=0, extra=says("number >= 0"))]
PositiveSeconds = Annotated[float, Meta(gt=0, extra=says("number > 0"))]
Key = Annotated[str, Meta(max_length=200, extra=says("string of at most 200 characters"))]
Label = Annotated[str, Meta(max_length=200, extra=says("string of at most 200 characters"))]
OutputBytes = Annotated[
    int, Meta(ge=0, le=PAGE_MAX_BYTES, extra=says("integer between 0 and 524288"))
]
PageBytes = Annotated[
    int, Meta(ge=1, le=PAGE_MAX_BYTES, extra=says("integer between 1 and 524288"))
]
Offset = Annotated[
    int, Meta(ge=-SAFE_INT, le=SAFE_INT, extra=says("integer between -2^53 and 2^53"))
]
ReadyText = Annotated[
    str, Meta(min_length=1, max_length=200, extra=says("string of 1 to 200 characters"))
]
Port = Annotated[int, Meta(ge=1, le=65_535, extra=says("integer between 1 and 65535"))]
Seq = Annotated[int, Meta(ge=0, le=SAFE_INT, extra=says("integer between 0 and 2^53"))]
MemoryBytes = Annotated[int, Meta(ge=1, le=SAFE_INT, extra=says("integer between 1 and 2^53"))]
PageRows = Annotated[int, Meta(ge=1, le=500, extra=says("integer between 1 and 500"))]
Cursor = Annotated[
    str, Meta(pattern=r"^[0-9]{1,18}$(?!\n)", extra=says("a cursor of an earlier page"))
]
Base64 = Annotated[bytes, Meta(extra=says("base64 (RFC 4648) with its padding"))]
Argv = Annotated[
    list[str], Meta(min_length=1, max_length=4096, extra=says("array of 1 to 4096 strings"))
]

LogFloor = Annotated[
    Literal[
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
        "none",
    ],
    Meta(
        extra=says(
            "debug, info, notice, warning, error, critical, alert, emergency"
            ' (the least severe that is shown) or "none"'
        )
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"],
    Meta(
        extra=says(
            "debug, info, notice, warning, error, critical, alert or emergency (rising severity)"
        )
    ),
]
LogScope = Literal["caller", "all"]
PageLines = Annotated[int, Meta(ge=1, le=1000, extra=says("integer between 1 and 1000"))]
Time = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$(?!\n)",
        extra=says("time of RFC 3339, as 2026-11-30T12:04:31.208Z"),
    ),
]
Status = Literal[
    "queued",
    "held",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "lost",
    "skipped",
    "denied",
]
RequestId = int | float | str | None


def cap(params: msgspec.Struct, name: str, most: float) -> None:
    value = getattr(params, name)
    if value is not None and value > most:
        force_setattr(params, name, most)


def check_exactly_one(**given: object) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise InvalidParams("$", f"exactly one of {_listed(list(given))}")


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def to_ms(path: str, time: str) -> int:
    """The moment of a `Time`. Raises InvalidParams where there is no such day or hour."""
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except (ValueError, OverflowError) as exc:
        raise InvalidParams(path, "time that there is") from exc


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def check_no_nul(path: str, text: str) -> None:
    if "\0" in text:
        raise InvalidParams(path, "string without NUL")


def check_argument(path: str, text: str, size: int) -> None:
    check_no_nul(path, text)
    if size >= ARG_MAX_BYTES:
        raise InvalidParams(path, "fewer than 131072 bytes (the system passes no more in one)")


def check_directory(path: str, text: str) -> None:
    check_no_nul(path, text)
    if not text.startswith("/"):
        raise InvalidParams(path, "an absolute path")
    if utf8_size(text) >= PATH_MAX_BYTES:
        raise InvalidParams(path, "fewer than 4096 bytes (the system takes no longer path)")


def check_env(path: str, env: dict[str, str]) -> None:
    """Raise unless each `NAME=value` can be passed to a process and no name is the engine's."""
    for name, value in env.items():
        at = member_path(path, name)
        if not name or "=" in name or "\0" in name:
            raise InvalidParams(at, "name that is not empty and has no = or NUL")
        if name.startswith(RESERVED_PREFIX):
            raise InvalidParams(at, f"name that does not begin with {RESERVED_PREFIX}")
        check_argument(at, value, utf8_size(name) + 1 + utf8_size(value))
