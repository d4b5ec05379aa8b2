"""Mirrors `engine/mcp/inflight.py`."""

from __future__ import annotations

import json

import pytest

from engine.mcp.inflight import Ledger, Lines


def request(id_: int | str, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def test_a_handshake_is_repeated_and_its_second_answer_kept_back() -> None:
    ledger = Ledger()
    initialize, initialized = request(0, "initialize"), b'{"method":"notifications/initialized"}\n'
    ledger.sent(initialize)
    assert ledger.is_for_client(b'{"id":0,"result":{}}')
    ledger.sent(initialized)
    assert ledger.handshake == [initialize, initialized]
    ledger.repeated()
    assert ledger.is_for_client(b'{"method":"notifications/message"}')
    assert not ledger.is_for_client(b'{"id":0,"result":{}}')
    assert ledger.is_for_client(b'{"id":0,"result":{}}')


def test_a_handshake_that_was_not_answered_yet_is_answered_by_the_next_engine() -> None:
    ledger = Ledger()
    ledger.sent(request(0, "initialize"))
    ledger.repeated()
    assert ledger.is_for_client(b'{"id":0,"result":{}}')


def test_only_what_is_in_flight_is_given_up() -> None:
    ledger = Ledger()
    ledger.sent(request(1, "tools/list"))
    ledger.sent(request("b", "tools/call", name="wait"))
    ledger.sent(request(3, "tools/call", name="bash"))
    ledger.sent(request(4, "tools/call", name="bash"))
    ledger.is_for_client(b'{"id":3,"result":{}}')
    ledger.sent(b'{"method":"notifications/cancelled","params":{"requestId":4}}')
    answers = ledger.give_up("gone")
    assert [(answer["id"], "error" in answer) for answer in answers] == [(1, True), ("b", False)]
    assert answers[1]["result"]["isError"] is True
    assert ledger.give_up("gone") == []


def test_since_2026_an_answer_says_that_it_is_complete() -> None:
    ledger = Ledger()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    ledger.sent(request(1, "tools/call", name="wait", _meta=meta))
    (answer,) = ledger.give_up("gone")
    assert answer["result"]["resultType"] == "complete"


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_lines_are_put_together_however_they_come(size: int) -> None:
    lines, whole = Lines(), b"one\n\r\x85two\n\nthree\nrest"
    found = [line for i in range(0, len(whole), size) for line in lines.feed(whole[i : i + size])]
    assert found == [b"one\n", b"\r\x85two\n", b"\n", b"three\n"]
