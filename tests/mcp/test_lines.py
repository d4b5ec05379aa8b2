"""Mirrors `engine/mcp/lines.py`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import memory_stream_pair

from engine.mcp import lines
from engine.mcp.lines import BadLine, Lines

LIMIT = 5.0


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_lines_are_put_together_however_they_come(size: int) -> None:
    near, far = memory_stream_pair()
    whole = b"wo\r\n\nthree\nrest"
    with trio.fail_after(LIMIT):
        async with near, trio.open_nursery() as nursery:

            async def send() -> None:
                for start in range(0, len(whole), size):
                    await far.send_all(whole[start : start + size])
                await far.send_eof()

            nursery.start_soon(send)
            reader = Lines(near, b"one\nt")
            found = []
            while (line := await reader.next()) is not None:
                found.append(line)
    assert found == [b"one", b"two\r", b"", b"three"]


async def test_a_line_without_an_end_ends_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 100)
    near, far = memory_stream_pair()
    await far.send_all(b"x" * 101)
    with trio.fail_after(LIMIT), pytest.raises(BadLine, match="a line of more than 100 bytes"):
        await Lines(near, b"").next()


async def test_the_first_line_is_a_greeting() -> None:
    near, _far = memory_stream_pair()
    said = b'{"name":"ci","cwd":"/x","env":{"A":"1"},"max_wait":4,"later":true}\n{}\n'
    greeting = await Lines(near, said).greeting()
    assert (greeting.name, greeting.cwd, greeting.env) == ("ci", "/x", {"A": "1"})
    assert greeting.max_wait == 4.0


@pytest.mark.parametrize("line", [b"{}\n", b'{"name":5}\n', b"hello\n"])
async def test_anything_else_is_none(line: bytes) -> None:
    near, _far = memory_stream_pair()
    with pytest.raises(BadLine, match="no greeting"):
        await Lines(near, line).greeting()


async def test_who_says_nothing_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    near, _far = memory_stream_pair()
    with pytest.raises(BadLine, match="no greeting"):
        await Lines(near, b"").greeting()
    assert trio.current_time() == pytest.approx(10.0)
