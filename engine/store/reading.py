"""Connections that read. What they cannot read is an error that is known, and is noted.

A database may be damaged while it is in use: a call that needs it is refused then, what goes on
without it does, and `trouble` tells of it for as long as it is so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from engine.errors import Unavailable

MOST_NOTED: Final = 100  # questions that failed

log = structlog.get_logger()


class StoreUnreadable(Unavailable, sqlite3.DatabaseError):
    """The database gives no answer. Also an error of SQLite, for those who know it by that."""

    limit = "store"

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(f"the store cannot be read: {error}")


class ReadHealth:
    """Of the connections of one database: which questions failed when they were asked last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, str] = {}  # question -> why

    @property
    def trouble(self) -> str | None:
        """Why something of the database cannot be read now."""
        return next(reversed(self._failed.values()), None)

    def failed(self, question: str, error: sqlite3.Error) -> StoreUnreadable:
        """Take note; what is to be raised."""
        if not self._failed:
            log.error("store_not_read", path=str(self._path), reason=str(error))
        self._failed.pop(question, None)
        if len(self._failed) < MOST_NOTED:
            self._failed[question] = str(error)
        return StoreUnreadable(error)

    def worked(self, question: str) -> None:
        if self._failed and self._failed.pop(question, None) is not None and not self._failed:
            log.info("store_read_again", path=str(self._path))


class _Cursor(sqlite3.Cursor):
    question = ""
    health: ReadHealth

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlite3.Error as exc:
            raise self.health.failed(self.question, exc) from exc

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except sqlite3.Error as exc:
            raise self.health.failed(self.question, exc) from exc

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except sqlite3.Error as exc:
            raise self.health.failed(self.question, exc) from exc


class Reader(sqlite3.Connection):
    """A connection that takes no writes, and raises StoreUnreadable."""

    health: ReadHealth

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        cursor = self.cursor(_Cursor)
        cursor.question, cursor.health = sql, self.health
        try:
            cursor.execute(sql, *args)
        except sqlite3.Error as exc:
            raise self.health.failed(sql, exc) from exc
        self.health.worked(sql)
        return cursor


def open_reader(
    path: Path,
    health: ReadHealth,
    prepare: Callable[[sqlite3.Connection], None] = lambda _reader: None,
) -> Reader:
    """A connection for one thread at a time; the taker closes it. Raises StoreUnreadable."""
    try:
        reader = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Reader
        )
    except sqlite3.Error as exc:
        raise health.failed("open", exc) from exc
    health.worked("open")
    reader.health = health
    reader.execute("PRAGMA query_only=1")
    prepare(reader)
    return reader
