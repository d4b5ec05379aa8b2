"""Texts as files in memory that nobody can change: made once for many who read them."""

from __future__ import annotations

import fcntl
import os
from typing import Final

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SealedFiles:
    """The files of the texts that were wanted last: `most` of them, none of over `most_bytes`."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._files: dict[bytes, int] = {}  # the one wanted last is the last

    def open(self, text: bytes) -> int:
        """A descriptor of the file that holds `text`, for the taker to close. Raises OSError."""
        if len(text) > self._most_bytes:
            return _sealed_file(text)
        fd = self._files.pop(text, -1)
        if fd < 0:
            fd = _sealed_file(text)
            if len(self._files) >= self._most:
                os.close(self._files.pop(next(iter(self._files))))
        self._files[text] = fd
        return os.dup(fd)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def _sealed_file(text: bytes) -> int:
    fd = os.memfd_create("engine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        end = 0
        while end < len(text):
            end += os.pwrite(fd, text[end:], end)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd
