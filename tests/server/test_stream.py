"""Mirrors `engine/server/stream.py`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from engine.server.stream import WRITE_STALL_SECS, HeadStream


async def connected() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = trio.socket.socketpair()
    return trio.SocketStream(ours), trio.SocketStream(theirs)


async def test_the_head_is_read_first_and_what_follows_once_it_is_open() -> None:
    ours, theirs = await connected()
    async with ours, theirs:
        stream = HeadStream(ours, b"head", b"rest")
        assert await stream.receive_some() == b"head"
        with trio.move_on_after(0.01) as scope:
            await stream.receive_some()
        assert scope.cancelled_caught
        stream.open()
        await theirs.send_all(b"more")
        assert await stream.receive_some(3) == b"res"
        assert await stream.receive_some() == b"t"
        assert await stream.receive_some() == b"more"
        assert stream.received == 4


async def test_a_write_of_which_the_client_takes_nothing_ends(autojump_clock: MockClock) -> None:
    ours, theirs = await connected()
    async with ours, theirs:
        start = trio.current_time()
        with pytest.raises(trio.BrokenResourceError, match="takes no data"):
            await (stream := HeadStream(ours)).send_all(b"x" * (16 << 20))
        assert stream.has_stalled
        assert trio.current_time() - start == WRITE_STALL_SECS == 30.0


async def test_a_message_in_too_many_frames_breaks_the_stream_and_says_so() -> None:
    ours, theirs = await connected()
    async with ours, theirs, trio.open_nursery() as nursery:
        stream = HeadStream(ours)
        stream.open()
        nursery.start_soon(theirs.send_all, b"\x01\x80mask" + b"\x00\x80mask" * 16_383)
        sizes: list[int] = []

        async def read() -> None:
            while True:
                sizes.append(len(await stream.receive_some(65_536)))

        with trio.fail_after(5), pytest.raises(trio.BrokenResourceError, match="too many frames"):
            await read()
        assert stream.has_too_many_frames
        assert max(sizes) <= 128 * 6
        assert sum(sizes) <= 16_383 * 6


async def test_a_closed_stream_takes_and_gives_nothing_more() -> None:
    ours, theirs = await connected()
    async with ours, theirs:
        stream = HeadStream(ours, b"head")
        await stream.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some()
        with pytest.raises(trio.ClosedResourceError):
            await stream.send_all(b"x")


async def test_last_words_arrive_though_the_client_is_still_sending() -> None:
    ours, theirs = await connected()
    async with theirs, trio.open_nursery() as nursery:

        async def end() -> None:
            async with ours:
                await HeadStream(ours).linger(b"last words")

        await theirs.send_all(b"x" * 10_000)
        nursery.start_soon(end)
        with trio.fail_after(5):
            assert await theirs.receive_some() == b"last words"
            assert await theirs.receive_some() == b""
            await theirs.send_all(b"x" * 10_000)
            await theirs.send_eof()


async def test_last_words_are_said_while_somebody_else_still_reads() -> None:
    ours, theirs = await connected()
    stream = HeadStream(ours)
    stream.open()
    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(stream.linger, b"last words")
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            assert await theirs.receive_some() == b"last words"
            await theirs.send_all(b"for the reader")
            await trio.testing.wait_all_tasks_blocked()
            await theirs.send_all(b"for nobody")
            await theirs.send_eof()


async def test_what_passes_is_told_as_it_does_and_once_more_at_the_end() -> None:
    ours, theirs = await connected()
    moved: list[int] = []
    async with ours, theirs:
        stream = HeadStream(ours, moved=moved.append)
        stream.open()
        await theirs.send_all(b"\x81\x80mask")
        await stream.receive_some()
        await stream.send_all(b"x" * 100)
        stream.end()
    assert moved == [6, 100, 106]
