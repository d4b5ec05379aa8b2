from __future__ import annotations

import threading
import time

import pytest
import trio

from engine.threads import check_cancelled, in_thread


def where(text: str) -> tuple[str, bool]:
    return text, threading.current_thread() is threading.main_thread()


async def test_work_is_done_in_another_thread() -> None:
    with trio.fail_after(5):
        assert await in_thread(where, "x") == ("x", False)


async def test_where_no_thread_is_to_be_had_the_work_is_done_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_args: object, **_named: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    with trio.fail_after(5):
        assert await in_thread(where, "x") == ("x", True)


async def test_what_the_work_raises_comes_through_and_it_is_done_once() -> None:
    begun = []

    def fail() -> None:
        begun.append(1)
        raise RuntimeError("the work's own")

    with trio.fail_after(5), pytest.raises(RuntimeError, match="the work's own"):
        await in_thread(fail)
    assert begun == [1]


async def test_long_work_ends_with_the_task_that_it_is_done_for() -> None:
    begun = threading.Event()

    def work() -> None:
        begun.set()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            check_cancelled()

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, work)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < 5


def test_work_of_the_event_loop_itself_is_not_asked() -> None:
    check_cancelled()
