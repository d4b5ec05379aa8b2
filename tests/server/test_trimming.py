"""Mirrors `engine/server/trimming.py`."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from engine.server.trimming import Trimmer, find_trim


async def test_memory_is_given_back_once_when_much_has_passed(autojump_clock: MockClock) -> None:
    trimmed: list[int] = []
    changed = trio.Event()

    def trim(pad: int) -> int:
        trimmed.append(pad)
        trio.from_thread.run_sync(changed.set)
        return 1

    trimmer = Trimmer(trim)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trimmer.serve)
        trimmer.moved((8 << 20) - 1)
        await trio.sleep(100)
        assert trimmed == []
        for _ in range(10):
            trimmer.moved(5 << 20)
        began = trio.current_time()
        await changed.wait()
        assert 2 <= trio.current_time() - began < 3
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert trimmed == [0]


async def test_where_the_c_library_cannot_nothing_is_done() -> None:
    trimmer = Trimmer(None)
    trimmer.moved(1 << 30)
    await trimmer.serve()


def test_the_c_library_here_can() -> None:
    trim = find_trim()
    assert trim is not None
    assert trim(0) in (0, 1)
