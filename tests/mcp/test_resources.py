"""Mirrors `engine/mcp/resources.py`: what is asked of the engine, and what is no resource."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import types
from mcp.shared.exceptions import MCPError

from engine.client.errors import ClientError, ConnectionLost, RpcError
from engine.mcp.peers import Peer
from engine.mcp.resources import ResourceFace

LINES = {"lines": [], "nextAfterSeq": 7, "hasMore": False}


class FakeLink:
    """Answers every call alike, and keeps what it was asked."""

    def __init__(self, answer: dict[str, Any] | ClientError) -> None:
        self._answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append((method, params))
        if isinstance(self._answer, ClientError):
            raise self._answer
        return self._answer


async def read(link: FakeLink, uri: str) -> str:
    peer: Any = Peer(link=link, name="ci")  # type: ignore[arg-type]
    ctx: Any = None
    params = types.ReadResourceRequestParams(uri=uri)
    (contents,) = (await ResourceFace(lambda _ctx: peer).read_resource(ctx, params)).contents
    assert (str(contents.uri), contents.mime_type) == (uri, "text/plain")
    return getattr(contents, "text", "")


async def refuse(link: FakeLink, uri: str) -> Any:
    with pytest.raises(MCPError) as caught:
        await read(link, uri)
    return caught.value.error


async def test_an_output_is_its_newest_64_kib() -> None:
    link = FakeLink({"text": "one\ntwo\n"})
    assert await read(link, "engine://tasks/t8f3kr9/output") == "one\ntwo\n"
    wanted = {"as": "ci", "taskId": "t8f3kr9", "offset": -65_536, "limit_bytes": 65_536}
    assert link.asked == [("read_output", wanted)]


async def test_to_read_the_journal_moves_no_mark() -> None:
    link = FakeLink(dict(LINES))
    assert (await read(link, "engine://logs")).startswith("no new lines")
    ((method, asked),) = link.asked
    assert (method, asked["peek"], asked["logScope"], asked["limit"]) == (
        "read_logs",
        True,
        "all",
        200,
    )


@pytest.mark.parametrize(
    "uri",
    [
        "engine://other",
        "engine://logs/x",
        "engine://tasks//output",
        "engine://tasks/a/b/output",
        "engine://tasks/t1/output/",
        "file:///etc/passwd",
        "engine://tasks/" + "t" * 85 + "/output",
    ],
)
async def test_what_is_no_resource_is_not_asked_for(uri: str) -> None:
    link = FakeLink({"text": ""})
    error = await refuse(link, uri)
    assert (error.code, error.data, link.asked) == (-32602, {"uri": uri}, [])


@pytest.mark.parametrize("kind", ["unknown_handle", "expired_handle", "output_gone"])
async def test_a_task_that_is_not_there_is_no_resource(kind: str) -> None:
    uri = "engine://tasks/t1/output"
    error = await refuse(FakeLink(rpc_error(kind)), uri)
    assert (error.code, error.data) == (-32602, {"uri": uri})


async def test_another_trouble_is_told_with_the_next_step() -> None:
    uri = "engine://tasks/t1/output"
    busy = await refuse(FakeLink(rpc_error("overloaded")), uri)
    assert (busy.code, busy.message.partition(":")[0]) == (-32603, "overloaded")
    lost = await refuse(FakeLink(ConnectionLost("the engine went away")), uri)
    assert lost.code == -32603
    assert lost.message == "connection_lost: the engine went away\nNext: call it again."


def rpc_error(kind: str) -> RpcError:
    return RpcError(-32000, "no", {"kind": kind})
