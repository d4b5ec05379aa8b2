"""Clients that read nothing, say half of it, come in crowds or ask too much: others go on."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Client, Engine

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from scripts.hostile_queue import queue_rows
from scripts.hostile_watch import descriptors, resident
from scripts.hostile_wire import PING, Raw, announced, call, frame

LIMIT = 30.0


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that keeps 4 MiB of each output, and 100 calls in flight on a connection."""
    home = tmp_path_factory.mktemp("attacked") / "home"
    options = ("output_cap_bytes=4194304", "max_waits=100", "min_free_bytes=0", "slots=20")
    with Engine(home, *(word for each in options for word in ("--set", each))) as engine:
        yield engine


@pytest.fixture
def other(attacked: Engine) -> Iterator[Client]:
    """A well-behaved client."""
    with attacked.connect() as client:
        client.call("bash", as_="other", command="true")
        yield client


def answers(client: Client) -> bool:
    return bool(client.call("bash", as_="other", command="echo hi")["output"] == "hi\n")


def settles(engine: Engine, client: Client, before: int) -> bool:
    """Whether the engine lets go of the descriptors of those who went; it is told by their ends."""
    until = time.monotonic() + LIMIT
    while descriptors(engine.pid) > before + 8 and time.monotonic() < until:
        client.call("engine_info")  # a turn of the engine's
    return descriptors(engine.pid) <= before + 8


@pytest.mark.case("C133", "C134")
def test_one_who_follows_a_flood_and_never_reads_is_bounded_and_costs_nobody_anything(
    attacked: Engine, other: Client
) -> None:
    memory = resident(attacked.pid)
    caller = other.caller()
    task = caller.start("yes", deadline_secs=60)["taskId"]
    with Raw(attacked.home) as deaf, attacked.connect() as reader:
        asked = 0
        until = time.monotonic() + 3
        while time.monotonic() < until:  # each page asked for, none read
            params = {"taskId": task, "offset": -500_000, "limit_bytes": 500_000}
            one = frame(call(asked, "read_output", **params))
            if deaf.pour(one, min(until, time.monotonic() + 0.2)) < len(one):
                break
            asked += 1
        follower = reader.caller()
        sizes = [follower.call("read_output", taskId=task, offset=-1000)["size"]]
        while sizes[-1] == sizes[0] and time.monotonic() < until + LIMIT:
            sizes.append(follower.call("read_output", taskId=task, offset=-1000)["size"])
        begun = time.monotonic()
        said = other.call("bash", as_="quick", command="echo hi")
        took = time.monotonic() - begun
        # What A missed is told as a gap, with how much: not kept for it.
        gap = reader.caller().refuse("read_output", taskId=task, offset=4_000_000)
        now = reader.caller().call("read_output", taskId=task, offset=-1)
        held = resident(attacked.pid) - memory
        replies = [deaf.reply()]
        while replies[-1].get("error", {}).get("code") != -32007:
            replies.append(deaf.reply())
    caller.cancel(task)

    assert said["output"] == "hi\n"
    assert took < 0.5
    assert sizes[0] < sizes[-1]  # B keeps up with what grows
    assert held < 100  # MiB
    assert asked > 100
    refused = replies[-1]["error"]["data"]  # by count; what is under way on it is bounded so
    assert (refused["kind"], refused["limit"]) == ("overloaded", 100)
    assert (gap["code"], gap["data"]["kind"]) == (-32010, "output_gone")
    assert gap["data"]["oldestOffset"] > 4_000_000
    assert now["droppedBytes"] > 0  # the counter


@pytest.mark.case("C144")
def test_those_who_say_nothing_or_half_of_it_hold_up_nobody_and_leave_nothing(
    attacked: Engine, other: Client
) -> None:
    before = descriptors(attacked.pid)
    silent = [Raw(attacked.home, upgrade=False) for _ in range(100)]
    heads = [Raw(attacked.home, upgrade=False) for _ in range(50)]
    frames = [Raw(attacked.home) for _ in range(50)]
    for client in heads:
        client.send(b"GET /rpc HTTP/1.1\r\nHost: local")
    for client in frames[::2]:
        client.send(frame(call(1, "engine_info"))[:-5])
    for client in frames[1::2]:
        client.send(announced(16_000_000) + b"x" * 100_000)
    assert answers(other)
    with Raw(attacked.home) as dripping:
        for byte in frame(call(1, "engine_info")):
            dripping.send(bytes([byte]))
        assert dripping.reply()["result"]["name"] == "engine"
    assert answers(other)
    assert all(client.is_gone(LIMIT) for client in [*silent, *heads])  # after ten seconds
    for client in [*silent, *heads, *frames]:
        client.sock.close()
    assert settles(attacked, other, before)


@pytest.mark.case("C144")
def test_500_who_come_and_go_without_a_word_leave_nothing(attacked: Engine, other: Client) -> None:
    before = descriptors(attacked.pid)
    answered = 0
    for _wave in range(2):
        clients = [Raw(attacked.home) for _ in range(250)]
        for client in clients:
            client.send(frame(call(1, "hello", client="one of many")))
            client.send(frame(call(2, "read_logs", timeout_secs=55, logs="emergency")))
        for client in clients[::2]:
            answered += client.reply()["result"]["role"] == "agent"
        assert answers(other)
        for client in clients:
            client.sock.close()
    assert answered == 250
    assert settles(attacked, other, before)
    until = time.monotonic() + LIMIT
    # `other`'s connection, and what it ran; the last of the ends may be heard after the count.
    while other.call("engine_info")["callers"] > 2:
        assert time.monotonic() < until


def test_frames_of_any_make_are_answered_or_closed_with_their_code(
    attacked: Engine, other: Client
) -> None:
    memory = resident(attacked.pid)
    largest = 16 << 20
    ends = []
    for data in (
        frame(b"x" * (largest + 1)),
        frame(b"x", fin=False) + frame(b"", 0, fin=False) * 20_000,
        frame(b"\xaa\x56\x4a", rsv=4),
        frame(b"x" * 126, PING),
        frame(b"x", PING, fin=False),
    ):
        with Raw(attacked.home, extensions="permessage-deflate") as client:
            assert b"deflate" not in client.head.lower()
            client.pour(data, time.monotonic() + LIMIT)
            ends.append(client.end())
        assert answers(other)
    with Raw(attacked.home) as client:
        client.send(frame(b'"' + b"z" * (largest - 2) + b'"'))
        assert client.reply()["error"]["code"] == -32600
        client.send(frame(b"[" * largest))
        assert client.reply()["error"]["code"] == -32600
        client.send(frame(b"p", PING) * 5_000)
        assert {client.receive() for _ in range(5_000)} == {(10, b"p")}
        client.send(frame(call(1, "bash", as_="large", command="true # " + "x" * 1_000_000)))
        assert client.reply()["result"]["exitCode"] == 0
        assert answers(other)
    assert ends == [1009, 1009, 1002, 1002, 1002]
    assert resident(attacked.pid) - memory < 200


def test_deep_and_endless_json_and_one_id_many_times_are_each_answered(
    attacked: Engine, other: Client
) -> None:
    with Raw(attacked.home) as client:
        for text, code in (
            (b"[" * 200_000 + b"]" * 200_000, -32700),
            (b'{"jsonrpc":"2.0","id":1,"method":"wait","params":' + b'{"a":' * 200_000, -32700),
            (b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b',"method":"roster"}', -32600),
        ):
            client.send(frame(text))
            assert client.reply()["error"]["code"] == code
            assert answers(other)
        for _ in range(100):
            client.send(frame(call(5, "read_logs", timeout_secs=55, logs="emergency")))
        cancel = json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 5}})
        for _ in range(10_000 // 64):
            client.send(frame(f"[{','.join([cancel] * 64)}]".encode()))
        replies = [client.reply() for _ in range(100)]
    assert {(reply["id"], reply["error"]["code"]) for reply in replies} == {(5, -32008)}
    assert answers(other)


def test_2000_callers_on_one_connection_are_known_and_forgotten_as_others_are(
    attacked: Engine, other: Client
) -> None:
    memory = resident(attacked.pid)
    with Raw(attacked.home) as client:
        for start in range(0, 2_000, 50):
            calls = [
                call(number, "read_logs", as_=f"name-{number}", limit=1)
                for number in range(start, start + 50)
            ]
            client.send(frame(b"[" + b",".join(calls) + b"]"))
            assert len(client.reply()) == 50
    assert answers(other)
    assert resident(attacked.pid) - memory < 30


def test_a_long_queue_is_listed_cancelled_and_started_in_order_after_a_kill(
    tmp_path: Path,
) -> None:
    rows, faults = queue_rows(tmp_path / "home", 100, math.inf, 0.0)
    assert faults == []
    assert len(rows) == 7
