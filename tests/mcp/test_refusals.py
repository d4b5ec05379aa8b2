"""Mirrors `engine/mcp/refusals.py`."""

from __future__ import annotations

import pytest

from engine.client.errors import ConnectionLost, NotReachable, RpcError
from engine.mcp.refusals import words_of


def test_an_error_has_its_kind_its_text_its_facts_and_the_next_step() -> None:
    data = {"kind": "expired_handle", "handle": "t1", "endedAt": "2026-11-30", "status": "failed"}
    assert words_of("wait", RpcError(-32004, "t1 has expired", data)) == (
        "expired_handle: t1 has expired; endedAt: 2026-11-30; status: failed\n"
        "Next: its result is gone; list_tasks shows what there is, or run it again."
    )


@pytest.mark.parametrize("tool", ["bash", "execute", "run_round", "write_stdin"])
def test_what_may_have_been_done_is_not_simply_repeated(tool: str) -> None:
    assert "call list_tasks to see" in words_of(tool, ConnectionLost("gone"))


def test_what_only_looks_is_called_again() -> None:
    assert words_of("wait", ConnectionLost("gone")) == (
        "connection_lost: gone\nNext: call it again."
    )
    assert words_of("wait", NotReachable("not there")).startswith("not_reachable: not there\nNext")


def test_a_kind_that_is_not_known_is_told_as_it_is() -> None:
    assert words_of("wait", RpcError(-1, "odd", {"kind": "new"})) == "new: odd"
