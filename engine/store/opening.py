"""Opening a database: what is found there is looked at first, and what is no good is set aside.

Nothing that was found is ever deleted. A file under the name of ours that is damaged, foreign or
no file at all gets another name in the same folder, and an empty database takes its place.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

BUSY_MS: Final = 2_000  # that SQLite itself waits for somebody else's lock
CHECKPOINT_PAGES: Final = 1000  # of the log of changes; then a commit brings it home
CHECKED_BYTES: Final = 32 << 20  # of a file that is looked at whole; takes 0.3 s
# Of its log of changes: what is left of one that grew larger because somebody read for long; and
# where it is larger than any batch makes it.
LOG_BYTES: Final = 16 << 20
MOST_LOG_BYTES: Final = 64 << 20
_ASIDE: Final = ".damaged-"  # in the name of what was set aside, before the time
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SUFFIXES: Final = ("", "-wal", "-shm")  # of what SQLite keeps
_WAL_MAGIC: Final = (
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
)  # https://sqlite.org/fileformat2.html

log = structlog.get_logger()


class NewerSchema(Exception):
    """The database was written by an engine that knows more than this one: it is left alone."""


class Opened(NamedTuple):
    """`has_lost`: what was committed in an earlier life of the home may not be there."""

    connection: sqlite3.Connection
    has_lost: bool


class Plan(NamedTuple):
    """What is to be in a database. `checked`: the tables that are looked at where looking at all
    of a large file takes too long.
    """

    schema: str
    version: int
    synchronous: str
    checked: Sequence[str] = ()


def open_database(path: Path, plan: Plan) -> Opened:
    """A connection in WAL mode with the tables in place. Raises sqlite3.Error, NewerSchema."""
    has_lost = not path.is_file() or path.stat().st_size == 0
    if path.is_symlink() or (path.exists() and not path.is_file()):
        _set_aside(path, _SUFFIXES, "no file")  # nor is anything written through a link
        has_lost = True
    if not _is_log(path.with_name(path.name + "-wal")):
        # SQLite would take no notice of it, and of all that it held.
        _set_aside(path, ("-wal",), "no log of changes")
        has_lost = True
    try:
        return Opened(_open(path, plan), has_lost)
    except sqlite3.DatabaseError as exc:
        if exc.sqlite_errorcode not in _DAMAGED:
            raise
        _set_aside(path, _SUFFIXES, str(exc))
    return Opened(_open(path, plan), True)


def _is_log(path: Path) -> bool:
    """Whether this is what SQLite writes ahead, as far as its head shows; or nothing is there."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    return not head or head in _WAL_MAGIC


def _open(path: Path, plan: Plan) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        version = _check_tables(connection, path, plan)  # before anything is written
        is_large = plan.checked and path.stat().st_size > CHECKED_BYTES
        for what in plan.checked if is_large else ("1",):
            (found,) = connection.execute(f"PRAGMA quick_check({what})").fetchone()
            if found != "ok":
                raise _damage(found)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={plan.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        connection.executescript(plan.schema)
        if version < plan.version:  # where nothing is missing nothing is written: on a full disk
            connection.execute(f"PRAGMA user_version = {plan.version}")
    except (sqlite3.Error, NewerSchema):
        connection.close()
        raise
    return connection


def _check_tables(connection: sqlite3.Connection, path: Path, plan: Plan) -> int:
    """The version of what is there. Raises NewerSchema; sqlite3.DatabaseError where there are other
    tables under our names."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > plan.version:
        raise NewerSchema(
            f"{path} is of a newer engine (version {version}, this one knows {plan.version}):"
            " start that one, or move the file away"
        )
    with contextlib.closing(sqlite3.connect(":memory:")) as pattern:
        pattern.executescript(plan.schema)
        wanted = _columns(pattern)
    found = _columns(connection)
    if any(name in found and not columns <= found[name] for name, columns in wanted.items()):
        raise _damage("its tables are not ours")
    return int(version)


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of each table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {
            column
            for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
        }
        for (name,) in tables
    }


def _damage(found: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(found)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _set_aside(path: Path, suffixes: Sequence[str], reason: str) -> None:
    """Rename what SQLite keeps of the database at `path`."""
    now = int(time.time() * 1000)
    for suffix in suffixes:
        found = path.with_name(path.name + suffix)
        aside = found.with_name(f"{found.name}{_ASIDE}{now}")
        with contextlib.suppress(FileNotFoundError):
            found.rename(aside)
            log.error("store_set_aside", path=str(aside), reason=reason)


class OwnFiles:
    """Whether what SQLite has open of a database is still what lies under its names.

    A file that was removed takes writes as ever, and they are gone with the last who has it open.
    """

    def __init__(self, path: Path) -> None:
        """Of the database at `path`, once it is open."""
        self._path = path
        self._inodes: dict[str, int] = {}  # by suffix
        self._size = 0
        self.trouble()

    def log_bytes(self) -> int:
        """The size of the log of changes."""
        try:
            return self._path.with_name(self._path.name + "-wal").stat().st_size
        except OSError:
            return 0

    def trouble(self) -> str | None:
        """What was done to the files; None too where the whole folder is away."""
        for suffix in _SUFFIXES:
            path = self._path.with_name(self._path.name + suffix)
            try:
                status = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                if suffix in self._inodes and self._path.parent.exists():
                    return f"{path.name} was removed while it was used"
                continue
            except OSError as exc:
                return f"{path.name}: {exc.strerror}"
            if self._inodes.setdefault(suffix, status.st_ino) != status.st_ino:
                return f"{path.name} was replaced while it was used"
            if not suffix and status.st_size < self._size:  # we never make it smaller
                return f"{path.name} was cut short while it was used"
            self._size = status.st_size if not suffix else self._size
        return None


class AsideFiles:
    """What was set aside of one database, now or at an earlier start, and is still there."""

    def __init__(self, path: Path) -> None:
        """Of the database at `path`, once it is open."""
        self._paths = sorted(path.parent.glob(f"{path.name}*{_ASIDE}*"))

    def __call__(self) -> list[Path]:
        """The paths; who removes or moves them away has looked after it."""
        self._paths = [path for path in self._paths if path.exists() or path.is_symlink()]
        return self._paths
