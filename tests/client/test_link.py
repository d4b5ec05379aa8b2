"""Mirrors `engine/client/link.py`."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from client.fake_engine import AGENT, FakeEngine

from engine.client.errors import ConnectionLost, NotReachable, TokenRefused
from engine.client.link import open_link
from engine.client.places import Place

LIMIT = 10.0  # seconds


def place(socket_path: str, token: str = AGENT, pid: int | None = None) -> Place:
    return Place("ws://127.0.0.1:1/rpc", socket_path, None, "localhost", token, "/h", pid)


class Bell:
    """A wake that a test rings."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def ring(self) -> None:
        os.write(self._write, b"x")

    def drain(self) -> None:
        os.read(self._read, 64)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def test_a_message_goes_and_its_answer_comes(fake: FakeEngine) -> None:
    link = open_link(place(f"{fake.home}/engine.sock"))
    link.send('{"jsonrpc":"2.0","id":1,"method":"engine_info","params":{}}')
    text = link.receive(time.monotonic() + LIMIT)
    assert text is not None
    assert json.loads(text)["result"]["slots"] == 32
    link.close()


def test_a_socket_may_lie_deeper_than_its_address_can_say(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    engine = FakeEngine(deep / "home")
    engine.start()
    try:
        open_link(place(f"{engine.home}/engine.sock")).close()
    finally:
        engine.close()


def test_a_wait_ends_at_its_deadline_or_when_it_is_woken(fake: FakeEngine) -> None:
    bell = Bell()
    link = open_link(place(f"{fake.home}/engine.sock"), bell)
    assert link.receive(time.monotonic()) is None
    bell.ring()
    assert link.receive(time.monotonic() + LIMIT) is None
    link.close()
    bell.close()


def test_an_end_of_the_connection_is_told(fake: FakeEngine) -> None:
    link = open_link(place(f"{fake.home}/engine.sock"))
    fake.drop()
    with pytest.raises(ConnectionLost):
        link.receive(time.monotonic() + LIMIT)
    link.close()


def test_a_wrong_token_is_refused_and_nobody_is_absent(fake: FakeEngine) -> None:
    with pytest.raises(TokenRefused, match=r"token refused \(401\)") as caught:
        open_link(place(f"{fake.home}/engine.sock", token="x" * 43))
    assert not caught.value.absent


def test_a_stale_socket_says_refused_and_which_process_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    with pytest.raises(NotReachable) as caught:
        open_link(place(str(path), pid=4_000_000))
    assert caught.value.lines == [
        f"not reachable at {path} (refused)",
        "engine.json names pid 4000000, which is gone. Start it: engine serve",
    ]
    assert caught.value.absent


@pytest.mark.parametrize("reads", [True, False])
def test_somebody_who_hangs_up_in_the_handshake_is_as_one_who_is_not_there(
    tmp_path: Path, reads: bool
) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up() -> None:
            peer, _ = listener.accept()
            if reads:
                peer.recv(1000)
            peer.close()  # with what was not read: a reset

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(NotReachable, match=r"not reachable at .* \(.+\)") as caught:
            open_link(place(str(path)))
        thread.join(LIMIT)
    assert caught.value.absent
