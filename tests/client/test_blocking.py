"""Mirrors `engine/client/blocking.py`."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from client.fake_engine import FakeEngine

from engine.client.blocking import Client
from engine.client.errors import ClientClosed, ConnectionLost, NotReachable, Refused, Unsendable
from engine.client.places import find_place

LIMIT = 10.0  # seconds


@pytest.fixture
def client(fake: FakeEngine) -> Iterator[Client]:
    client = Client(lambda: find_place(str(fake.home), None, {}), hello={"client": "test"})
    client.connect()
    yield client
    client.close()


def bash(command: str, **more: object) -> dict[str, object]:
    return {"as": "ci", "command": command, **more}


def test_a_call_returns_its_result_and_raises_its_error(client: Client) -> None:
    assert client.call("bash", bash("echo hi"))["output"] == "hi\n"
    with pytest.raises(Refused, match="no method nothing") as caught:
        client.call("nothing", {})
    assert caught.value.code == -32601


def test_answers_come_in_the_order_in_which_they_are_ready(client: Client) -> None:
    slow = client.submit("bash", bash("sleep 0.3; echo slow"), budget=20)
    quick = client.submit("bash", bash("echo quick"), budget=20)
    got = [client.next_answer(time.monotonic() + LIMIT) for _ in range(2)]
    assert [g[0] for g in got if g] == [quick, slow]


def test_a_call_keeps_the_answers_to_others_for_later(client: Client) -> None:
    first = client.submit("bash", bash("echo first"), budget=20)
    assert client.call("bash", bash("sleep 0.3; echo second"))["output"] == "second\n"
    got = client.next_answer(time.monotonic() + LIMIT)
    assert got is not None
    assert (got[0], got[1].result["output"]) == (first, "first\n")


def test_no_answer_by_the_moment_given_is_none(client: Client) -> None:
    client.submit("bash", bash("sleep 5"), budget=20)
    began = time.monotonic()
    assert client.next_answer(began + 0.1) is None
    assert 0.05 < time.monotonic() - began < 2


def test_a_lost_call_is_sent_again_on_the_next_connection(fake: FakeEngine, client: Client) -> None:
    client.submit("bash", bash("sleep 0.5; echo once", key="k"), budget=20)
    fake.wait_for(lambda: "bash" in fake.methods())
    fake.drop()
    got = client.next_answer(time.monotonic() + LIMIT)
    assert got is not None
    assert got[1].result["output"] == "once\n"
    assert fake.methods() == ["hello", "bash", "hello", "bash"]
    assert len(fake.jobs) == 1


def test_a_call_that_must_not_run_twice_is_not_sent_again(fake: FakeEngine, client: Client) -> None:
    client.submit("bash", bash("sleep 5"), budget=20, resend=False)
    fake.wait_for(lambda: "bash" in fake.methods())
    fake.drop()
    with pytest.raises(ConnectionLost, match="before bash was answered: it may have been done"):
        client.next_answer(time.monotonic() + LIMIT)


def test_what_is_lost_and_what_is_back_is_told_once(fake: FakeEngine) -> None:
    told: list[str] = []
    client = Client(
        lambda: find_place(str(fake.home), None, {}),
        tell_lost=lambda: told.append("lost"),
        tell_back=lambda after: told.append("back"),
    )
    client.connect()
    fake.stop()
    again = threading.Timer(0.5, fake.start)
    again.start()
    assert client.call("engine_info", {})["slots"] == 32
    again.join()
    assert told == ["lost", "back"]
    client.close()


def test_patience_that_is_spent_is_not_reachable(fake: FakeEngine) -> None:
    client = Client(lambda: find_place(str(fake.home), None, {}), patience=0.3)
    client.connect()
    fake.stop()
    with pytest.raises(NotReachable, match=r"gave up after 0\.3 s"):
        client.call("engine_info", {})


def test_the_place_is_looked_for_at_each_attempt(fake: FakeEngine, tmp_path: Path) -> None:
    places: list[str] = []

    def find() -> object:
        places.append(str(fake.home))
        return find_place(str(fake.home), None, {})

    client = Client(find)  # type: ignore[arg-type]
    client.connect()
    fake.drop()
    client.call("engine_info", {})
    client.close()
    assert len(places) == 2


def test_a_close_for_length_is_final(fake: FakeEngine, client: Client) -> None:
    client.submit("bash", bash("sleep 30"), budget=20)
    fake.wait_for(lambda: "bash" in fake.methods())
    fake._connections[0].close(1009)
    with pytest.raises(Unsendable, match="longer than the engine takes"):
        client.next_answer(time.monotonic() + LIMIT)


def test_a_call_that_ends_the_connection_three_times_is_given_up(
    fake: FakeEngine, client: Client
) -> None:
    client.submit("bash", bash("sleep 30", key="k"), budget=20)
    for count in (1, 2, 3):
        fake.wait_for(lambda count=count: fake.methods().count("bash") == count)
        fake.drop()
        if count < 3:
            assert client.next_answer(time.monotonic() + 0.8) is None
    with pytest.raises(ConnectionLost, match="lost 3 times right after bash was sent"):
        client.next_answer(time.monotonic() + LIMIT)


@pytest.mark.parametrize(
    "params", [{"command": "x" * (16 << 20)}, {"key": "\udcff"}, {"deadline_secs": float("nan")}]
)
def test_what_no_engine_would_take_is_not_sent(
    fake: FakeEngine, client: Client, params: dict[str, object]
) -> None:
    with pytest.raises(Unsendable):
        client.submit("bash", params)
    assert client.call("engine_info", {})["slots"] == 32
    assert "bash" not in fake.methods()


def test_a_withdrawn_call_is_cancelled_in_the_engine_and_its_answer_dropped(
    fake: FakeEngine, client: Client
) -> None:
    ticket = client.submit("bash", bash("sleep 0.3; echo unwanted"), budget=20)
    fake.wait_for(lambda: "bash" in fake.methods())
    client.withdraw(ticket)
    assert client.call("bash", bash("sleep 0.6; echo wanted"))["output"] == "wanted\n"
    cancels = [params for method, params in fake.calls if method == "$/cancelRequest"]
    assert cancels == [{"id": ticket.id}]
    assert client.next_answer(time.monotonic() + 0.1) is None


def test_what_nobody_answers_is_sent_where_there_is_a_connection(
    fake: FakeEngine, client: Client
) -> None:
    client.notify("read_task", {"as": "ci", "taskId": "t1"})
    fake.wait_for(lambda: fake.methods() == ["hello", "read_task"])
    client.close()
    client.notify("read_task", {"as": "ci"})  # nobody is there any more: no error


def revived(fake: FakeEngine, started: list[str]) -> Client:
    """A client that may start the fake engine."""

    def revive() -> None:
        started.append("started")
        fake.start()

    return Client(lambda: find_place(str(fake.home), None, {}), revive=revive, patience=0.4)


def test_one_that_vanished_is_started_again_if_nobody_else_does(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.START_AFTER", 2)
    started: list[str] = []
    client = revived(fake, started)
    client.connect()
    fake.stop()
    assert client.call("engine_info", {})["slots"] == 32
    assert started == ["started"]
    client.close()


def test_one_that_said_goodbye_is_left_to_who_ended_it(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.START_AFTER", 2)
    started: list[str] = []
    client = revived(fake, started)
    client.connect()
    client.submit("bash", bash("sleep 60", key="k"))
    fake.wait_for(lambda: "bash" in fake.methods())
    fake._connections[0].close(1001)
    fake.stop()
    with pytest.raises(NotReachable, match="gave up"):
        client.next_answer(time.monotonic() + LIMIT)
    assert started == []


def test_who_was_idle_at_the_goodbye_starts_no_engine_either(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.START_AFTER", 1)
    started: list[str] = []
    client = revived(fake, started)
    client.connect()
    fake._connections[0].close(1001)
    fake.stop()
    with pytest.raises(NotReachable, match="gave up"):
        client.call("engine_info", {})
    assert started == []
    client.close()


def test_a_call_made_after_an_unseen_loss_is_sent_on_the_next_connection(
    fake: FakeEngine, client: Client
) -> None:
    fake.drop()
    reply = client.call("bash", bash("echo once"), budget=20, resend=False)
    assert reply["output"] == "once\n"


def test_where_no_engine_is_one_is_started(fake: FakeEngine) -> None:
    fake.stop()
    started: list[str] = []
    client = revived(fake, started)
    client.connect_or_start()
    assert client.call("engine_info", {})["slots"] == 32
    client.close()
    client.connect_or_start()
    assert started == ["started"]
    client.close()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 101 Switching Protocols\r\n"])
def test_where_one_is_killed_in_the_handshake_another_is_started(
    fake: FakeEngine, says: bytes
) -> None:
    fake.stop()
    path = fake.home / "engine.sock"
    path.unlink(missing_ok=True)
    started: list[str] = []
    client = revived(fake, started)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def die() -> None:
            peer, _ = listener.accept()
            peer.recv(1000)
            peer.sendall(says)
            path.unlink()
            peer.close()

        thread = threading.Thread(target=die)
        thread.start()
        client.connect_or_start()
        thread.join(LIMIT)
    assert client.call("engine_info", {})["slots"] == 32
    assert started == ["started"]
    client.close()


def test_after_a_call_that_was_lost_the_next_one_connects_again(
    fake: FakeEngine, client: Client
) -> None:
    client.submit("bash", bash("sleep 5"), budget=20, resend=False)
    fake.wait_for(lambda: "bash" in fake.methods())
    fake.drop()
    with pytest.raises(ConnectionLost, match="may have been done"):
        client.next_answer(time.monotonic() + LIMIT)
    assert client.call("engine_info", {})["slots"] == 32


def test_after_patience_was_spent_the_next_call_tries_anew_and_alone(fake: FakeEngine) -> None:
    client = Client(lambda: find_place(str(fake.home), None, {}), patience=0.3)
    client.connect()
    fake.stop()
    with pytest.raises(NotReachable, match="gave up"):
        client.call("bash", bash("true"))
    fake.start()
    assert client.call("engine_info", {})["slots"] == 32
    assert fake.methods() == ["engine_info"]
    client.close()
    with pytest.raises(ClientClosed, match="closed before engine_info was sent"):
        client.call("engine_info", {})


def drop_when_asked(fake: FakeEngine) -> None:
    fake.wait_for(lambda: "bash" in fake.methods())
    fake.drop()


def test_a_call_that_is_interrupted_is_withdrawn(fake: FakeEngine) -> None:
    class Interrupted(Exception):
        pass

    def interrupt() -> None:
        raise Interrupted

    client = Client(lambda: find_place(str(fake.home), None, {}), tell_lost=interrupt)
    client.connect()
    dropper = threading.Thread(target=drop_when_asked, args=(fake,))
    dropper.start()
    with pytest.raises(Interrupted):
        client.call("bash", bash("sleep 5", key="k"), budget=20)
    dropper.join()
    assert client.call("engine_info", {})["slots"] == 32
    assert fake.methods() == ["bash", "engine_info"]
    client.close()


def test_it_loads_neither_trio_nor_msgspec() -> None:
    code = (
        "import engine.client.blocking, engine.client.start, sys\n"
        "print(*sys.modules.keys() & {'trio', 'msgspec', 'trio_websocket', 'subprocess'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_an_answer_that_has_come_is_dropped_with_its_call(fake: FakeEngine, client: Client) -> None:
    early = client.submit("bash", bash("echo unwanted"), budget=20)
    assert client.call("bash", bash("sleep 0.4; echo wanted"))["output"] == "wanted\n"
    client.withdraw(early)
    assert client.next_answer(time.monotonic() + 0.1) is None


def test_what_was_in_flight_when_patience_was_spent_is_not_sent_later(fake: FakeEngine) -> None:
    client = Client(lambda: find_place(str(fake.home), None, {}), patience=0.3)
    client.connect()
    fake.stop()
    client.submit("bash", bash("true", key="k"))
    with pytest.raises(NotReachable, match="gave up"):
        client.next_answer(time.monotonic() + LIMIT)
    fake.start()
    client.call("engine_info", {})
    assert fake.methods() == ["engine_info"]
    client.close()


def test_who_would_wait_shortly_gives_up_on_an_engine_that_takes_no_connection(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.schedule.ANSWER_SECS", 0.1)
    fake.stop()
    with socket.socket(socket.AF_UNIX) as stopped:  # as the kernel keeps it for a process that is
        (fake.home / "engine.sock").unlink(missing_ok=True)
        stopped.bind(str(fake.home / "engine.sock"))
        stopped.listen()
        client = Client(lambda: find_place(str(fake.home), None, {}), timeout=0.4)
        began = time.monotonic()
        with pytest.raises(NotReachable) as caught:
            client.connect()
    assert 0.3 < time.monotonic() - began < 5
    assert caught.value.lines == [
        f"not reachable at {fake.home}/engine.sock (no answer)",
        "gave up after 0.4 s (--timeout)",
    ]


def test_that_nobody_listens_is_no_matter_of_time(fake: FakeEngine) -> None:
    fake.stop()
    client = Client(lambda: find_place(str(fake.home), None, {}), timeout=0)
    with pytest.raises(NotReachable) as caught:
        client.connect()
    assert caught.value.absent
    assert "gave up" not in str(caught.value)


def test_who_would_wait_shortly_gives_up_on_an_engine_that_answers_no_more(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.schedule.ANSWER_SECS", 0.5)
    client = Client(lambda: find_place(str(fake.home), None, {}), timeout=0.5)
    client.connect()
    began = time.monotonic()
    with pytest.raises(NotReachable, match=r"\(no answer\)\ngave up after 0\.5 s \(--timeout\)"):
        client.call("bash", bash("sleep 20"), budget=0.5)
    assert 0.9 < time.monotonic() - began < 5
    client.close()


def test_who_would_wait_shortly_is_not_kept_by_the_patience_after_a_loss(fake: FakeEngine) -> None:
    client = Client(lambda: find_place(str(fake.home), None, {}), timeout=0.5)
    client.connect()
    fake.stop()
    began = time.monotonic()
    with pytest.raises(NotReachable, match=r"gave up after 2 s \(--timeout\)"):
        client.call("engine_info", {})
    assert time.monotonic() - began < 5


def test_who_would_wait_shortly_is_not_kept_by_an_engine_that_has_the_home_and_does_not_listen(
    fake: FakeEngine,
) -> None:
    fake.stop()
    tries: list[None] = []
    client = Client(
        lambda: find_place(str(fake.home), None, {}), revive=lambda: tries.append(None), timeout=0.5
    )
    began = time.monotonic()
    with pytest.raises(NotReachable, match=r"gave up after 2 s \(--timeout\)"):
        client.connect_or_start()
    assert time.monotonic() - began < 5
    assert len(tries) >= 2


def test_an_attempt_after_a_loss_takes_no_longer_than_the_patience(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.blocking.ANSWER_SECS", 0.1)
    client = Client(lambda: find_place(str(fake.home), None, {}), patience=0.5)
    client.connect()
    fake.stop()
    with socket.socket(socket.AF_UNIX) as stopped:
        (fake.home / "engine.sock").unlink(missing_ok=True)
        stopped.bind(str(fake.home / "engine.sock"))
        stopped.listen()
        began = time.monotonic()
        with pytest.raises(NotReachable, match=r"no answer\)\ngave up after 0\.5 s"):
            client.call("engine_info", {})
    assert time.monotonic() - began < 5
