"""Mirrors `engine/client/sync.py`; what it shares with the face on trio is tested with that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from client.fake_engine import FakeEngine

from engine.client.errors import ClientClosed, Unsendable
from engine.client.sync import Engine, connect


@pytest.fixture
def plain(fake: FakeEngine) -> Iterator[Engine]:
    with connect(fake.home, start=False, as_="ci") as engine:
        yield engine


def test_after_the_block_it_is_closed(fake: FakeEngine) -> None:
    with connect(fake.home, start=False) as engine:
        pass
    with pytest.raises(ClientClosed, match="closed before bash was sent"):
        engine.bash("true")
    with pytest.raises(ClientClosed, match="closed before bash was sent"):
        engine.run("true")


def test_what_is_no_json_is_unsendable_and_nothing_is_sent(fake: FakeEngine, plain: Engine) -> None:
    with pytest.raises(Unsendable, match="bytes is not JSON serializable"):
        plain.bash(b"true")  # type: ignore[arg-type]
    with pytest.raises(Unsendable, match="PosixPath is not JSON serializable"):
        plain.run([Path("/bin/true")])  # type: ignore[list-item]
    assert fake.methods() == ["hello"]


class AsyncTaker:
    async def __call__(self, data: bytes) -> None:
        raise AssertionError(data)


async def take(data: bytes) -> None:
    raise AssertionError(data)


@pytest.mark.parametrize("taker", [take, AsyncTaker()])
def test_a_taker_that_nobody_would_await_is_refused_before_the_job_starts(
    fake: FakeEngine, plain: Engine, taker: object
) -> None:
    with pytest.raises(TypeError, match="is a coroutine function; those are for"):
        plain.run("echo x", on_output=taker)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a coroutine function; those are for"):
        plain.run("echo x", on_stderr=taker)  # type: ignore[arg-type]
    assert "bash" not in fake.methods()
