"""A file that is replaced often: two files in turn, each overwritten in place.

To rename a new file over an old one costs its inode, and has ext4 write it out at once, which
takes milliseconds. Who is killed in the middle of a write leaves what was there before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

_MAGIC: Final = b"engine slot 1\n"
_DIGEST_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">{len(_MAGIC)}sQQ{_DIGEST_BYTES}s")  # number, size, digest
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Written(NamedTuple):
    """What stands there, as the how manieth that was written."""

    data: bytes
    number: int


def names(name: str) -> tuple[str, str]:
    """The two files."""
    return name, name + ".2"


def read(folder: Path, name: str) -> Written | None:
    """What was written last as a whole; None where nothing was.

    A file without our head, of an engine before these, is the first; so is nothing where there is
    a first file that does not read, which no kill leaves behind. Raises OSError.
    """
    first, second = (_content(folder / each) for each in names(name))
    found = [_parse(data) for data in (first, second) if data]
    if first is not None and not first.startswith(_MAGIC):
        found.append(Written(first, 0))
    nothing = None if first is None else Written(b"", 0)
    return max((each for each in found if each), key=lambda each: each.number, default=nothing)


def write(folder: Path, name: str, data: bytes, number: int) -> None:
    """Write the next one: `number` is one more than that of the last. Raises OSError, and then the
    last one still stands.
    """
    text = _HEAD.pack(_MAGIC, number, len(data), _digest(number, data)) + data
    fd = os.open(folder / names(name)[number % 2], os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600)
    try:
        size = os.fstat(fd).st_size
        end = 0
        while end < len(text):
            end += os.pwrite(fd, text[end:], end)
        if size > end:
            os.ftruncate(fd, end)
    finally:
        os.close(fd)


def remove(folder: Path, name: str) -> None:
    for each in names(name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / each)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(number: int, data: bytes) -> bytes:
    return hashlib.blake2b(
        data, digest_size=_DIGEST_BYTES, salt=number.to_bytes(16, "big")
    ).digest()


def _parse(data: bytes) -> Written | None:
    if not data.startswith(_MAGIC) or len(data) < _HEAD.size:
        return None
    _magic, number, size, digest = _HEAD.unpack_from(data)
    body = data[_HEAD.size :][:size]  # what stands behind it was not cut off yet
    return Written(body, number) if len(body) == size and _digest(number, body) == digest else None
