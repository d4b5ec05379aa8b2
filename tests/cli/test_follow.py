"""Mirrors `engine/cli/follow.py`: what `Tail` makes of pages; the verbs test the rest."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from client.fake_engine import FakeEngine

from engine.cli.follow import Tail
from engine.client.blocking import Client
from engine.client.errors import Refused
from engine.client.places import find_place


@pytest.fixture
def tail(fake: FakeEngine) -> Iterator[Tail]:
    client = Client(lambda: find_place(str(fake.home), None, {}))
    client.connect()
    yield Tail(client, "ci", "t1", "output")
    client.close()


def page(data: bytes, offset: int, size: int, *, eof: bool = False) -> dict[str, Any]:
    return {
        "base64": base64.b64encode(data).decode(),
        "offset": offset,
        "nextOffset": offset + len(data),
        "size": size,
        "eof": eof,
    }


def test_pages_are_asked_for_one_after_the_other(tail: Tail) -> None:
    assert tail.take(page(b"ab", 0, 5), has_ended=False) == b"ab"
    assert tail.page_params(20.0)["offset"] == 2
    assert tail.take(page(b"cde", 2, 5), has_ended=False) == b"cde"
    assert not tail.cursor.is_done  # the task runs: more may come
    assert tail.take(page(b"", 5, 5, eof=True), has_ended=False) == b""
    assert tail.cursor.is_done


def test_a_task_that_has_ended_is_read_to_the_size_a_page_names(tail: Tail) -> None:
    tail.take(page(b"ab", 0, 5), has_ended=True)
    assert not tail.cursor.is_done
    tail.take(page(b"cde", 2, 5, eof=False), has_ended=True)
    assert tail.cursor.is_done  # whoever it left behind may write on for ever


def test_bytes_that_are_gone_are_counted_and_passed_over(tail: Tail) -> None:
    tail.take(page(b"ab", 0, 99), has_ended=False)
    tail.skip(Refused(-32010, "gone", {"kind": "output_gone", "oldestOffset": 50}))
    assert (tail.cursor.offset, tail.cursor.gone) == (50, 48)
    assert tail.take(page(b"xy", 60, 99), has_ended=False) == b"xy"
    assert (tail.cursor.offset, tail.cursor.gone) == (62, 58)


@pytest.mark.parametrize(
    ("code", "data"),
    [(-32003, {}), (-32010, {}), (-32010, {"oldestOffset": 0}), (-32010, {"oldestOffset": "x"})],
)
def test_any_other_refusal_is_raised(tail: Tail, code: int, data: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        tail.skip(Refused(code, "no", data))
