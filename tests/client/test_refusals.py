"""Mirrors `engine/client/refusals.py`."""

from __future__ import annotations

import pytest

from engine import errors
from engine.client.errors import ClientError, RpcError
from engine.client.refusals import as_error

SAID: list[errors.EngineError] = [
    errors.ParseError("no JSON"),
    errors.InvalidRequest("no message"),
    errors.MethodNotFound("nothing"),
    errors.InvalidParams("$.timeout_secs", "number >= 0"),
    errors.InternalError(),
    errors.UnknownHandle("t8f3kq2"),
    errors.ExpiredHandle("t8f3kq2", ended_at="2026-11-30T12:04:31.208Z", status="failed"),
    errors.ShuttingDown(),
    errors.Overloaded("the pipe is full", 1_048_576, written=7),
    errors.RequestCancelled(),
    errors.Forbidden("not with this token"),
    errors.OutputGone(4096),
    errors.InvalidState("no stdin", state="running", hint="none"),
    errors.DuplicateHandle("t8f3kq2"),
    errors.KeyConflict("k", task_id="t8f3kq2"),
    errors.KeyConflict("k"),
]


def told(error: errors.EngineError) -> RpcError:
    """As the wire brings it."""
    wire = errors.to_error_data(error)
    return RpcError(wire.code, wire.message, wire.data)


@pytest.mark.parametrize("said", SAID, ids=lambda error: error.kind)
def test_what_the_engine_said_comes_out_as_it_was(said: errors.EngineError) -> None:
    heard = as_error(told(said))
    assert type(heard) is type(said)
    assert (str(heard), vars(heard)) == (str(said), vars(said))
    assert isinstance(heard, errors.EngineError)
    assert heard.data() == said.data()


def test_each_error_of_the_engine_is_told_apart() -> None:
    assert {type(error) for error in SAID} == set(errors.EngineError.__subclasses__())


def test_a_code_that_is_not_known_is_a_plain_error() -> None:
    refused = RpcError(-32099, "something new", {"kind": "novelty", "more": 1})
    heard = as_error(refused)
    assert heard is refused
    assert isinstance(heard, ClientError)
    assert (heard.code, heard.kind, heard.data) == (-32099, "novelty", refused.data)


def test_a_fact_that_is_left_out_is_none() -> None:
    heard = as_error(RpcError(-32003, "no such handle", None))
    assert isinstance(heard, errors.UnknownHandle)
    assert heard.handle is None
