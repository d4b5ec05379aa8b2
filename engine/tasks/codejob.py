"""A call of code that a session has taken: a job whose news the sessions hear first."""

from __future__ import annotations

from typing import Any, Protocol

import trio

from engine.jobs.executor import JobListener, Outcome, RunningJob, Written


class Use(Protocol):
    """What a session hears of a call in it."""

    def on_started(self, news: dict[str, Any]) -> None:
        """See `JobListener`; {cwdMissing}: the session's directory, where that is gone."""

    def on_ended(self, *, is_over: bool) -> None:
        """The call has ended, or we know no more of it; `is_over`: the session has too.

        May be told more than once.
        """


class CodeJob:
    """Passes everything on. See `engine.jobs.executor.RunningJob`."""

    def __init__(self, job: RunningJob, use: Use) -> None:
        self._job, self._use = job, use

    async def watch(self, listener: JobListener) -> Outcome:
        outcome: Outcome | None = None
        try:
            outcome = await self._job.watch(_Heard(listener, self._use))
        finally:
            self._use.on_ended(is_over=outcome is Outcome.BROKEN)
        return outcome

    async def cancel(self, grace_secs: float) -> list[int] | None:
        return await self._job.cancel(grace_secs)

    async def write(self, data: bytes, *, eof: bool) -> Written | None:
        return await self._job.write(data, eof=eof)

    async def listener(self) -> str:
        return await self._job.listener()

    async def survivors(self) -> list[dict[str, Any]]:
        return await self._job.survivors()


class _Heard:
    """A listener that the session hears before."""

    def __init__(self, listener: JobListener, use: Use) -> None:
        self._listener, self._use = listener, use

    def on_started(self, news: dict[str, Any]) -> None:
        self._use.on_started(news)
        self._listener.on_started(news)

    def on_grew(self, news: dict[str, Any]) -> None:
        self._listener.on_grew(news)

    def on_blocked(self, category: str | None) -> None:
        self._listener.on_blocked(category)

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self._use.on_ended(is_over=bool(record["sessionReset"]))
        self._listener.on_ended(record, state)

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        self._listener.on_settled(news, state)


async def wait_ended(job: RunningJob) -> None:
    """Wait for the end of a job that nobody else watches here."""
    listener = _EndListener()

    async def watch() -> None:
        await job.watch(listener)
        listener.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await listener.ended.wait()
        nursery.cancel_scope.cancel()


class _EndListener:
    """Notes that a job has ended."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    def on_started(self, news: dict[str, Any]) -> None:
        return

    def on_grew(self, news: dict[str, Any]) -> None:
        return

    def on_blocked(self, category: str | None) -> None:
        return

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self.ended.set()

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        return
