"""Who looks on while the soak runs: two readers of the journal, and the bell that jobs ring."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import zlib
from pathlib import Path
from typing import Final

from acceptance.running import RpcError

from scripts.soak_jobs import Json
from scripts.soak_lines import NICE, OVER_SECS, Line, NotAnswered


class Tail(threading.Thread):
    """Reads the whole journal as it grows, by a cursor of its own, over every kill."""

    PAGE_SECS: Final = 1.0

    def __init__(self, line: Line) -> None:
        super().__init__(daemon=True)
        self._line, self._over = line, threading.Event()
        self.check, self.count, self.cursor = 0, 0, 0
        self.trouble: str | None = None

    def run(self) -> None:
        os.nice(NICE)
        try:
            while not self._over.is_set():
                self.read(self.PAGE_SECS)
        except (NotAnswered, RpcError, AssertionError) as exc:
            self.trouble = f"{type(exc).__name__}: {exc}"

    def read(self, timeout_secs: float) -> int:
        """Take the next page; the journal's head as it says."""
        page = self._line.insist(
            "read_logs", as_="tail", logs="debug", logScope="all", after_seq=self.cursor,
            limit=1000, timeout_secs=timeout_secs, peek=True,
        )  # fmt: skip
        for record in page["lines"]:
            assert record["seq"] > self.cursor, (record, self.cursor)
            self.cursor, self.count = record["seq"], self.count + 1
            self.check = chained(self.check, record)
        assert "gap" not in page, "the journal has dropped lines"
        self.cursor = page["nextAfterSeq"]
        return int(page["latestSeq"])

    def stop(self, head: int) -> None:
        """Read on to `head`, and no more."""
        self._over.set()
        self.join(OVER_SECS + self.PAGE_SECS)
        while self.trouble is None and self.cursor < head:
            self.read(0)


def chained(check: int, record: Json) -> int:
    """A sum of all lines so far and this one, in their order."""
    return zlib.crc32(f"{record['seq']} {record['taskId']} {record['text']}\n".encode(), check)


class Reader(threading.Thread):
    """Reads from its own position, which no read and no kill may move back."""

    def __init__(self, line: Line) -> None:
        super().__init__(daemon=True)
        self._line, self._over = line, threading.Event()
        self.reads, self.backs, self._read_to = 0, 0, 0
        self.trouble: str | None = None

    def run(self) -> None:
        os.nice(NICE)
        try:
            while not self._over.wait(0.05):
                self._read_once()
        except (NotAnswered, RpcError) as exc:
            self.trouble = f"{type(exc).__name__}: {exc}"

    def _read_once(self) -> None:
        page = self._line.insist(
            "read_logs", as_="reader", logs="warning", logScope="all", timeout_secs=0.5, limit=50
        )
        self.reads += 1
        first = page["lines"][0]["seq"] if page["lines"] else page["nextAfterSeq"] + 1
        self.backs += first <= self._read_to or page["nextAfterSeq"] < self._read_to
        self._read_to = max(self._read_to, page["nextAfterSeq"])

    def stop(self) -> None:
        self._over.set()
        self.join(OVER_SECS)


class Bell:
    """A named pipe on which jobs ring when they begin."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open at both ends, so that no job waits for a reader.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def forget(self) -> None:
        """Take what has rung so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 1 << 16):
                pass

    def wait(self, count: int, limit: float) -> None:
        """Wait for so many rings, `limit` seconds at most."""
        until = time.monotonic() + limit
        while count > 0 and (left := until - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                count -= len(os.read(self._fd, 1 << 16))

    def close(self) -> None:
        os.close(self._fd)
