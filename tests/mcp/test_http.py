"""Mirrors `engine/mcp/http.py`: the doors of /mcp, asked at each request."""

from __future__ import annotations

import subprocess

import h11
import httpx2
import pytest
import trio
from acceptance.running import PROGRAM, Engine
from agents import SDK_LEAVES_STREAMS, facts_of, over_http, text_of, url_of

LIMIT = 60.0
BODY = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer " + "x" * 43}, 401),
        ({"Authorization": "token", "Origin": "https://elsewhere.example"}, 403),
        ({"Authorization": "token", "Host": "elsewhere.example"}, 403),
    ],
)
async def test_who_may_not_come_in_is_turned_away(
    engine: Engine, headers: dict[str, str], status: int
) -> None:
    if headers.get("Authorization") == "token":
        headers = {**headers, "Authorization": f"Bearer {engine.token()}"}
    with trio.fail_after(LIMIT):
        async with httpx2.AsyncClient() as http:
            response = await http.post(url_of(engine), json=BODY, headers=headers)
    assert response.status_code == status


async def test_each_request_of_a_connection_has_to_pass_the_doors(engine: Engine) -> None:
    host, port = url_of(engine).removeprefix("http://").removesuffix("/mcp").split(":")

    def head(token: str, path: str = "/mcp") -> bytes:
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{port}",
            f"Authorization: Bearer {token}",
            "MCP-Protocol-Version: 2026-07-28",
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    with trio.fail_after(LIMIT):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            statuses = []
            http = h11.Connection(h11.CLIENT)
            asked = (head(engine.token()), head("x" * 43), head(engine.token(), "/livez"))
            for each in (*asked, head(engine.token())):
                await stream.send_all(each)
                http.send(h11.Request(method="GET", target="/mcp", headers=[("Host", "x")]))
                http.send(h11.EndOfMessage())
                while not isinstance(event := http.next_event(), h11.EndOfMessage):
                    if isinstance(event, h11.Response):
                        statuses.append(event.status_code)
                    elif event is h11.NEED_DATA:
                        http.receive_data(bytes(await stream.receive_some()))
                http.start_next_cycle()
    assert statuses == [
        405,
        401,
        404,
        405,
    ]  # an answer to POST alone: the first and the last are in


@SDK_LEAVES_STREAMS
async def test_at_an_address_of_its_own_it_is_the_same(engine: Engine) -> None:
    command = [str(PROGRAM), "--home", str(engine.home), "mcp", "--http", "127.0.0.1:0"]
    with trio.fail_after(LIMIT), engine.log.open("a") as errors:
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None
        async with process.stdout:
            url = (await process.stdout.receive_some()).decode().strip()
            async with over_http(engine, url=url, name="At Own") as agent:
                result = await agent.call_tool("bash", {"command": "echo hi"})
            async with httpx2.AsyncClient() as http:
                refused = await http.post(url, json=BODY)
            process.terminate()
            assert await process.wait() == 0
    assert text_of(result).endswith("\nhi")
    assert facts_of(result)["as"] == "mcp-at-own"
    assert refused.status_code == 401


async def test_an_address_that_is_not_the_machines_own_is_refused(engine: Engine) -> None:
    command = [str(PROGRAM), "--home", str(engine.home), "mcp", "--http", "0.0.0.0:0"]
    with trio.fail_after(LIMIT):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"engine mcp: listen '0.0.0.0:0': only loopback addresses")
