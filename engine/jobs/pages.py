"""Pages of an output: the bytes as they are, from any offset, in pieces that a reply can carry.

Owns the arithmetic of offsets and where a page may end. Waiting for more belongs to the caller:
a page that is empty and not the last one says that nothing readable stands at its offset yet.
Escape sequences are left as they are.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from types import TracebackType
from typing import Final, Self

import msgspec

from engine.jobs.excerpt import Source
from engine.jobs.plaintext import json_bytes

MAX_PAGE: Final = 512 * 1024  # raw bytes
JSON_LIMIT: Final = 512 * 1024 - 1024  # bytes of JSON; the rest of the reply has the difference
BASE64_LIMIT: Final = JSON_LIMIT // 4 * 3  # raw bytes that fill it as base64
MAX_CHARACTER: Final = 4  # bytes of UTF-8
_REPLACED: Final = "\ufffd"
_SEEK_BYTES: Final = 256 << 10  # a block that fits into a processor's cache


class OffsetPastEnd(ValueError):
    """The page would start behind the last byte there is; `OutputGone` is for those that were."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(f"offset {offset} is past the end of the output, which has {size} bytes")
        self.offset, self.size = offset, size


class OutputGone(Exception):
    """The bytes at this offset were kept once and are not now."""

    def __init__(self, offset: int, oldest_offset: int) -> None:
        super().__init__(f"output at offset {offset} is gone, go on at {oldest_offset}")
        self.offset, self.oldest_offset = offset, oldest_offset


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of an output: `text`, or for a raw one `data`, the other being None.

    `next_offset` is where the next one starts; `eof`: nothing will ever stand there.
    """

    text: str | None = None
    data: bytes | None = None
    offset: int
    next_offset: int
    size: int
    eof: bool
    dropped_bytes: int = 0

    @property
    def is_waiting(self) -> bool:
        """Nothing can be given until the output grows past `size` or ends."""
        return self.next_offset == self.offset and not self.eof


class OutputFile:
    """An open output. Nothing but a plain file is opened, and no link is followed."""

    def __init__(self, path: str, *, dir_fd: int | None = None) -> None:
        """Open `path`, below `dir_fd` where given; raises OSError."""
        # Without O_NONBLOCK a FIFO put in the file's place would hang the open.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = os.open(path, flags, dir_fd=dir_fd)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            raise OSError(f"not a plain file: {path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def hole_in(self, start: int, end: int) -> tuple[int, int] | None:
        """The first range from `start` on, and before `end`, of which nothing is kept."""
        hole = self._seek(start, os.SEEK_HOLE)
        if hole is None or hole >= end:
            return None
        data = self._seek(hole, os.SEEK_DATA)
        return hole, self.size if data is None else data

    def has_data(self, start: int, end: int) -> bool:
        """Whether anything was written between the two, the end excluded."""
        data = self._seek(start, os.SEEK_DATA)
        return data is not None and data < end

    def written_from(self, known: int) -> int:
        """Where what was written from offset `known` on ends; a file can be as long as one likes
        with nothing in it."""
        return self._seek(known, os.SEEK_HOLE) or known

    def _seek(self, offset: int, whence: int) -> int | None:
        """See lseek(2); None where there is no more of that kind."""
        try:
            return os.lseek(self._fd, offset, whence)
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            return None

    def seek_byte(self, wanted: bytes, start: int, end: int) -> int:
        """Where from `start` on the byte `wanted` is; where none is, `end`, or the file's if less.

        What is read is not kept: two hundredths of a second for 64 MiB that are in memory.
        """
        block = bytearray(_SEEK_BYTES)
        while start < end:
            count = os.preadv(self._fd, [block], start)
            if not count:
                break
            at = block.find(wanted, 0, count)
            if at >= 0:
                return min(start + at, end)
            start += count
        return min(start, end)

    def read_at(self, offset: int, length: int) -> bytes:
        """The `length` bytes at `offset`, fewer where the file ends before."""
        data = os.pread(self._fd, length, offset)
        while len(data) < length:  # a signal, or the kernel's own limit of 2 GiB, may cut a read
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data


def read_page(source: Source, offset: int, limit: int, *, raw: bool = False) -> Page:
    """The page of `source` at `offset`, of at most `limit` bytes of the output.

    A negative offset counts from the end. A text page ends at a character's end, for which it
    exceeds a `limit` below `MAX_CHARACTER`; what can become no character is U+FFFD. Raises
    `OffsetPastEnd` and `OutputGone`.
    """
    size, hole = source.size, source.dropped
    start = offset if offset >= 0 else max(size + offset, 0)
    if start > size:
        raise OffsetPastEnd(offset, size)
    if hole and hole[0] <= start < hole[1]:
        raise OutputGone(start, hole[1])
    stop = hole[0] if hole and start < hole[0] else size
    wanted = min(limit, MAX_PAGE, stop - start)
    data = source.read_at(start, wanted)
    if wanted and not data:
        raise OutputGone(start, size)  # cut by somebody else: the keeper never shortens a file
    text = None
    if raw:
        data = data[:BASE64_LIMIT]
    else:
        text, length = _text(source, start, data, stop)
        data = data[:length] if length <= len(data) else source.read_at(start, length)
    next_offset = start + len(data)
    return Page(
        text=text,
        data=data if raw else None,
        offset=start,
        next_offset=next_offset,
        size=size,
        eof=source.ended and next_offset == size,
        dropped_bytes=hole[1] - hole[0] if hole else 0,
    )


def _text(source: Source, start: int, data: bytes, stop: int) -> tuple[str, int]:
    """The text of `data`, as much as JSON may carry, and how many bytes of the output it is.

    `stop` is the end of what can be read: what is incomplete there stays so, unless a running
    job may go on writing at that very place.
    """
    is_last = source.ended or stop < source.size
    text, length = _complete(data, is_last and start + len(data) == stop)
    if json_bytes(text) > JSON_LIMIT:
        shown = _fitting(text)
        if _REPLACED not in shown:
            return shown, len(shown.encode())
        low, high = 0, length  # what stands for bad bytes does not tell how many they were
        while high - low > MAX_CHARACTER:
            middle = (low + high) // 2
            piece, _ = _complete(data[:middle], False)
            low, high = (middle, high) if json_bytes(piece) <= JSON_LIMIT else (low, middle)
        return _complete(data[:low], False)
    if data and length == 0 and start + len(data) < stop:
        data = source.read_at(start, min(MAX_CHARACTER, stop - start))
        return _one_character(data, is_last and start + len(data) == stop)
    return text, length


def _fitting(text: str) -> str:
    """The longest beginning of `text` that JSON may carry."""
    start, end, room = 0, len(text), JSON_LIMIT
    while start < end:
        middle = (start + end + 1) // 2
        size = json_bytes(text[start:middle])
        if size <= room:
            start, room = middle, room - size
        else:
            end = middle - 1
    return text[:start]


def _complete(data: bytes, final: bool) -> tuple[str, int]:
    """The text of `data` up to a character that more bytes could complete, and its length."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final)
    return text, len(data) - len(decoder.getstate()[0])


def _one_character(data: bytes, final: bool) -> tuple[str, int]:
    """The first character of `data` and its length; an empty text where it is not complete."""
    for length in range(1, len(data) + 1):
        text, used = _complete(data[:length], False)
        if text:  # with a bad beginning, the byte that showed it may be a character of its own
            return text[0], used - (len(text) - 1)
    return _complete(data, final)
