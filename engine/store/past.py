"""What index.db knows of a stretch of time: the tasks that ended in it, and its lines counted.

For an engine that has just started and goes on with the counts of the one before. Both look
through a lot: use them in a thread (`Index.search`).
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from engine.model import Status

SLACK_MS: Final = 60_000  # lines of one output may stand so much before newer ones of another


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Of a task that has ended, what is counted. Times in ms."""

    caller: str
    status: Status
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    duration_ms: int | None = None


def ends(connection: sqlite3.Connection, since: int, last_seq: int) -> list[End]:
    """Those that ended from `since` on, of the rows up to `last_seq`."""
    rows = connection.execute(
        "SELECT body FROM task WHERE is_final = 1 AND body IS NOT NULL AND changed_seq <= ?",
        (last_seq,),
    )
    decoder = msgspec.json.Decoder(End)
    found = (decoder.decode(body) for (body,) in rows)
    return [end for end in found if end.ended_at is not None and end.ended_at >= since]


def line_counts(
    connection: sqlite3.Connection, since: int, last_seq: int, step_ms: int
) -> list[tuple[int, int, int]]:
    """(time // `step_ms`, level, lines) of the lines from `since` on, up to `last_seq`."""
    first = _first_seq(connection, since - SLACK_MS, last_seq)
    return connection.execute(
        "SELECT time / ?, level, count(*) FROM line"
        " WHERE seq >= ? AND seq <= ? AND time >= ? GROUP BY 1, 2",
        (step_ms, first, last_seq, since),
    ).fetchall()


def _first_seq(connection: sqlite3.Connection, since: int, last_seq: int) -> int:
    """The `seq` from which on lines are at least about as new as `since`: found by halving."""
    low, high = 0, last_seq + 1
    while low < high:
        middle = (low + high) // 2
        found = connection.execute(
            "SELECT seq, time FROM line WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,)
        ).fetchone()
        if found is None or found[1] >= since:
            high = middle
        else:
            low = found[0] + 1
    return low
