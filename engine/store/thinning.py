"""Which lines go where the journal has too many, and how many have gone.

Each caller's share is the fair one: the noisiest are cut to a level, the same for all, at which
everything fits; who has less keeps all. So a caller keeps `KEPT_LINES` whatever the others write,
but where there are so many callers that this does not fit. It runs in the index's transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from engine.store.lines import NO_CALLER

KEPT_LINES: Final = 10_000  # of each caller, where that fits
THIN_STEP: Final = 0.02  # of all lines, dropped at a time once there are too many
MOST_CUTS: Final = 2_000  # callers that lose lines at a time, but where more of them came in
MOST_DROPPED: Final = 50_000  # lines at a time: the limit may be new, and far below what there is
MOST_GAPS: Final = 64  # remembered apart, of each caller and level; beyond, the oldest become one
MOST_ALL_GAPS: Final = 20_000  # of all callers; beyond, each caller's become one
_NOBODY: Final = ""  # in `thinned`: it is not known any more whose the lines were


def fair_level(sizes: Mapping[int, int], most: int) -> int:
    """The highest level at which, what is over it cut off, `most` lines are left or fewer.

    sizes: how many callers there are of each number of lines. Where all fit: the largest size.
    """
    left, callers = most, sum(sizes.values())
    for size in sorted(sizes):
        if size * callers > left:
            return left // callers
        left -= size * sizes[size]
        callers -= sizes[size]
    return max(sizes, default=0)


def share(sizes: Mapping[int, int], most: int) -> int:
    """To how many lines a caller is cut where there are more than `most`; see `fair_level`.

    Somewhat fewer than would fit, so that not each new line costs a cut, but not below what each
    caller is to keep where that fits.
    """
    level = fair_level(sizes, most - int(most * THIN_STEP))
    return max(level, KEPT_LINES) if fair_level(sizes, most) >= KEPT_LINES else level


def thin_out(connection: sqlite3.Connection, most: int) -> None:
    """Drop lines until `most` are left, and some more: of the noisiest the least severe first.

    At most `MOST_DROPPED`: where that was not enough, call again. What is dropped is noted, so
    that a reader can be told.
    """
    sizes: dict[int, int] = dict(
        connection.execute(
            "SELECT total, count(*) FROM"
            " (SELECT sum(lines) AS total FROM volume GROUP BY caller) GROUP BY total"
        )
    )
    excess = sum(size * callers for size, callers in sizes.items()) - most
    if excess <= 0:
        return
    level, wanted = share(sizes, most), min(excess + int(most * THIN_STEP), MOST_DROPPED)
    noisiest = connection.execute(
        "SELECT caller, sum(lines) AS total FROM volume GROUP BY caller HAVING total > ?"
        " ORDER BY total DESC LIMIT ?",
        (level, min(max(excess, MOST_CUTS), MOST_DROPPED)),
    ).fetchall()
    dropped = 0
    for cuts, (caller, total) in enumerate(noisiest):
        if dropped >= wanted or (dropped >= excess and cuts >= MOST_CUTS):
            break
        count = min(total - level, wanted - dropped)
        _cut(connection, caller, count)
        dropped += count
    _bound_gaps(connection)


def _cut(connection: sqlite3.Connection, caller: str, count: int) -> None:
    """Drop `count` lines of a caller: the least severe, and of those the oldest."""
    levels = connection.execute(
        "SELECT level, lines FROM volume WHERE caller = ? AND lines > 0 ORDER BY level", (caller,)
    ).fetchall()
    for level, lines in levels:
        part = min(count, lines)
        _drop(connection, caller, level, part)
        count -= part
        if not count:
            return


def _drop(connection: sqlite3.Connection, caller: str, level: int, count: int) -> None:
    where = "caller IS NULL" if caller == NO_CALLER else "caller = ?"
    args: list[Any] = [] if caller == NO_CALLER else [caller]
    oldest = f"SELECT seq FROM line WHERE {where} AND level = ? ORDER BY seq LIMIT ?"
    (first, last) = connection.execute(
        f"SELECT min(seq), max(seq) FROM ({oldest})", [*args, level, count]
    ).fetchone()
    connection.execute(
        f"DELETE FROM line WHERE {where} AND level = ? AND seq <= ?", [*args, level, last]
    )
    connection.execute(
        "UPDATE volume SET lines = lines - ? WHERE caller = ? AND level = ?", (count, caller, level)
    )
    # Names that are used once must not stay for good.
    connection.execute(
        "DELETE FROM volume WHERE caller = ? AND level = ? AND lines <= 0", (caller, level)
    )
    connection.execute(
        "INSERT INTO thinned VALUES (?, ?, ?, ?, ?)", (caller or None, level, first, last, count)
    )
    _merge_gaps(connection, caller or None, level)


def _merge_gaps(connection: sqlite3.Connection, caller: str | None, level: int) -> None:
    whose = (caller, level)
    (count,) = connection.execute(
        "SELECT count(*) FROM thinned WHERE caller IS ? AND level = ?", whose
    ).fetchone()
    if count <= MOST_GAPS:
        return
    (oldest, first, lost), (second, _first, more) = connection.execute(
        "SELECT rowid, first_seq, lines FROM thinned WHERE caller IS ? AND level = ?"
        " ORDER BY last_seq LIMIT 2",
        whose,
    ).fetchall()
    connection.execute("DELETE FROM thinned WHERE rowid = ?", (oldest,))
    connection.execute(
        "UPDATE thinned SET first_seq = ?, lines = ? WHERE rowid = ?", (first, lost + more, second)
    )


def _bound_gaps(connection: sqlite3.Connection) -> None:
    """Where the gaps of all callers are too many, make one of each caller's, by level; and where
    that is not few enough, forget whose the oldest were.
    """
    (count,) = connection.execute("SELECT count(*) FROM thinned").fetchone()
    if count <= MOST_ALL_GAPS:
        return
    each = connection.execute(
        "SELECT caller, level, min(first_seq), max(last_seq), sum(lines) FROM thinned"
        " GROUP BY caller, level ORDER BY max(last_seq)"
    ).fetchall()
    excess = len(each) - MOST_ALL_GAPS // 2
    gaps: dict[tuple[str | None, int], tuple[int, int, int]] = {}
    for number, (caller, level, first, last, lines) in enumerate(each):
        whose = (_NOBODY if number < excess else caller, level)
        if whose in gaps:
            first, lines = min(first, gaps[whose][0]), lines + gaps[whose][2]
        gaps[whose] = first, last, lines  # `each` is in the order of the last
    connection.execute("DELETE FROM thinned")
    rows = [(*whose, *gap) for whose, gap in gaps.items()]
    connection.executemany("INSERT INTO thinned VALUES (?, ?, ?, ?, ?)", rows)
