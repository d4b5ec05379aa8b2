"""Mirrors `engine/server/dispatcher.py`: over real sockets, with a table made for the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import LIMIT, Gate, call, raw, receive, serving
from structlog.testing import capture_logs
from trio_websocket import ConnectionClosed

from engine.errors import InvalidState
from engine.protocol.params import EngineInfoParams
from engine.server.dispatcher import Method, Request

VECTORS = json.loads(
    (Path(__file__).parents[1] / "protocol" / "jsonrpc_vectors.json").read_text(encoding="utf-8")
)
MARKER = {"jsonrpc": "2.0", "id": "marker", "result": ["hello", 5]}


def _sorted_text(reply: Any) -> str:
    return json.dumps(reply, sort_keys=True)


def compared(reply: Any) -> Any:
    """The part of a reply that the vectors lay down: no message and no data of an error."""
    if isinstance(reply, list):
        return sorted((compared(one) for one in reply), key=_sorted_text)
    if reply is not None and "error" in reply:
        return {**reply, "error": {"code": reply["error"]["code"]}}
    return reply


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["send"][:40])
async def test_jsonrpc_vector_is_answered_as_the_specification_says(
    vector: dict[str, Any], tmp_path: Path
) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message(vector["send"])
        if vector["expect"] is not None:
            assert compared(await receive(websocket)) == compared(vector["expect"])
        assert await call(websocket, "get_data", id_="marker") == MARKER


async def test_every_error_reply_carries_its_kind(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        assert await call(websocket, "nothing") == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {
                "code": -32601,
                "message": "no such method: nothing",
                "data": {"kind": "method_not_found"},
            },
        }


async def test_an_unknown_exception_answers_internal_error_and_is_logged_with_the_request_id(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        with capture_logs() as logs:
            reply = await call(websocket, "fail", id_="r-7")
    assert reply["error"] == {
        "code": -32603,
        "message": "internal error",
        "data": {"kind": "internal_error"},
    }
    entry = next(entry for entry in logs if entry["event"] == "request failed")
    assert (entry["requestId"], entry["method"], entry["exc_info"]) == ("r-7", "fail", True)


async def test_a_result_that_no_json_can_hold_is_an_internal_error(tmp_path: Path) -> None:
    async def lone(request: Request, params: Any) -> str:
        return "\ud800"

    async with serving(tmp_path, {"lone": raw(lone)}) as served, served.client() as websocket:
        assert (await call(websocket, "lone"))["error"]["code"] == -32603
        assert await call(websocket, "get_data", id_="marker") == MARKER


async def test_a_reply_over_one_mebibyte_is_replaced_by_an_internal_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        with capture_logs() as logs:
            reply = await call(websocket, "fill", [1 << 20])
    assert reply["error"]["code"] == -32603
    assert any(entry["event"] == "request failed" for entry in logs)


async def test_the_texts_of_a_result_over_one_mebibyte_are_cut_until_it_fits(
    tmp_path: Path,
) -> None:
    async def tell(request: Request, params: Any) -> dict[str, Any]:
        return {"taskId": "t123456", "output": "x" * (2 << 20)}

    async with serving(tmp_path, {"tell": raw(tell)}) as served, served.client() as websocket:
        with capture_logs() as logs:
            result = (await call(websocket, "tell"))["result"]
    assert result["taskId"] == "t123456"
    assert result["output"].endswith(" characters left out; read_output has them>")
    assert 400_000 < len(result["output"]) < 1 << 20
    assert any(entry["event"] == "result cut" for entry in logs)


async def test_the_replies_of_a_batch_share_one_mebibyte(tmp_path: Path) -> None:
    calls = [{"jsonrpc": "2.0", "id": i, "method": "fill", "params": [400_000]} for i in range(3)]
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message(json.dumps(calls))
        with trio.fail_after(LIMIT):
            text = await websocket.get_message()
    assert len(text) <= 1 << 20
    replies = json.loads(text)
    errors = [reply["error"] for reply in replies if "error" in reply]
    assert sorted(reply["id"] for reply in replies) == [0, 1, 2]
    assert [error["code"] for error in errors] == [-32007]
    assert errors[0]["data"] == {"kind": "overloaded", "limit": 1048576}


async def test_a_call_in_a_batch_is_told_a_smaller_page(tmp_path: Path) -> None:
    async def page_bytes(request: Request, params: Any) -> int:
        return request.page_bytes

    methods = {"page_bytes": raw(page_bytes)}
    one = {"jsonrpc": "2.0", "id": 1, "method": "page_bytes"}
    async with serving(tmp_path, methods) as served, served.client() as websocket:
        assert (await call(websocket, "page_bytes"))["result"] == 524288
        await websocket.send_message(json.dumps([one] * 64))
        replies = await receive(websocket)
    assert {reply["result"] for reply in replies} == {7936}


@pytest.mark.parametrize(("size", "code"), [(64, None), (65, -32600)])
async def test_a_batch_has_at_most_64_calls(size: int, code: int | None, tmp_path: Path) -> None:
    one = {"jsonrpc": "2.0", "id": 1, "method": "get_data"}
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message(json.dumps([one] * size))
        reply = await receive(websocket)
    if code is None:
        assert len(reply) == 64
    else:
        assert (reply["id"], reply["error"]["code"]) == (None, code)


@pytest.mark.case("C143")
async def test_one_id_twice_in_flight_is_answered_twice_and_cancelled_on_its_connection_alone(
    tmp_path: Path,
) -> None:
    gate = Gate()
    cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}
    wait = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "gate"})
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as ours,
        served.client() as theirs,
    ):
        for websocket in (ours, ours, theirs):
            await websocket.send_message(wait)
        await gate.wait_until("started", 3)
        await ours.send_message(json.dumps(cancel))
        replies = [await receive(ours), await receive(ours)]
        assert [(reply["id"], reply["error"]["code"]) for reply in replies] == [(1, -32008)] * 2
        await ours.send_message(wait)
        await ours.send_message(wait)
        await gate.wait_until("started", 5)
        gate.opened.set()
        through = {"jsonrpc": "2.0", "id": 1, "result": "through"}
        assert [await receive(ours), await receive(ours)] == [through, through]
        assert await receive(theirs) == through


@pytest.mark.case("C127")
async def test_after_a_cancelled_call_the_next_call_works(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as websocket,
    ):
        message = {"jsonrpc": "2.0", "id": "long", "method": "gate"}
        await websocket.send_message(json.dumps(message))
        await gate.wait_until("started", 1)
        cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "long"}}
        await websocket.send_message(json.dumps(cancel))
        assert await receive(websocket) == {
            "jsonrpc": "2.0",
            "id": "long",
            "error": {
                "code": -32008,
                "message": "the request was cancelled",
                "data": {"kind": "request_cancelled"},
            },
        }
        assert gate.settled == [False]
        assert await call(websocket, "get_data", id_="marker") == MARKER


@pytest.mark.parametrize("params", [{"id": "unknown"}, {"id": [1]}, [1], {"x": 1}, None])
async def test_a_cancel_that_finds_nothing_is_silent(params: Any, tmp_path: Path) -> None:
    message = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": params}
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message(json.dumps(message))
        assert await call(websocket, "get_data", id_="marker") == MARKER


async def test_finished_is_told_true_once_the_reply_is_written(tmp_path: Path) -> None:
    gate = Gate()
    gate.opened.set()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as websocket,
    ):
        assert (await call(websocket, "gate"))["result"] == "through"
        await gate.wait_until("settled", 1)
    assert gate.settled == [True]


async def test_finished_is_told_false_when_the_client_goes_away(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path, {"gate": raw(gate.method)}) as served:
        async with served.client() as websocket:
            message = {"jsonrpc": "2.0", "id": 1, "method": "gate"}
            await websocket.send_message(json.dumps(message))
            await gate.wait_until("started", 1)
        await gate.wait_until("settled", 1)
    assert gate.settled == [False]


async def test_finished_is_told_false_when_the_handler_fails_or_nobody_asked_for_a_reply(
    tmp_path: Path,
) -> None:
    settled: list[bool] = []

    async def failing(request: Request, params: Any) -> None:
        request.finished = settled.append
        raise KeyError

    async def fine(request: Request, params: Any) -> None:
        request.finished = settled.append

    methods = {"failing": raw(failing), "fine": raw(fine)}
    async with serving(tmp_path, methods) as served, served.client() as websocket:
        await call(websocket, "failing")
        assert settled == [False]
        await websocket.send_message('{"jsonrpc": "2.0", "method": "fine"}')
        await call(websocket, "get_data")
        assert settled == [False, False]


async def test_requests_in_flight_on_a_connection_are_bounded_in_number(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}, max_waits=3) as served,
        served.client() as websocket,
    ):
        for id_ in range(4):
            message = {"jsonrpc": "2.0", "id": id_, "method": "gate"}
            await websocket.send_message(json.dumps(message))
        reply = await receive(websocket)
        assert (reply["id"], reply["error"]["code"]) == (3, -32007)
        data = {"kind": "overloaded", "limit": 3, "setting": "max_waits"}
        assert reply["error"]["data"] == data
        gate.opened.set()
        assert sorted([(await receive(websocket))["id"] for _ in range(3)]) == [0, 1, 2]
        assert await call(websocket, "get_data", id_="marker") == MARKER


async def test_requests_in_flight_on_a_connection_are_bounded_in_bytes(tmp_path: Path) -> None:
    gate = Gate()
    methods = {"gate": raw(gate.method)}
    async with (
        serving(tmp_path, methods, max_inflight_bytes=10_000) as served,
        served.client() as websocket,
    ):
        message = {"jsonrpc": "2.0", "id": 1, "method": "gate", "params": ["x" * 9_950]}
        await websocket.send_message(json.dumps(message))
        reply = await call(websocket, "get_data", id_=2)
        assert (reply["id"], reply["error"]["code"]) == (2, -32007)
        assert reply["error"]["data"]["limit"] == 10_000


async def test_a_role_that_may_not_call_a_method_is_forbidden(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for role, code in (("agent", -32009), ("observer", -32009), ("human", None)):
            async with served.client(role) as websocket:
                reply = await call(websocket, "answer")
                assert reply.get("error", {}).get("code") == code, role


async def test_params_are_decoded_before_the_handler_and_a_stale_fingerprint_is_told(
    tmp_path: Path,
) -> None:
    seen: list[Any] = []

    async def info(request: Request, params: EngineInfoParams) -> dict[str, Any]:
        seen.append(params.as_)
        return {"name": "engine"}

    methods = {"info": Method(handler=info, params=EngineInfoParams)}
    async with (
        serving(tmp_path, methods, fingerprint="now") as served,
        served.client() as websocket,
    ):
        reply = await call(websocket, "info", {"as": "../x"})
        assert reply["error"]["message"] == "$.as: expected 1 to 64 characters of a-z 0-9 _ -"
        reply = await call(websocket, "info", {"as": "a", "tool_schema_fingerprint": "old"})
        assert reply["result"] == {"schemaChanged": True, "name": "engine"}
        reply = await call(websocket, "info", {"tool_schema_fingerprint": "now"})
        assert reply["result"] == {"name": "engine"}
    assert seen == ["a", None]


async def test_while_shutting_down_new_requests_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        served.dispatcher.is_shutting_down = True
        reply = await call(websocket, "get_data")
    assert reply["error"]["code"] == -32006
    assert reply["error"]["data"] == {"kind": "shutting_down"}


async def test_replies_go_out_in_the_order_in_which_they_are_ready(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as websocket,
    ):
        message = {"jsonrpc": "2.0", "id": "slow", "method": "gate"}
        await websocket.send_message(json.dumps(message))
        assert (await call(websocket, "get_data", id_="quick"))["id"] == "quick"
        gate.opened.set()
        assert (await receive(websocket))["id"] == "slow"


@pytest.mark.case("C139")
async def test_bad_jsonrpc_is_answered_and_the_connection_stays_up(tmp_path: Path) -> None:
    async def typed(request: Request, params: EngineInfoParams) -> str:
        return "typed"

    methods = {"typed": Method(handler=typed, params=EngineInfoParams)}
    message = '{"jsonrpc":"2.0","method":"typed","id":%s}'
    sent: list[tuple[str, Any, Any]] = [
        ("{", None, -32700),
        ("[]", None, -32600),
        ("1", None, -32600),
        ('{"jsonrpc":"2.0"}', None, -32600),
        (message % "{}", None, -32600),
        (message % "0", 0, "typed"),
        (message % '""', "", "typed"),
        (message % "null", None, "typed"),
        (message % "1.5", 1.5, "typed"),
        ('{"jsonrpc":"2.0","method":"typed","id":1,"params":{}}', 1, "typed"),
        ('{"jsonrpc":"2.0","method":"typed","id":1,"params":[]}', 1, -32602),
        ('{"jsonrpc":"2.0","method":"unknown","id":1}', 1, -32601),
    ]
    async with serving(tmp_path, methods) as served:
        async with served.client() as websocket:
            for text, id_, expected in sent:
                await websocket.send_message(text)
                reply = await receive(websocket)
                found = reply["result"] if "result" in reply else reply["error"]["code"]
                assert (reply["id"], found) == (id_, expected), text
            await websocket.send_message("[1]")
            assert [one["error"]["code"] for one in await receive(websocket)] == [-32600]
            await websocket.send_message('{"jsonrpc":"2.0","method":"typed"}')
            assert await call(websocket, "get_data", id_="marker") == MARKER
        async with served.client() as websocket:
            await websocket.send_message(b"{}")
            with trio.fail_after(LIMIT), pytest.raises(ConnectionClosed) as caught:
                await websocket.get_message()
            assert caught.value.reason is not None
            assert caught.value.reason.code == 1003


@pytest.mark.case("C142")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 200_000, (None, -32700)),
        ('{"jsonrpc":"2.0","id":1,"method":"get_data","cmd":1,"cmd":2}', (None, -32700)),
        # Correct as JSON: the protocol answers a lone surrogate as bad params.
        ('{"jsonrpc":"2.0","id":1,"method":"get_data","params":{"\\ud800":1}}', (1, -32602)),
    ],
    ids=["deep", "name twice", "surrogate in a name"],
)
async def test_hostile_json_is_refused_and_harms_no_connection(
    text: str, expected: tuple[Any, int], tmp_path: Path
) -> None:
    async with (
        serving(tmp_path) as served,
        served.client() as websocket,
        served.client() as other,
    ):
        await websocket.send_message(text)
        reply = await receive(websocket)
        assert (reply["id"], reply["error"]["code"]) == expected
        assert await call(websocket, "get_data", id_="marker") == MARKER
        assert await call(other, "get_data", id_="marker") == MARKER


async def test_a_request_knows_what_had_been_delivered_when_it_came(tmp_path: Path) -> None:
    gate = trio.Event()

    async def deliver(request: Request, params: Any) -> None:
        def settle(written: bool) -> None:
            request.connection.deliveries += written

        request.also_finished(settle)

    async def known(request: Request, params: Any) -> int:
        await gate.wait()
        return request.deliveries

    methods = {"deliver": raw(deliver), "known": raw(known)}
    async with serving(tmp_path, methods) as served, served.client() as client:
        early = {"jsonrpc": "2.0", "id": "early", "method": "known"}
        await client.send_message(json.dumps(early))
        await call(client, "deliver", id_="delivery")
        gate.set()
        assert await receive(client) == {"jsonrpc": "2.0", "id": "early", "result": 0}
        assert (await call(client, "known", id_="late"))["result"] == 1


async def test_all_who_asked_are_told_what_became_of_a_reply_in_their_order(
    tmp_path: Path,
) -> None:
    told: list[tuple[str, bool]] = []

    async def note(request: Request, params: Any) -> None:
        request.finished = lambda written: told.append(("first", written))
        request.also_finished(lambda written: told.append(("second", written)))
        request.also_finished(lambda written: told.append(("third", written)))
        if params is not None:
            raise InvalidState("no", state="none")

    async with serving(tmp_path, {"note": raw(note)}) as served, served.client() as client:
        await call(client, "note")
        await call(client, "get_data")  # by then the first reply is settled
        assert told == [("first", True), ("second", True), ("third", True)]
        told.clear()
        await call(client, "note", {})
        assert told == [("first", False), ("second", False), ("third", False)]
