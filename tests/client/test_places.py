"""Mirrors `engine/client/places.py`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from engine.client.errors import NotReachable, TokenUnreadable
from engine.client.places import find_home, find_place, is_alive, parse_url, tilde

TOKEN = "a" * 43


@pytest.fixture
def home(tmp_path: Path) -> Path:
    facts = {
        "url": "ws://127.0.0.1:8420/rpc",
        "socket": str(tmp_path / "engine.sock"),
        "pid": 4120,
        "tokens": {"agent": TOKEN, "observer": "o" * 43},
    }
    (tmp_path / "engine.json").write_text(json.dumps(facts))
    (tmp_path / "human.token").write_text("h" * 43 + "\n")
    return tmp_path


def test_the_home_is_the_option_then_the_variable_then_the_users_data_directory() -> None:
    assert find_home("/a", {"ENGINE_HOME": "/b"}) == "/a"
    assert find_home(None, {"ENGINE_HOME": "/b"}) == "/b"
    assert find_home("rel", {}) == os.path.join(os.getcwd(), "rel")
    assert find_home(None, {}).endswith("/engine")


def test_the_socket_is_the_way_and_the_agents_token_the_key(home: Path) -> None:
    place = find_place(str(home), None, {})
    assert (place.socket, place.address, place.host) == (f"{home}/engine.sock", None, "localhost")
    assert (place.token, place.pid, place.url) == (TOKEN, 4120, "ws://127.0.0.1:8420/rpc")


def test_a_url_is_the_way_where_one_is_given(home: Path) -> None:
    environ = {"ENGINE_URL": "ws://127.0.0.1:1/rpc"}
    assert find_place(str(home), None, environ).address == ("127.0.0.1", 1)
    place = find_place(str(home), "ws://[::1]:2/rpc", environ)
    assert (place.address, place.host, place.token) == (("::1", 2), "[::1]:2", TOKEN)


def test_a_token_file_of_ones_own_needs_no_home(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("mine\n")
    environ = {"ENGINE_TOKEN_FILE": str(file)}
    assert find_place("/nowhere", "ws://h/rpc", environ).token == "mine"


def test_the_humans_token_stands_in_its_own_file(home: Path) -> None:
    assert find_place(str(home), None, {}, role="human").token == "h" * 43
    assert find_place(str(home), None, {}, role="observer").token == "o" * 43
    (home / "human.token").unlink()
    with pytest.raises(TokenUnreadable, match="ENGINE_TOKEN_FILE may name another place"):
        find_place(str(home), None, {}, role="human")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tokens": {}}', '{"tokens": {"agent": 3}}'])
def test_facts_that_are_damaged_are_named(home: Path, text: str) -> None:
    (home / "engine.json").write_text(text)
    with pytest.raises(NotReachable, match=r"engine\.json .*; remove it to have new") as caught:
        find_place(str(home), None, {})
    assert not caught.value.absent


def test_without_facts_the_engine_is_absent(tmp_path: Path) -> None:
    with pytest.raises(NotReachable) as caught:
        find_place(str(tmp_path), None, {})
    assert caught.value.absent


@pytest.mark.parametrize(
    "url", ["", "x", "http://h/rpc", "wss://h/rpc", "ws://h:x/rpc", "ws:///rpc", "ws://h/other"]
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(NotReachable):
        parse_url(url)


def test_the_users_home_is_shortened() -> None:
    user = os.path.expanduser("~")
    assert tilde(f"{user}/x") == "~/x"
    assert tilde(f"{user}x") == f"{user}x"


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is not reaped
    assert not is_alive(child.pid)
    child.wait()
    assert not is_alive(child.pid)
    assert is_alive(os.getpid())
