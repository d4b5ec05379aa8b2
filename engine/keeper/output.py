"""One stream of a job, from its pipe to its file: every byte once, at its own offset.

The keeper is the file's only writer. An offset is the number of bytes that the job had written
before, also where bytes were dropped: those ranges are holes, known as `dropped`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from typing import Final

from engine.keeper.linux import punch_hole
from engine.keeper.taskfiles import open_fresh

HEAD_BYTES: Final = 64 << 20  # the beginning that a cap never drops (or half the cap, if less)
TURN_BYTES: Final = 4 << 20  # copied at most before other work gets its turn
PIPE_BYTES: Final = 1 << 20  # asked for once a job floods; a refusal only costs speed
_DEFAULT_PIPE_BYTES: Final = 64 << 10
TERMINAL_BYTES: Final = 256 << 10  # more than Linux lets wait in a terminal
_BLOCK: Final = 4096  # file systems give back whole blocks only
_HOLE_STEP: Final = 16 << 20  # dropped at a time: fewer, larger holes
_MAX_RANGES: Final = 16  # dropped ranges remembered apart; beyond, the nearest two become one


class Output:
    """The read end of a pipe, or the master end of a terminal, and the file it goes to.

    `size` counts all bytes seen, `dropped` lists the ranges [start, end) that are not in the file.
    """

    def __init__(
        self,
        dir_fd: int,
        name: str,
        cap: int,
        source: int | None = None,
        *,
        is_terminal: bool = False,
    ) -> None:
        """`source`: read this, non-blocking, in place of a new pipe; closed by `close`."""
        self.name = name
        self.size = 0
        self.dropped: list[list[int]] = []
        self._cap = max(cap, 2 * _BLOCK)
        self._head = min(HEAD_BYTES, self._cap // 2) // _BLOCK * _BLOCK
        self._hole_end = self._head
        self._can_punch = True
        self._is_terminal = is_terminal
        self._can_splice = not self._is_terminal  # Linux has none from a terminal
        self._is_wide = self._is_terminal
        self._file = open_fresh(dir_fd, name)
        if source is not None:
            self.pipe, self._write_end = source, -1
            return
        try:
            self.pipe, self._write_end = os.pipe()
        except OSError:
            os.close(self._file)
            raise
        os.set_blocking(self.pipe, False)  # our end alone: the job's stays blocking

    def take_write_end(self) -> int:
        """The descriptor for the job; to be closed here once the job has it."""
        return self._write_end

    def close_write_end(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def copy(self, limit: int = TURN_BYTES) -> bool:
        """Move what the pipe holds, at most `limit` bytes; False once nobody can write any more."""
        while limit > 0:
            try:
                moved = self._store(limit)
            except BlockingIOError:
                return True
            if moved == 0:
                return False
            limit -= moved
            if moved >= _DEFAULT_PIPE_BYTES and not self._is_wide:
                self._widen()
        return True

    def drain(self) -> None:
        """Move exactly what is in the pipe now: a writer left behind cannot keep us here."""
        if self._is_terminal:  # it does not tell how much; reading brings in all there is
            self.copy(TERMINAL_BYTES)
            return
        waiting = bytearray(4)
        fcntl.ioctl(self.pipe, termios.FIONREAD, waiting)
        (count,) = struct.unpack("i", waiting)
        while count > 0:
            before = self.size
            if not self.copy(count) or self.size == before:
                return
            count -= self.size - before

    def close(self) -> None:
        """Close both ends and give the file its full length, also where its tail was dropped."""
        self.close_write_end()
        os.close(self.pipe)
        if self.dropped and self.dropped[-1][1] == self.size:
            try:
                os.ftruncate(self._file, self.size)
            except OSError as exc:
                if exc.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
                    raise
        os.close(self._file)

    def _store(self, limit: int) -> int:
        """Move one piece from pipe to file; its length, 0 at the end. Raises BlockingIOError."""
        if not self._can_punch and self._stored() >= self._cap:
            return self._discard(limit)
        try:
            moved = self._splice(limit) if self._can_splice else self._read_and_write(limit)
        except BlockingIOError:
            raise
        except OSError as exc:
            if exc.errno == errno.EINVAL and self._can_splice:
                self._can_splice = False  # a file system without splice
                return self._store(limit)
            # Full or failing: the job must go on, so its pipe is emptied all the same.
            return self._discard(limit)
        self.size += moved
        if self._stored() > self._cap:
            self._make_room()
        return moved

    def _splice(self, limit: int) -> int:
        # Said here too: before Linux 5.1 the pipe's own O_NONBLOCK does not count for splice(2).
        flags = os.SPLICE_F_NONBLOCK
        return os.splice(self.pipe, self._file, limit, offset_dst=self.size, flags=flags)

    def _read_and_write(self, limit: int) -> int:
        data = self._read(limit)
        written = 0
        while written < len(data):
            try:
                written += os.pwrite(self._file, data[written:], self.size + written)
            except OSError:
                # The bytes have left the pipe: what cannot be stored is counted as dropped.
                self._drop(self.size + written, self.size + len(data))
                break
        return len(data)

    def _read(self, limit: int) -> bytes:
        try:
            return os.read(self.pipe, min(limit, PIPE_BYTES))
        except OSError as exc:
            if self._is_terminal and exc.errno == errno.EIO:
                return b""  # nobody has it open any more
            raise

    def _discard(self, limit: int) -> int:
        data = self._read(limit)
        self._drop(self.size, self.size + len(data))
        self.size += len(data)
        return len(data)

    def _stored(self) -> int:
        return self.size - sum(end - start for start, end in self.dropped)

    def _make_room(self) -> None:
        """Drop the oldest bytes behind the head until the cap holds, a good piece at a time."""
        excess = self._stored() - self._cap
        step = max(excess, min(_HOLE_STEP, self._cap // 8))
        end = min(-(-(self._hole_end + step) // _BLOCK) * _BLOCK, self.size // _BLOCK * _BLOCK)
        try:
            punch_hole(self._file, self._hole_end, end - self._hole_end)
        except OSError:
            self._can_punch = False  # from here on the newest bytes are dropped instead
            return
        self._drop(self._hole_end, end)
        self._hole_end = end

    def _drop(self, start: int, end: int) -> None:
        """Note [start, end) as gone, joined with the ranges that it touches."""
        if start == end:
            return
        joined: list[list[int]] = []
        for low, high in sorted([*self.dropped, [start, end]]):
            if joined and low <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], high)
            else:
                joined.append([low, high])
        while len(joined) > _MAX_RANGES:
            gaps = [joined[i + 1][0] - joined[i][1] for i in range(len(joined) - 1)]
            nearest = gaps.index(min(gaps))
            joined[nearest][1] = joined.pop(nearest + 1)[1]
        self.dropped = joined

    def _widen(self) -> None:
        self._is_wide = True
        try:
            fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError as exc:
            if exc.errno not in (errno.EPERM, errno.EBUSY):  # over the user's share of pipe memory
                raise
