"""One SQLite database, one writer at a time: what comes in while it writes is its next batch.

A thread writes; a little that somebody waits for the engine's own may write, as the way to another
thread and back takes longer. It neither waits for a lock then nor brings the log home.

Nobody sees an item as committed before the transaction that holds it is. A database that cannot
be written leaves the items where they are and says so in `trouble`; the next attempt follows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import structlog
import trio

from engine.store.opening import BUSY_MS, CHECKPOINT_PAGES

RETRY_SECS: Final = 1.0  # between attempts on a database that is full or locked
LAST_WORD_SECS: Final = 2.0  # for the last batch when the engine ends
MOST_TURNS: Final = 64  # batches in a row without the thread, which brings the log home
_IN_TURN: Final = (0, 0)  # busy_timeout in ms, wal_autocheckpoint in pages
_IN_THREAD: Final = (BUSY_MS, CHECKPOINT_PAGES)

Item = TypeVar("Item")
log = structlog.get_logger()


class StoreUnavailable(Exception):
    """The database does not take writes now; nothing was acknowledged."""


class BatchWriter(Generic[Item]):
    """Commits items in batches with `apply(connection, items)`, which runs in a thread.

    Items under the same key replace each other while they wait: only the newest is written.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        apply: Callable[[sqlite3.Connection, list[Item]], Any],
        on_commit: Callable[[Any], None],
        *,
        linger_secs: float = 0.0,
        on_begin: Callable[[list[Item]], None] = lambda _items: None,
        is_little: Callable[[list[Item]], bool] = lambda _items: False,
    ) -> None:
        """`linger_secs`: how long a batch waits for more, unless somebody waits for its commit.

        `on_begin`: called with the items of each batch before it is written. `is_little`: whether
        it takes no longer than the way to a thread and back, or little, to write these.
        """
        self._connection, self._apply, self._on_commit = connection, apply, on_commit
        self._on_begin = on_begin
        self._linger_secs, self._is_little = linger_secs, is_little
        self._turns_left, self._mode = MOST_TURNS, _IN_THREAD
        self._is_wanted = trio.Event()
        self.pending: dict[Any, Item] = {}
        self._writing: dict[Any, Item] = {}
        self._more = trio.Event()
        self._put_count = 0
        self._done_count = 0
        self._progress = trio.Event()
        self.trouble: str | None = None

    def put(self, key: Any, item: Item) -> None:
        """Have `item` written; it replaces one that waits under the same key."""
        self.pending.pop(key, None)  # the order of the keys is that of their last change
        self.pending[key] = item
        self._put_count += 1
        self._more.set()

    def hurry(self) -> None:
        """Have the next batch wait for no more items."""
        self._is_wanted.set()

    def find(self, key: Any) -> Item | None:
        """The item of this key that is not committed yet."""
        return self.pending.get(key) or self._writing.get(key)

    def items(self) -> list[Item]:
        """All that is not committed yet, in order."""
        return [*self._writing.values(), *self.pending.values()]

    def withdraw(self, key: Any) -> None:
        """Drop an item that waits: what it stands for is not to be."""
        self.pending.pop(key, None)

    async def flush(self) -> None:
        """Wait until all that was put before is committed. Raises StoreUnavailable."""
        goal = self._put_count
        while self._done_count < goal:
            self.hurry()
            await self._progress.wait()
            if self.trouble is not None and self._done_count < goal:
                raise StoreUnavailable(self.trouble)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then write what is left, for `LAST_WORD_SECS` at most."""
        task_status.started()
        try:
            while True:
                await self._more.wait()
                with trio.move_on_after(self._linger_secs):
                    await self._is_wanted.wait()
                if not await self._write():
                    await trio.sleep(RETRY_SECS)
        finally:
            with trio.move_on_after(LAST_WORD_SECS, shield=True):
                while self.pending and await self._write():
                    pass

    async def _write(self) -> bool:
        """Commit one batch; False where the database refused it."""
        is_awaited = self._is_wanted.is_set()
        self._more, self._is_wanted = trio.Event(), trio.Event()
        goal = self._put_count
        self._writing, self.pending = self.pending, {}
        items = list(self._writing.values())
        self._on_begin(items)
        try:
            result = self._commit_in_turn(items) if is_awaited else None
            if result is None:
                self._turns_left = MOST_TURNS
                result = await trio.to_thread.run_sync(self._commit, items)
        except (sqlite3.Error, RuntimeError) as exc:  # RuntimeError: no thread is to be had now
            self._put_back(str(exc))
            return False
        except trio.Cancelled:
            self._put_back(None)
            raise
        except Exception as exc:  # what was found there is not as we wrote it; nothing else ends
            if self.trouble is None:
                log.exception("batch_not_written")
            self._put_back(f"{type(exc).__name__}: {exc}")
            return False
        self._writing = {}
        if self.trouble is not None:
            log.info("store_writes_again")
        self.trouble = None
        self._done_count = goal
        self._on_commit(result)
        self._tell()
        return True

    def _put_back(self, trouble: str | None) -> None:
        self.pending = {**self._writing, **self.pending}
        self._writing = {}
        self._more.set()
        if trouble is not None:
            if self.trouble is None:
                log.error("store_does_not_write", reason=trouble)
            self.trouble = trouble
            self._tell()

    def _tell(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    def _commit_in_turn(self, items: list[Item]) -> Any:
        """What came of it; None where that is for the thread to do."""
        if not self._turns_left or not self._is_little(items):
            return None
        self._turns_left -= 1
        try:
            return self._commit(items, _IN_TURN)
        except sqlite3.Error:  # locked, maybe: the thread waits for it, or says what it is
            return None

    def _commit(self, items: list[Item], mode: tuple[int, int] = _IN_THREAD) -> Any:
        if mode != self._mode:
            self._connection.execute(f"PRAGMA busy_timeout={mode[0]}")
            self._connection.execute(f"PRAGMA wal_autocheckpoint={mode[1]}")
            self._mode = mode
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = self._apply(self._connection, items)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")
            raise
        return result
