"""record.told: what callers were told, written down before the reply that tells it.

A plain file beside record.db, appended to with one write(2): that survives the death of any
process and takes microseconds, where a commit takes milliseconds. It has what is newer than the
database, and what was told of tasks that run, which no database needs to keep.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import structlog

COMPACT_BYTES: Final = 1 << 20  # of the file; then, or at twice what is left, it is written anew

log = structlog.get_logger()


Seq = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # as SQLite counts
Marks = Annotated[list[Seq], msgspec.Meta(min_length=8, max_length=8)]  # one for each level


class Position(msgspec.Struct, frozen=True, kw_only=True, tag="position"):
    """What a caller has been shown of the journal: up to which `seq`, by level; and has read."""

    caller: str
    marks: Marks
    read_to: Seq

    def joined(self, other: Position) -> Position:
        """Both, as nothing moves back."""
        marks = [max(pair) for pair in zip(self.marks, other.marks, strict=True)]
        return Position(caller=self.caller, marks=marks, read_to=max(self.read_to, other.read_to))


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """What replies have told a caller of a running task.

    `output`: of each file up to which offset; `lines`: for each level up to which `seq`; `shown`:
    what is told once of it while it runs, by category; `sent`: likewise what was not acknowledged,
    with the id of its delivery.
    """

    task: str
    caller: str
    output: tuple[int, ...]
    lines: Marks
    shown: tuple[str, ...] = ()
    sent: dict[str, str] = {}


State = Literal["none", "noticed", "delivered", "received"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, tag="receipt", omit_defaults=True):
    """How it stands between a caller and the end of a handle.

    `noticed`: a reply had it among its notices; `delivered`: a reply that carries it was about to
    go out; `received`: and was acknowledged; `none`: again as if none had told of it.
    """

    caller: str
    handle: str
    state: State
    delivery: str | None = None


Entry = Position | Told | Receipt

_decode = msgspec.json.Decoder(Entry).decode


def _line(entry: Entry) -> bytes:
    # Its line end stands first: what was written in part before it joins nothing.
    return b"\n" + msgspec.json.encode(entry)


class ToldFile:
    """The file. Where it cannot be written, an engine that follows a killed one repeats things."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self._fd = self._open(path)
        self.size = os.fstat(self._fd).st_size
        self.compact_at = max(COMPACT_BYTES, 2 * self.size)
        self.trouble: str | None = None  # why it takes no writes now

    def close(self) -> None:
        os.close(self._fd)

    @staticmethod
    def _open(path: Path, more: int = 0) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | more
        return os.open(path, flags, 0o600)

    def read(self) -> list[Entry]:
        """All entries, in order. A line that is none of ours tells nothing."""
        found: list[Entry] = []
        for line in os.pread(self._fd, self.size, 0).split(b"\n")[1:]:
            try:
                found.append(_decode(line))
            except (msgspec.MsgspecError, RecursionError):
                continue
        return found

    def append(self, *entries: Entry) -> None:
        """Have the next engine know of `entries`, in one write."""
        data = b"".join(map(_line, entries))
        try:
            written = os.write(self._fd, data)
            self.size += written
            if written < len(data):  # the next byte that is too much says why
                self.size += os.write(self._fd, data[written:])
        except OSError as exc:
            self._say(exc)
            return
        self.trouble = None

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Have the file hold `entries` alone."""
        data = b"".join(map(_line, entries))
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fd = self._open(fresh, os.O_TRUNC)
            try:
                if os.write(fd, data) < len(data):
                    raise OSError("written in part")
                os.rename(fresh, self._path)
            except OSError:
                os.close(fd)
                raise
        except OSError as exc:
            self._say(exc)
            self.compact_at = 2 * self.size  # the old one is as good
            return
        self.trouble = None
        os.close(self._fd)
        self._fd, self.size = fd, len(data)
        self.compact_at = max(COMPACT_BYTES, 2 * self.size)

    def _say(self, error: OSError) -> None:
        if self.trouble is None:
            log.error("told_not_written", reason=str(error))
        self.trouble = error.strerror or str(error)
